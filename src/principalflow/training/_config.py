"""Config files, which may come from anywhere."""

import json
import tomllib
from pathlib import Path
from typing import Any

from principalflow import _checks

_LARGEST = 2**20


def read_config(path: Path) -> dict[str, Any]:
    """Returns the keys and values in a TOML or JSON file.

    Raises:
        ValueError: For what can't be read, or holds none.
    """
    try:
        content = _parsed(path)
    except OSError as error:
        raise ValueError(f"config {path} can't be read: {error.strerror}.") from error
    except RecursionError as error:
        raise ValueError(f"config {path} can't be read: its values are nested too deeply.") from error
    except ValueError as error:
        raise ValueError(f"config {path} can't be read: {str(error).removesuffix('.')}.") from error
    if not isinstance(content, dict) or not content:
        got = "none" if content == {} else f"a {type(content).__name__}"
        raise ValueError(f"config {path} must hold keys and values, got {got}.")
    return content


def _parsed(path: Path) -> Any:
    size = path.stat().st_size
    _checks.regular_file("it", path)
    if size > _LARGEST:
        raise ValueError(f"it must have at most {_LARGEST} bytes, got {size}")
    text = path.read_text(encoding="utf-8")
    return json.loads(text, object_pairs_hook=_once) if path.suffix == ".json" else tomllib.loads(text)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object in which no key hides another, as TOML has it."""
    content = dict(pairs)
    if len(content) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in content if keys.count(key) > 1)
        raise ValueError(f"it has the key {_checks.shown(twice)} twice")
    return content
