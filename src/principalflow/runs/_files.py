"""Files that a power cut leaves whole."""

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np


def write_json(path: Path, content: Any) -> None:
    """Writes a file whole or not at all."""
    temporary = path.with_name(unfinished(path.name))
    with temporary.open("w") as file:
        file.write(json.dumps(plain(content), indent=2) + "\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    sync(path.parent)


def unfinished(name: str) -> str:
    """Returns what a file is called until it is whole."""
    return f"{name}.tmp"


def sync(path: Path) -> None:
    """Makes what is in a file or folder, and for a folder all below it, outlast a power cut."""
    below = [path, *path.rglob("*")] if path.is_dir() else [path]
    for item in below:
        try:
            handle = os.open(item, os.O_RDONLY)
        except PermissionError:  # Windows opens no folders, and needs no such call for them
            continue
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def plain(value: Any) -> Any:
    """Returns what JSON has a form for: numbers that are not finite become null, arrays lists, paths text."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):  # arrays and numbers of NumPy, JAX and PyTorch
        return plain(np.asarray(value).tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)
