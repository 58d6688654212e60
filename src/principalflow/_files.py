"""Files and folders that are there whole or not at all, and outlast a power cut; and JSON in them."""

import json
import math
import numbers
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from principalflow import _checks


@contextmanager
def whole(path: Path, unfinished: str) -> Iterator[Path]:
    """Gives where to write a file or folder, which takes the place of `path` once the block has ended without an error.

    Until then it has the other name, and after an error it is removed.
    """
    temporary = path.with_name(unfinished)
    # What a killed process left, or a link: removed and made anew, nothing is written through it.
    _remove(temporary)
    try:
        yield temporary
        put(temporary, path)
    except BaseException:
        _remove(temporary)
        raise


def put(finished: Path, path: Path) -> None:
    """Puts a file or folder that is whole in the place of another one."""
    sync([*finished.rglob("*"), finished])
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    os.replace(finished, path)
    sync([path.parent])


def sync(items: Iterable[Path]) -> None:
    """Makes files, and the names in folders, outlast a power cut."""
    for item in items:
        try:
            handle = os.open(item, os.O_RDONLY)
        except PermissionError:  # Windows opens no folders, and needs no such call for them
            continue
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def write_json(path: Path, content: Any) -> None:
    """Writes a JSON file whole or not at all."""
    write_text(path, json.dumps(plain(content), indent=2) + "\n", unfinished(path.name))


def write_text(path: Path, text: str, temporary_name: str) -> None:
    """Writes a file whole or not at all; until it is whole it has the other name."""
    with whole(path, temporary_name) as temporary, temporary.open("x", encoding="utf-8") as file:
        file.write(text)


def read_json(path: Path) -> dict[str, Any]:
    """Returns the JSON object that a file holds.

    Raises:
        OSError: If there is no file, or none that may be read.
        ValueError: If it holds something else.
    """
    return parsed(read_bytes(path))


def read_bytes(path: Path) -> bytes:
    """Returns what is in a file; raises a ValueError for what is none, since to read from a pipe would be to wait."""
    _checks.regular_file("it", path)
    return path.read_bytes()


def parsed(text: bytes | str) -> dict[str, Any]:
    """Returns a JSON object in which no key is given twice; raises a ValueError for anything else."""
    try:
        content = json.loads(text, object_pairs_hook=_once)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if not isinstance(content, dict):
        raise ValueError(f"it must be a JSON object, got a {type(content).__name__}")
    return content


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Returns a JSON object in which no key hides another."""
    content = dict(pairs)
    if len(content) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in content if keys.count(key) > 1)
        raise ValueError(f"it has the key {_checks.shown(twice)} twice")
    return content


def unfinished(name: str) -> str:
    """Returns what a file is called until it is whole."""
    return f"{name}.tmp"


def plain(value: Any, name: str = "content") -> Any:
    """Returns what JSON has a form for: numbers that are not finite become null, arrays lists, paths text.

    Raises:
        ValueError: If there is something else in it; the message has its place, which begins with `name`.
    """
    try:
        return _plain(value, name)
    except RecursionError as error:
        raise ValueError(f"{name} is nested too deeply, or holds itself.") from error


def _plain(value: Any, name: str) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, (str, os.PathLike)):
        return _plain_text(value)
    if isinstance(value, numbers.Real):
        return _plain_number(value, name)
    if isinstance(value, Mapping):
        return _plain_mapping(value, name)
    if isinstance(value, (list, tuple)):
        return [_plain(item, f"{name}[{i}]") for i, item in enumerate(value)]
    if hasattr(value, "tolist"):  # arrays and numbers of NumPy, JAX and PyTorch
        return _plain(value.tolist(), name)
    kinds = "a number, text, None, a path, or an array, list or mapping of these"
    raise ValueError(f"{name} must be {kinds}, got a {type(value).__name__}.")


def _plain_number(value: Any, name: str) -> int | float | None:
    try:
        number = float(value)
    except OverflowError as error:
        raise ValueError(f"{name} must be within the range of float64, got {_checks.shown(value)}.") from error
    if isinstance(value, numbers.Integral):
        return int(value)
    return number if math.isfinite(number) else None


def _plain_text(value: Any) -> str:
    """Returns text that UTF-8 can hold: file names of other encodings are not."""
    return str(value).encode(errors="backslashreplace").decode()


def _plain_mapping(value: Mapping[Any, Any], name: str) -> dict[str, Any]:
    content = {}
    for key, item in value.items():
        text = _plain_text(key)
        if not isinstance(key, (str, int, float)) or text in content:
            raise ValueError(f"{name} must have names of text or numbers, each once, got {_checks.shown(key)}.")
        content[text] = _plain(item, f"{name}[{_checks.shown(key)}]")
    return content
