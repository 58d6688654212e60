"""Checks of arguments: every error names the argument, what was given and what is needed."""

import difflib
import math
import os
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
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
        raise ValueError(f"{name} must be a finite number above 0, got {shown(value)}.")
    return number


def non_negative(name: str, value: Any) -> float:
    """Returns `value` as a float if it is finite and not below zero."""
    number = _real_number(name, value)
    if not (math.isfinite(number) and number >= 0):
        raise ValueError(f"{name} must be a finite number of at least 0, got {shown(value)}.")
    return number


def fraction(name: str, value: Any) -> float:
    """Returns `value` as a float if it is at least zero and below one."""
    number = _real_number(name, value)
    if not 0 <= number < 1:
        raise ValueError(f"{name} must be a number of at least 0 and below 1, got {shown(value)}.")
    return number


def real(name: str, value: Any) -> float:
    """Returns `value` as a float if it is a finite real number."""
    number = _real_number(name, value)
    if not math.isfinite(number):
        raise ValueError(f"{name} must be a finite number, got {shown(value)}.")
    return number


def whole(name: str, value: Any, least: int, most: int | None = None) -> int:
    """Returns `value` as an int if it is a whole number of at least `least`, and at most `most` where that is given."""
    is_whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not is_whole or value < least or (most is not None and value > most):
        bound = "" if most is None else f" and at most {most}"
        raise ValueError(f"{name} must be a whole number of at least {least}{bound}, got {shown(value)}.")
    return int(value)


def boolean(name: str, value: Any) -> None:
    """Raises unless `value` is True or False."""
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError(f"{name} must be True or False, got {shown(value)}.")


def path(name: str, value: Any) -> Path:
    """Returns `value` as a path, the user's `~` expanded."""
    text = os.fspath(value) if isinstance(value, (str, os.PathLike)) else None
    if not isinstance(text, str) or "\0" in text:
        raise ValueError(f"{name} must be a path, a str without NUL characters or a Path, got {shown(value)}.")
    return Path(os.path.expanduser(text))


def regular_file(name: str, path: Path) -> None:
    """Raises unless `path` is a file that has an end: a pipe or a device may give none."""
    if not os.path.exists(path):
        raise FileNotFoundError(f"{name} must be a file, and there is none at {shown(str(path))}.")
    if not os.path.isfile(path):
        kind = "a folder" if os.path.isdir(path) else "a pipe or a device"
        raise ValueError(f"{name} must be a file, got {shown(str(path))}, which is {kind}.")


def in_memory(what: str, size: int) -> None:
    """Raises if so many bytes are more than this machine's memory."""
    memory = _memory()
    if size > memory:
        raise ValueError(f"{what} takes {size / 2**30:,.1f} GiB, and this machine has {memory / 2**30:,.1f}.")


@contextmanager
def renamed(**names: str) -> Iterator[None]:
    """Has errors that begin with an argument's name begin with the name that the user knows it by."""
    try:
        yield
    except (ValueError, OSError) as error:
        first, _, rest = str(error).partition(" ")
        if first not in names:
            raise
        raise type(error)(f"{names[first]} {rest}") from error


def shown(value: Any) -> str:
    """Returns `repr(value)`, without its middle where it is long: what was given, to end an error with."""
    try:
        text = repr(value)
    except Exception:  # an integer of more than 4300 digits, or an object whose repr fails
        return f"a very large {type(value).__name__}"
    return text if len(text) <= 300 else f"{text[:150]} ... {text[-100:]} ({len(text)} characters)"


def one_of(name: str, value: Any, choices: Sequence[str]) -> None:
    """Raises unless `value` is one of `choices`; the message guesses which was meant."""
    if not isinstance(value, str) or value not in choices:
        listed, guess = ", ".join(map(repr, choices)), did_you_mean(value, choices) if isinstance(value, str) else ""
        raise ValueError(f"{name} must be one of {listed}, got {shown(value)}.{guess}")


def did_you_mean(given: str, names: Iterable[str]) -> str:
    """Returns a question with the name nearest to what was given, to end an error with; nothing if none is near."""
    by_lower_case = {name.lower(): name for name in names}
    nearest = difflib.get_close_matches(given[:100].lower(), by_lower_case, n=1, cutoff=0.5)
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
    except OverflowError as error:
        raise ValueError(f"{name} must be a number that a float can hold, got {shown(value)}.") from error
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be a real number, got {shown(value)}.") from error


def _memory() -> int:
    """The bytes of this machine's memory; where the system doesn't tell, more than any has."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 2**50
