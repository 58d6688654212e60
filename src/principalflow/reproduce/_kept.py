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

from principalflow.reproduce._result import this_code

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
    """Returns the path for a training of these settings, a dataclass; None where none are kept.

    What other code made is removed: no run takes it any more.
    """
    folder, code = _FOLDER.get(), this_code()["code"]
    if folder is None:
        return None
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        if not old.name.startswith((code, ".")):
            shutil.rmtree(old, ignore_errors=True) if old.is_dir() else old.unlink(missing_ok=True)
    content = json.dumps(dataclasses.asdict(settings), sort_keys=True)
    return folder / f"{code}-{hashlib.sha256(content.encode()).hexdigest()[:16]}{suffix}"
