"""Where the trainings of a run are kept, by their settings and the code that made them."""

import contextlib
import dataclasses
import hashlib
import json
import shutil
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from principalflow.reproduce._result import this_code

_LOCK = ".lock"
_FOLDER: ContextVar[Path | None] = ContextVar("folder", default=None)


@contextlib.contextmanager
def trainings_in(folder: Path | None) -> Iterator[None]:
    """Keeps the trainings that are made meanwhile in a folder, and takes what is there; None for neither."""
    token = _FOLDER.set(folder)
    try:
        yield
    finally:
        _FOLDER.reset(token)


def place(settings: Any, suffix: str = "") -> Path | None:
    """Returns the path for a training of these settings, a dataclass; None where none are kept."""
    folder = _FOLDER.get()
    if folder is None:
        return None
    folder.mkdir(parents=True, exist_ok=True)
    content = json.dumps(dataclasses.asdict(settings), sort_keys=True)
    return folder / f"{this_code()['code']}-{hashlib.sha256(content.encode()).hexdigest()[:16]}{suffix}"


def clear(folder: Path) -> None:
    """Removes what other code made, which no run takes any more, but for what is in use."""
    for old in folder.iterdir() if folder.is_dir() else []:
        ours = old.name.lstrip(".").startswith(this_code()["code"])  # with a dot while it is being written
        if not ours and old.suffix != _LOCK:
            with contextlib.suppress(Timeout), lock(old, timeout=0):
                shutil.rmtree(old, ignore_errors=True) if old.is_dir() else old.unlink(missing_ok=True)
                Path(f"{old}{_LOCK}").unlink(missing_ok=True)


def lock(path: Path, timeout: float = -1) -> FileLock:
    """Returns the lock of a training, for whoever makes or removes it; others wait for so many seconds, or for ever."""
    return FileLock(f"{path}{_LOCK}", timeout=timeout)
