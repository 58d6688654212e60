"""Checkpoints: named arrays at a step, written whole or not at all, and checked when they are read."""

import hashlib
import logging
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from principalflow.runs import _files

Arrays = Mapping[str, Any]

# The newest, and one to fall back to.
_KEPT = 2
_DIGEST = "sha256"


def save(folder: Path, step: int, arrays: Arrays) -> None:
    """Saves the arrays as the checkpoint of `step`, and removes those that are too old."""
    arrays = {name: np.asarray(array) for name, array in arrays.items()}
    path = _path(folder, step)
    checkpointer = _orbax().StandardCheckpointer()
    checkpointer.save(path, {**arrays, _DIGEST: _digest(arrays)}, force=True)
    checkpointer.wait_until_finished()
    _files.sync(path)
    _files.sync(folder)
    for old in steps(folder)[_KEPT:]:
        shutil.rmtree(_path(folder, old))


def steps(folder: Path) -> list[int]:
    """Returns the steps that have a checkpoint, newest first."""
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    return sorted((int(name) for name in names if name.isdigit()), reverse=True)


def restore(folder: Path, usable: Callable[[Arrays], bool], say: Callable[[str], None]) -> tuple[int, Arrays] | None:
    """Returns the newest checkpoint that is whole and `usable`, and says which were not; None if there is none."""
    for step in steps(folder):
        try:
            arrays = _read(_path(folder, step))
            if usable(arrays):
                return step, arrays
            reason = "it belongs to other metrics"
        except Exception as error:  # whatever orbax and its storage make of a damaged file
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
        say(f"the checkpoint of step {step} in {folder} can't be used, and the one before it is tried. {reason}")
    return None


def _read(path: Path) -> Arrays:
    arrays = dict(_orbax().StandardCheckpointer().restore(path))
    if not np.array_equal(arrays.pop(_DIGEST), _digest(arrays)):
        raise ValueError("its digest is wrong")
    return arrays


def clear_newer(folder: Path, step: int) -> None:
    """Removes checkpoints after `step`, and what an interrupted save left."""
    for path in folder.iterdir() if folder.is_dir() else []:
        if not path.name.isdigit() or int(path.name) > step:
            shutil.rmtree(path)


def _path(folder: Path, step: int) -> Path:
    return folder.resolve() / f"{step:010d}"


def _digest(arrays: Arrays) -> np.ndarray:
    digest = hashlib.new(_DIGEST)
    for name in sorted(arrays):
        digest.update(f"{name} {arrays[name].dtype} {arrays[name].shape}".encode())
        digest.update(np.ascontiguousarray(arrays[name]).tobytes())
    return np.frombuffer(digest.digest(), np.uint8)


def _orbax() -> Any:
    try:
        import orbax.checkpoint
    except ImportError as error:
        raise ImportError("checkpoints need orbax: pip install 'principalflow[reproduce]'.") from error
    logging.getLogger("absl").setLevel(logging.ERROR)  # it reports every file that it writes
    return orbax.checkpoint
