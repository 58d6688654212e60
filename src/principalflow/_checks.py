"""Checks of arguments: every error names the argument, what was given and what is needed."""

import difflib
import math
import os
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, ArrayLike

# What a user may give for an array of numbers.
Numbers = ArrayLike | Sequence[Any]


class PrecisionWarning(UserWarning):
    """The arithmetic is too coarse for the accuracy that was asked for."""


class NonFiniteError(ValueError):
    """Something that must be finite is not."""


def positive(name: str, value: Any) -> float:
    """Returns `value` as a float if it is finite and above zero."""
    number = _real_number(name, value)
    if not (math.isfinite(number) and number > 0):
        raise ValueError(f"{name} must be a finite number above 0, got {value!r}.")
    return number


def non_negative(name: str, value: Any) -> float:
    """Returns `value` as a float if it is finite and not below zero."""
    number = _real_number(name, value)
    if not (math.isfinite(number) and number >= 0):
        raise ValueError(f"{name} must be a finite number of at least 0, got {value!r}.")
    return number


def fraction(name: str, value: Any) -> float:
    """Returns `value` as a float if it is at least zero and below one."""
    number = _real_number(name, value)
    if not 0 <= number < 1:
        raise ValueError(f"{name} must be a number of at least 0 and below 1, got {value!r}.")
    return number


def real(name: str, value: Any) -> float:
    """Returns `value` as a float if it is a finite real number."""
    number = _real_number(name, value)
    if not math.isfinite(number):
        raise ValueError(f"{name} must be a finite number, got {value!r}.")
    return number


def whole(name: str, value: Any, least: int) -> int:
    """Returns `value` as an int if it is a whole number of at least `least`."""
    is_whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not is_whole or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}.")
    return int(value)


def one_of(name: str, value: Any, choices: Sequence[str]) -> None:
    """Raises unless `value` is one of `choices`; the message guesses which was meant."""
    if not isinstance(value, str) or value not in choices:
        listed = ", ".join(repr(choice) for choice in choices)
        raise ValueError(f"{name} must be one of {listed}, got {value!r}.{did_you_mean(str(value), choices)}")


def path(name: str, value: Any) -> Path:
    """Returns `value` as a path if it can be that of a file or folder."""
    try:
        text = os.fspath(value)
        if isinstance(text, str) and text and b"\0" not in os.fsencode(text):
            return Path(text)
    except (TypeError, ValueError):
        pass
    raise ValueError(f"{name} must be the path of a file or folder, got {value!r:.60}.")


def did_you_mean(given: str, names: Iterable[str]) -> str:
    """Returns a question with the name nearest to what was given, to end an error with; nothing if none is near."""
    by_lower_case = {name.lower(): name for name in names}
    nearest = difflib.get_close_matches(given.lower(), by_lower_case, n=1, cutoff=0.5)
    return f" Did you mean {by_lower_case[nearest[0]]!r}?" if nearest else ""


def inexact(name: str, value: Numbers, dtype: Any = float) -> Array:
    """Returns `value` as a real or complex floating array; whole numbers take `dtype`."""
    try:
        array = jnp.asarray(value)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be an array of numbers, got a {type(value).__name__}.") from error
    if jnp.issubdtype(array.dtype, jnp.integer):
        array = array.astype(dtype)
    if not jnp.issubdtype(array.dtype, jnp.inexact):
        raise ValueError(f"{name} must hold real or complex numbers, got dtype {array.dtype}.")
    return array


def symmetric(name: str, value: Numbers) -> Array:
    """Returns `value` as a square, symmetric, finite matrix."""
    matrix = inexact(name, value)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or matrix.size == 0:
        raise ValueError(f"{name} must be a square matrix, got shape {matrix.shape}.")
    finite(name, matrix)
    if jnp.max(jnp.abs(matrix - matrix.T)) > resolution(matrix.dtype) * jnp.max(jnp.abs(matrix)):
        raise ValueError(f"{name} must be symmetric: it is the Hessian.")
    return matrix


def vector(name: str, value: Numbers, size: int) -> Array:
    """Returns `value` as a finite vector of `size` entries."""
    array = inexact(name, value)
    if array.shape != (size,):
        raise ValueError(f"{name} must have shape ({size},), got {array.shape}.")
    finite(name, array)
    return array


def finite(name: str, value: Array) -> None:
    """Raises a NonFiniteError if a concrete array has an entry that is not finite."""
    if isinstance(value, Tracer):
        return
    bad = int(jnp.sum(~jnp.isfinite(value)))
    if bad:
        raise NonFiniteError(f"{name} must be finite, but {bad} of its {value.size} entries are not.")


def resolution(dtype: Any) -> float:
    """Returns the finest relative tolerance that makes sense in `dtype`: ten rounding units."""
    return 10 * float(jnp.finfo(dtype).eps)


def resolvable(name: str, tolerance: float, dtype: Any) -> float:
    """Returns `tolerance`, or with a warning the finest that `dtype` resolves."""
    finest = resolution(dtype)
    if tolerance < finest:
        warnings.warn(
            f"{name}={tolerance:g} is finer than {jnp.dtype(dtype).name} resolves; {finest:.1e} is used instead. "
            'For more, call jax.config.update("jax_enable_x64", True) before making any array, '
            "and give float64 parameters.",
            PrecisionWarning,
            stacklevel=3,
        )
    return max(tolerance, finest)


def _real_number(name: str, value: Any) -> float:
    try:
        if isinstance(value, (bool, str)) or np.iscomplexobj(value):
            raise TypeError
        return float(value)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be a real number, got {value!r}.") from error
