"""Checkpoints: named arrays at a step, written whole or not at all, and checked when they are read.

Beside their folder a record names those that the run wrote. Only these are removed: whatever else is in the folder is
somebody else's.
"""

import hashlib
import itertools
import logging
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from principalflow import _checks, _files
from principalflow._files import sync
from principalflow.runs._errors import RunError

Arrays = Mapping[str, Any]

RECORD = "checkpoints.json"

# The newest, and one to fall back to.
_KEPT = 2
# What is saved beside the arrays: their digest, and the step, so that a renamed folder is noticed.
_DIGEST, _STEP = "digest", "checkpoint_step"
# The step, and a number where somebody else has that name.
_NAME = re.compile(r"(\d{10,})(-\d+)?", re.ASCII)
# Orbax writes under such a name first, to which older versions added a time; and puts this file into each checkpoint.
_UNFINISHED, _MARKER = ".orbax-checkpoint-tmp", "_CHECKPOINT_METADATA"


class Checkpoint(NamedTuple):
    """A checkpoint that was read."""

    name: str
    step: int
    arrays: Arrays


def begin(folder: Path) -> None:
    """Writes down that there are none yet, so that none of another run is taken for one."""
    _record(folder, [])


def save(folder: Path, step: int, arrays: Arrays) -> None:
    """Saves the arrays as the newest checkpoint, and removes those that are too old.

    Raises:
        RunError: If it can't be written, for which orbax has many errors.
    """
    content = {**arrays, _STEP: np.array(step)}
    name = _free_name(folder, step)
    names, path = [*_written(folder), name], folder.resolve() / name
    with _orbax() as checkpointer, _refusals(folder, step):
        try:
            _record(folder, names)  # before it is there, so that an interruption leaves nothing unknown
            checkpointer.save(path, {**content, _DIGEST: _digest(content)})
            checkpointer.wait_until_finished()
            sync([*path.rglob("*"), path, folder])
        except Exception:
            _remove(folder, [name])
            raise
        _remove(folder, names[:-_KEPT])
        _record(folder, names[-_KEPT:])


def restore(folder: Path, objection: Callable[[Arrays], str], say: Callable[[str], None]) -> Checkpoint | None:
    """Returns the newest checkpoint that is whole and without `objection`, and says which were not; None for none.

    Raises:
        ValueError: If there are some, but none that can be used.
    """
    names, reasons = _own(folder), []
    if not names:
        return None
    with _orbax() as checkpointer:
        for name in reversed(names):
            try:
                checkpoint = _read(checkpointer, folder, name)
                if not (reason := objection(checkpoint.arrays)):
                    return checkpoint
            except Exception as error:  # whatever orbax and its storage make of a damaged file
                reason = _reason(error)
            say(f"the checkpoint of step {_step(name)} in {folder} can't be used: {reason}.")
            reasons.append(reason)
    raise ValueError(f"none of the checkpoints in {folder} can be used; the newest, because {reasons[0]}")


def clear(folder: Path, newest: Checkpoint | None) -> None:
    """Removes what was written after the `newest` that counts, and what an interruption left."""
    recorded, kept = _recorded(folder) or [], []
    if newest:
        names = _written(folder) or [newest.name]  # one that the record doesn't know is known now
        kept = names[: names.index(newest.name) + 1][-_KEPT:]
    _remove(folder, [name for name in recorded if name not in kept])
    if recorded or kept:
        _record(folder, kept)


def check(arrays: Arrays, reserved: tuple[str, ...]) -> dict[str, np.ndarray]:
    """Returns arrays that can be saved as they are; `reserved` names are not for them.

    Raises:
        ValueError: If they are no mapping from names to numbers.
    """
    if not isinstance(arrays, Mapping):
        raise ValueError(f"arrays must be a mapping from names to arrays, got a {type(arrays).__name__}.")
    for name in arrays:
        if not (isinstance(name, str) and name and name.isprintable()):
            raise ValueError(f"arrays must be named by printable text, got {_checks.shown(name)}.")
        if name in (_DIGEST, _STEP, *reserved):
            raise ValueError(f"arrays must not have the name {name!r}, which a checkpoint uses itself.")
    return {name: numbers(f"arrays[{_checks.shown(name)}]", array) for name, array in arrays.items()}


