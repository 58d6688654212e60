"""Checks of arguments: every error names the argument, what was given and what is needed."""

import difflib
import inspect
import math
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, ArrayLike

# What a user may give for an array of numbers.
Numbers = ArrayLike | Sequence[Any]

# The largest whole number that JAX takes without its 64-bit switch.
_LARGEST_WHOLE = 2**31 - 1
# Learning rates beyond these have squares or inverses that are no numbers any more.
RATES = 1e-100, 1e100
# Allocations below this many bytes aren't worth asking the machine.
_SMALL_ALLOCATION = 2**27
_LONGEST_SHOWN = 80


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


def tolerance(name: str, value: Any) -> float:
    """Returns `value` as a float if it can be a relative tolerance: above zero, and below one, where all would pass."""
    number = _real_number(name, value)
    if not 0 < number < 1:
        raise ValueError(f"{name} must be a number above 0 and below 1, got {shown(value)}.")
    return number


def rate(name: str, value: Any) -> float:
    """Returns `value` as a float if it can be a learning rate: positive, its square and inverse included."""
    number = positive(name, value)
    least, most = RATES
    if not least <= number <= most:
        raise ValueError(f"{name} must be a learning rate from {least:g} to {most:g}, got {shown(value)}.")
    return number


def real(name: str, value: Any) -> float:
    """Returns `value` as a float if it is a finite real number."""
    number = _real_number(name, value)
    if not math.isfinite(number):
        raise ValueError(f"{name} must be a finite number, got {shown(value)}.")
    return number


def whole(name: str, value: Any, least: int, most: int | None = _LARGEST_WHOLE) -> int:
    """Returns `value` as an int if it is a whole number from `least` to `most`."""
    is_whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not is_whole or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, got {shown(value)}.")
    if most is not None and value > most:
        raise ValueError(f"{name} must be a whole number of at most {most}, got {shown(value)}.")
    return int(value)


def flag(name: str, value: Any) -> bool:
    """Returns `value` if it is True or False."""
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError(f"{name} must be True or False, got {shown(value)}.")
    return bool(value)


def one_of(name: str, value: Any, choices: Sequence[str]) -> None:
    """Raises unless `value` is one of `choices`; the message guesses which was meant."""
    if not isinstance(value, str) or value not in choices:
        listed = ", ".join(repr(choice) for choice in choices)
        guess = did_you_mean(value, choices) if isinstance(value, str) else ""
        raise ValueError(f"{name} must be one of {listed}, got {shown(value)}.{guess}")


def function(name: str, value: Any, *arguments: str) -> Callable:
    """Returns `value` if it is a function that can be called with these arguments."""
    needed = f"{name} must be a function of {' and '.join(arguments)}"
    if not callable(value):
        raise ValueError(f"{needed}, got {shown(value)}.")
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):  # some callables have none to show
        return value
    try:
        signature.bind(*arguments)
    except TypeError as error:
        raise ValueError(f"{needed}, got one that takes {signature}.") from error
    return value


def fits(name: str, size: int, what: str, on_host: bool = False) -> None:
    """Raises if `size` bytes, which the argument `name` asks for, are more than the memory that is free.

    The memory is that of JAX's device, or `on_host` that of the machine, where NumPy's arrays are.
    """
    if lacking := lacks(size, on_host):
        raise ValueError(f"{name} asks for {what}, which take {lacking}.")


def lacks(size: int, on_host: bool) -> str:
    """Returns how much memory `size` bytes take and how much is free, or nothing if they fit."""
    if size < _SMALL_ALLOCATION:
        return ""
    available = _host_memory() if on_host else _available_memory()
    needed, free = (f"{bytes_ / 2**30:.3g} GiB" for bytes_ in (size, available))
    return f"{needed} of memory where {free} are available" if size > available else ""


def shown(value: Any) -> str:
    """Returns `value` as it stands in a message, shortened if it is long."""
    try:
        text = repr(value)
    except Exception:  # an int of more digits than Python prints, or an object of the user's
        text = f"a {type(value).__name__}"
    return text if len(text) <= _LONGEST_SHOWN else f"{text[: _LONGEST_SHOWN - 20]}... ({len(text)} characters)"


def did_you_mean(given: str, names: Iterable[str]) -> str:
    """Returns a question with the name nearest to what was given, to end an error with; nothing if none is near."""
    by_lower_case = {name.lower(): name for name in names}
    nearest = difflib.get_close_matches(given[:100].lower(), by_lower_case, n=1, cutoff=0.5)
    return f" Did you mean {by_lower_case[nearest[0]]!r}?" if nearest else ""


def array_of_numbers(name: str, value: Any) -> Array:
    """Returns `value` as an array of numbers or truth values."""
    try:
        if any(isinstance(leaf, str | bytes) for leaf in jax.tree.leaves(value)):
            raise TypeError("text")  # which JAX would try to read as the name of a dtype
        array = jnp.asarray(value)
    except OverflowError as error:
        raise ValueError(f"{name} must hold numbers within the range of JAX's, got {shown(value)}.") from error
    except (TypeError, ValueError) as error:
        dtype = f" of dtype {value.dtype}" if isinstance(value, np.ndarray) else ""
        raise ValueError(f"{name} must be an array of numbers, got a {type(value).__name__}{dtype}.") from error
    if jnp.issubdtype(array.dtype, jnp.integer) and isinstance(value, np.ndarray | np.generic) and value.size:
        limits = jnp.iinfo(array.dtype)
        if value.min() < limits.min or value.max() > limits.max:  # JAX wraps them around without its 64-bit switch
            raise ValueError(f"{name} must hold numbers within the range of {array.dtype}, got {shown(value)}.")
    return array


