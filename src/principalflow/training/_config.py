"""Config files, which may come from anywhere."""

import tomllib
from pathlib import Path
from typing import Any

from principalflow import _checks
from principalflow._files import parsed

_LARGEST = 2**20


def read_options(path: Path) -> dict[str, Any]:
    """Returns the keys and values in a TOML or JSON file.

    Raises:
        ValueError: For what can't be read, or holds none.
    """
    try:
        content = _parsed(path)
    except OSError as error:
        raise ValueError(f"config {path} can't be read: {error.strerror}.") from error
    except RecursionError as error:
        raise ValueError(f"config {path} can't be read: it is nested too deeply.") from error
    except ValueError as error:
        raise ValueError(f"config {path} can't be read: {str(error).removesuffix('.')}.") from error
    if not content:
        raise ValueError(f"config {path} must hold keys and values, got none.")
    return content


def _parsed(path: Path) -> dict[str, Any]:
    size = path.stat().st_size
    _checks.regular_file("it", path)
    if size > _LARGEST:
        raise ValueError(f"it must have at most {_LARGEST} bytes, got {size}")
    text = path.read_text(encoding="utf-8")
    return parsed(text) if path.suffix == ".json" else tomllib.loads(text)
