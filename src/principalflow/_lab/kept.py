"""Where the trainings of a run are kept, by their settings and the versions that made them."""

import contextlib
import dataclasses
import shutil
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from principalflow._lab.stamp import digest, stamp

# Of trainings, which experiments share: raised where a change of the code gives other ones of the same settings.
_SCHEMA = 1
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
    return folder / f"{_made_by()}-{digest(dataclasses.asdict(settings))}{suffix}"


def clean(folder: Path) -> list[Path]:
    """Removes trainings that other versions made, which no run takes any more, but for what is in use; returns them."""
    removed = []
    for old in sorted(folder.iterdir()) if folder.is_dir() else []:
        ours = old.name.lstrip(".").startswith(_made_by())  # with a dot while it is being written
        if not ours and old.suffix != _LOCK:
            with contextlib.suppress(Timeout), lock(old, timeout=0):
                shutil.rmtree(old) if old.is_dir() else old.unlink(missing_ok=True)
                Path(f"{old}{_LOCK}").unlink(missing_ok=True)
                removed.append(old)
    return removed


def lock(path: Path, timeout: float = -1) -> FileLock:
    """Returns the lock of a training, for whoever makes or removes it; others wait for so many seconds, or for ever."""
    return FileLock(f"{path}{_LOCK}", timeout=timeout)


def _made_by() -> str:
    return digest(stamp(_SCHEMA))
