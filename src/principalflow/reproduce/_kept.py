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
from principalflow.runs._directory import CONFIG, is_locked

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
        if old.name.startswith(this_code()["code"]) or any(is_locked(run.parent) for run in old.glob(f"*/{CONFIG}")):
            continue
        shutil.rmtree(old, ignore_errors=True) if old.is_dir() else old.unlink(missing_ok=True)