def inexact(name: str, value: Numbers, dtype: Any = float) -> Array:
    """Returns `value` as a real or complex floating array; whole numbers take `dtype`."""
    array = array_of_numbers(name, value)
    if jnp.issubdtype(array.dtype, jnp.integer):
        array = array.astype(dtype)
    if not jnp.issubdtype(array.dtype, jnp.inexact):
        raise ValueError(f"{name} must hold real or complex numbers, got dtype {array.dtype}.")
    if jnp.finfo(array.dtype).bits < 16:
        raise ValueError(f"{name} must be of float16 or wider, got dtype {array.dtype}, which JAX can't compute with.")
    return array


def finite_numbers(name: str, value: Numbers) -> Array:
    """Returns `value` as a real or complex floating array without infinities and NaNs."""
    array = inexact(name, value)
    finite(name, array)
    return array


def single_or_double(name: str, array: Array) -> None:
    """Raises if a floating array is of half precision: linear algebra and solvers need single at least."""
    if jnp.finfo(array.dtype).bits < 32:
        raise ValueError(
            f"{name} must be in single or double precision, since curvature is lost in the rounding of coarser "
            f"numbers, got {array.dtype}: give {name} as float32."
        )


def symmetric(name: str, value: Numbers) -> Array:
    """Returns `value` as a square, symmetric, finite matrix."""
    matrix = finite_numbers(name, value)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or matrix.size == 0:
        raise ValueError(f"{name} must be a square matrix, got shape {matrix.shape}.")
    if jnp.max(jnp.abs(matrix - matrix.T)) > resolution(matrix.dtype) * jnp.max(jnp.abs(matrix)):
        raise ValueError(f"{name} must be symmetric: it is the Hessian.")
    return matrix


def vector(name: str, value: Numbers, size: int) -> Array:
    """Returns `value` as a finite vector of `size` entries."""
    array = finite_numbers(name, value)
    if array.shape != (size,):
        raise ValueError(f"{name} must have shape ({size},), got {array.shape}.")
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
        dtype, advice = jnp.dtype(dtype), ""
        if dtype != jnp.float64:
            advice = ' For more, call jax.config.update("jax_enable_x64", True) before making any array, '
            advice += "and give float64 parameters."
        text = f"{name}={tolerance:g} is finer than {dtype.name} resolves; {finest:.1e} is used instead.{advice}"
        warnings.warn(text, PrecisionWarning, stacklevel=3)
    return max(tolerance, finest)


def double_if_enabled(name: str, dtype: Any, stacklevel: int) -> None:
    """Warns of numbers in single precision where JAX's 64-bit switch is on: that is seldom meant."""
    if dtype in (jnp.float32, jnp.complex64) and jax.config.jax_enable_x64:  # pyright: ignore[reportAttributeAccessIssue]
        warnings.warn(
            f"{name} are {dtype.name} though JAX's 64-bit switch is on, so that all is computed in {dtype.name}. For "
            f"float64 convert them: jax.tree.map(lambda leaf: leaf.astype(float), {name}). If {dtype.name} is meant: "
            'warnings.simplefilter("ignore", principalflow.PrecisionWarning).',
            PrecisionWarning,
            stacklevel=stacklevel,
        )


@contextmanager
def chosen_precision() -> Iterator[None]:
    """Has parameters in single precision pass without a word, where they are what an option asks for."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrecisionWarning)
        yield


def path(name: str, value: Any) -> Path:
    """Returns `value` as a path if it can be that of a file or folder."""
    try:
        text = os.fspath(value)
        if isinstance(text, str) and text and b"\0" not in os.fsencode(text):
            return Path(text)
    except (TypeError, ValueError):
        pass
    raise ValueError(f"{name} must be the path of a file or folder, got {shown(value)}.")


def regular_file(name: str, path: Path) -> None:
    """Raises unless `path` is a file that has an end: a pipe or a device may have none."""
    if not os.path.exists(path):
        raise FileNotFoundError(f"{name} must be a file, and there is none at {str(path)!r}.")
    if not os.path.isfile(path):
        kind = "a folder" if os.path.isdir(path) else "a pipe or a device"
        raise ValueError(f"{name} must be a file, got {str(path)!r}, which is {kind}.")


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


def _real_number(name: str, value: Any) -> float:
    try:
        if isinstance(value, (bool, np.bool_, str, bytes)) or np.iscomplexobj(value) or np.ndim(value):
            raise TypeError
        return float(value)
    except OverflowError as error:
        raise ValueError(f"{name} must be within the range of floating-point numbers, got {shown(value)}.") from error
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be a real number, got {shown(value)}.") from error


def _available_memory() -> float:
    """Returns the bytes that are free on JAX's device, which on CPUs are those of the machine."""
    statistics = jax.local_devices()[0].memory_stats()  # None on CPUs
    if statistics and "bytes_limit" in statistics:
        return statistics["bytes_limit"] - statistics.get("bytes_in_use", 0)
    return _host_memory()


def _host_memory() -> float:
    """Returns the bytes that are free on this machine, infinite where nobody knows."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return math.inf