def numbers(name: str, value: Any) -> np.ndarray:
    """Returns numbers as an array that can be saved, or raises a ValueError that names them."""
    try:
        array = np.asarray(value)
    except Exception as error:  # JAX's random keys, PyTorch's tensors with gradients, ragged lists
        raise ValueError(f"{name} must be an array of numbers, got a {type(value).__name__}.") from error
    is_number = array.dtype == bool or jnp.issubdtype(array.dtype, jnp.number)
    if not is_number or array.dtype.char in "gG":  # extended precision differs between machines
        raise ValueError(f"{name} must be an array of numbers, of at most 64 bits a part, got dtype {array.dtype}.")
    if not array.size:
        raise ValueError(f"{name} must not be empty, got shape {array.shape}.")
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _own(folder: Path) -> list[str]:
    """Returns the names of this run's checkpoints, the newest last.

    Where the record is missing, damaged, or names only what is gone, whatever looks like a checkpoint counts: older
    versions wrote no record, and one may have been put back by hand.
    """
    return [] if _recorded(folder) == [] else _written(folder) or _alike(folder)


def _written(folder: Path) -> list[str]:
    """Returns the names of the checkpoints that this run wrote and that are still there, the newest last."""
    there = {item.name for item in _folders(folder)}
    return [name for name in _recorded(folder) or [] if name in there]


def _alike(folder: Path) -> list[str]:
    """Returns what has the name and the look of a checkpoint, the newest last."""
    names = [item.name for item in _folders(folder) if _NAME.fullmatch(item.name) and (item / _MARKER).is_file()]
    return sorted(names, key=_step)


def _recorded(folder: Path) -> list[str] | None:
    """Returns what the record names; None if it is missing or damaged, or names a path that leads elsewhere."""
    try:
        names = _files.read_json(folder.with_name(RECORD))["written"]
        return names if all(_NAME.fullmatch(name) for name in names) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _record(folder: Path, names: list[str]) -> None:
    _files.write_json(folder.with_name(RECORD), {"written": names})


def _free_name(folder: Path, step: int) -> str:
    taken = {item.name.split(_UNFINISHED)[0] for item in folder.iterdir()} if folder.is_dir() else set()
    names = itertools.chain([f"{step:010d}"], (f"{step:010d}-{i}" for i in itertools.count(1)))
    return next(name for name in names if name not in taken)


def _remove(folder: Path, names: list[str]) -> None:
    """Removes checkpoints, finished or not, that this run wrote."""
    for item in _folders(folder):
        name, unfinished, time = item.name.partition(_UNFINISHED)
        if name in names and (not unfinished or re.fullmatch(r"(-\d+)?", time)):
            shutil.rmtree(item)


def _folders(folder: Path) -> list[Path]:
    items = folder.iterdir() if folder.is_dir() else ()
    return [item for item in items if item.is_dir() and not item.is_symlink()]


def _step(name: str) -> int:
    return int(name.partition("-")[0])


def _read(checkpointer: Any, folder: Path, name: str) -> Checkpoint:
    arrays = dict(checkpointer.restore(folder.resolve() / name))
    if not np.array_equal(arrays.pop(_DIGEST), _digest(arrays)):
        raise ValueError("its digest is wrong")
    step = int(arrays.pop(_STEP, _step(name)))  # older versions didn't save it
    if step != _step(name):
        raise ValueError(f"it is that of step {step}")
    return Checkpoint(name, step, arrays)


def _digest(arrays: Arrays) -> np.ndarray:
    digest = hashlib.sha256()
    for name in sorted(arrays):
        digest.update(f"{name} {arrays[name].dtype} {arrays[name].shape}".encode())
        digest.update(np.ascontiguousarray(arrays[name]).tobytes())
    return np.frombuffer(digest.digest(), np.uint8)


def _reason(error: Exception) -> str:
    """Returns the system's own words for an error of the disk, whoever raised it; else the first line."""
    code = re.search(r"os_error_code='(\d+)'", str(error))
    number = int(code[1]) if code else getattr(error, "errno", None)
    return os.strerror(number) if number else f"{type(error).__name__}: {error}".splitlines()[0]


@contextmanager
def _refusals(folder: Path, step: int) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise RunError(f"the checkpoint of step {step} can't be saved in {folder}: {_reason(error)}.") from error


@contextmanager
def _orbax() -> Iterator[Any]:
    """Gives a checkpointer that keeps quiet: it logs each file that it writes, and several tracebacks of an error."""
    try:
        import orbax.checkpoint
    except ImportError as error:
        raise ImportError("checkpoints need orbax: pip install 'principalflow[reproduce]'.") from error
    logger, nothing = logging.getLogger("absl"), logging.Filter()
    nothing.filter = lambda record: False
    hook = sys.unraisablehook
    logger.addFilter(nothing)
    # Where one write fails, its threads find that nobody waits for the others any more.
    sys.unraisablehook = lambda raised: None if "loop is closed" in str(raised.exc_value) else hook(raised)
    try:
        yield orbax.checkpoint.StandardCheckpointer()
    finally:
        sys.unraisablehook = hook
        logger.removeFilter(nothing)
