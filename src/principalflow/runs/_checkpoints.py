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
_DIGEST = "digest"


def save(folder: Path, step: int, arrays: Arrays) -> None:
    """Saves the arrays as the checkpoint of `step`, which has none yet, and removes those that are too old."""
    arrays = {name: np.asarray(array) for name, array in arrays.items()}
    path = _path(folder, step)
    checkpointer = _orbax().StandardCheckpointer()
    checkpointer.save(path, {**arrays, _DIGEST: _digest(arrays)})
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
    """Returns the newest checkpoint that is whole and `usable`, and says which were not; None if there is none at all.

    Raises:
        ValueError: If there are some, but none that can be used.
    """
    saved, reason = steps(folder), ""
    checkpointer = _orbax().StandardCheckpointer() if saved else None
    for step in saved:
        try:
            arrays = _read(checkpointer, _path(folder, step))
            if usable(arrays):
                return step, arrays
            reason = "the metrics file is shorter than when it was saved"
        except Exception as error:  # whatever orbax and its storage make of a damaged file
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
        say(f"the checkpoint of step {step} in {folder} can't be used: {reason}.")
    if saved:
        raise ValueError(f"none of the checkpoints in {folder} can be used; the newest, because {reason}")
    return None


def _read(checkpointer: Any, path: Path) -> Arrays:
    arrays = dict(checkpointer.restore(path))
    if not np.array_equal(arrays.pop(_DIGEST), _digest(arrays)):
        raise ValueError("its digest is wrong")
    return arrays


def clear_newer(folder: Path, step: int) -> None:
    """Removes checkpoints after `step`, and what an interrupted save left."""
    for path in folder.iterdir() if folder.is_dir() else []:
        if path.is_dir() and (not path.name.isdigit() or int(path.name) > step):
            shutil.rmtree(path)


def _path(folder: Path, step: int) -> Path:
    return folder.resolve() / f"{step:010d}"


def _digest(arrays: Arrays) -> np.ndarray:
    digest = hashlib.sha256()
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
