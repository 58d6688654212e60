"""Whether a call ended as it should: a finite result, one that is marked, or an error that names an argument."""

import dataclasses
import math
import re
import signal
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import numpy as np
from cases import OwnError
from hostile import values

import principalflow as pf

SECONDS = 60
# RunError, and as PyTorch has it what `principalflow.torch` raises, are RuntimeErrors; DataError is an OSError.
_ERRORS = (ValueError, RuntimeError, OSError)
_SOURCE = str(Path(pf.__file__).parent)
# What may stand before the name at the beginning of an error: "the gradient at theta must", "update needs params".
_BEFORE_A_NAME = r"the |[\w ]+ (of|at) |[\w, ]+ needs (a |either )?"
# Beyond these an ordinary formula leaves the numbers of its precision.
_LARGE, _SMALL = 1e18, 1e-18


class Hang(BaseException):
    """A call took too long."""


def verdict(function: Callable, arguments: dict[str, Any], names: set[str], is_formula: bool = False) -> str:
    """Returns "" if the call ended as it should, or a sentence on what is wrong, which begins with its kind."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            with _limited(), _all_frames():
                result = function(**arguments)
        except Hang:
            return f"hang: more than {SECONDS} s"
        except _ERRORS as error:
            return "" if _is_own(error) else _of_error(error, names)
        except Exception as error:
            return "" if _is_own(error) else f"raw: {type(error).__name__}: {_short(error)}"
    if all(map(np.all, map(np.isfinite, numbers(result)))) or is_marked(result):
        return ""
    if any(warning.category.__module__.startswith("principalflow") for warning in caught):
        return ""
    if is_formula and any(map(_is_extreme, numbers(arguments))):
        return ""  # a formula is as finite as what it is given
    return f"unmarked: {_short(result)}"


def _of_error(error: Exception, names: set[str]) -> str:
    raised_in = _frames(error)[-1]
    if not raised_in.startswith(_SOURCE):
        return f"raw: {type(error).__name__} from {raised_in}: {_short(error)}"
    text = str(error).split("JAX says")[0]  # a reason may be quoted, below a name of ours
    if isinstance(error, pf.runs.RunError | pf.data.DataError):
        return ""  # they name the folder or the file
    named = re.match(rf"(/|({_BEFORE_A_NAME})?({'|'.join(names)})\b)", text)  # a path is the name of a file
    return "" if named else f"unnamed: {_short(error)}"


def _is_own(error: BaseException) -> bool:
    """Whether a function of the user's raised it, which comes through as it is."""
    return isinstance(error, OwnError) or _frames(error)[-1] == values.__file__


def is_marked(result: Any) -> bool:
    """Whether a result, or one within it, says that it is not what was asked for."""
    if isinstance(result, Mapping) or hasattr(result, "columns"):
        statuses, messages = result.get("status", ()), result.get("message", ())
        return "events" in result or any(status != "completed" for status in statuses) or any(messages)
    if isinstance(result, list | tuple) and not hasattr(result, "_fields"):
        return any(map(is_marked, result))
    converged, diverged = getattr(result, "converged", True), getattr(result, "diverged", False)
    done = getattr(result, "status", "completed") == "completed"
    said = getattr(result, "nonfinite", 0) or getattr(result, "unknown", "")
    return not np.all(converged) or bool(diverged) or not done or bool(said)


def numbers(result: Any) -> Iterator[np.ndarray]:
    """Yields the floating-point numbers of a result."""
    if isinstance(result, pf.Objective):
        yield from numbers(result.theta)
    elif isinstance(result, Mapping):
        yield from (array for value in result.values() for array in numbers(value))
    elif hasattr(result, "columns"):
        yield from (array for name in result.columns for array in numbers(result[name].to_numpy()))
    elif dataclasses.is_dataclass(result) and not isinstance(result, type):
        fields = [getattr(result, field.name, None) for field in dataclasses.fields(result)]
        yield from (array for value in fields for array in numbers(value))
    elif isinstance(result, list | tuple):
        yield from (array for value in result for array in numbers(value))
    elif isinstance(result, float | complex | int | np.number | np.ndarray | jax.Array) and not isinstance(
        result, bool
    ):
        yield from _floating(result)
    elif hasattr(result, "detach"):
        yield from _floating(result.detach().double().numpy())
    elif hasattr(result, "not_finite"):
        yield np.array(math.nan)


def _floating(value: Any) -> Iterator[np.ndarray]:
    try:
        array = np.asarray(value)
        if isinstance(value, int) or array.dtype.kind in "iufcV":
            yield array.astype(complex) if array.dtype.kind == "c" else array.astype(float)
        elif array.dtype == object:
            yield from (item for entry in array.ravel().tolist() for item in numbers(entry))
    except (TypeError, ValueError):
        return  # a key of random numbers, or a date
    except OverflowError:
        yield np.array(math.inf)


def _is_extreme(array: np.ndarray) -> bool:
    sizes = np.abs(array[array != 0])
    return bool(np.any(~np.isfinite(sizes) | (sizes > _LARGE) | (sizes < _SMALL)))


def _frames(error: BaseException) -> list[str]:
    frames, trace = [], error.__traceback__
    while trace is not None:
        frames.append(trace.tb_frame.f_code.co_filename)
        trace = trace.tb_next
    return frames


@contextmanager
def _limited() -> Iterator[None]:
    def give_up(*_):
        raise Hang

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def _all_frames() -> Iterator[None]:
    """Has JAX leave its own frames in errors, which else look like ours."""
    before = jax.config.jax_traceback_filtering
    jax.config.update("jax_traceback_filtering", "off")
    try:
        yield
    finally:
        jax.config.update("jax_traceback_filtering", before)


def _short(value: Any) -> str:
    try:
        return " ".join(str(value).split())[:300]
    except Exception as error:
        return f"(no text: {error})"
