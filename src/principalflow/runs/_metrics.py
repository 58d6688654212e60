"""The metrics of a run: a file of JSON lines that only grows, with a digest of all that is in it."""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from principalflow import _files
from principalflow.runs._errors import RunError, warn

Row = Mapping[str, Any]

# The arrays of a checkpoint that say how long the file was, and its SHA-256 up to there.
STATE = _LENGTH, _DIGEST = "metrics_length", "metrics_digest"


class Metrics:
    """The open file; a torn last line is removed with a `RunWarning`."""

    def __init__(self, path: Path):
        self._path = path
        content = path.read_bytes() if path.exists() else b""
        self._length = content.rfind(b"\n") + 1
        if self._length < len(content):
            os.truncate(path, self._length)
            warn(f"the last line of {path} was torn and is removed.", stacklevel=5)
        self._digest = hashlib.sha256(content[: self._length])
        # Without a buffer: what could not be written must not be written later.
        self._file = path.open("ab", buffering=0)

    def append(self, rows: Sequence[Row]) -> None:
        """Appends one line for each row: all of them, or none where the disk is full."""
        content = b"".join(_line(row, f"rows[{i}]") for i, row in enumerate(rows))
        written = 0
        try:
            while written < len(content):
                written += self._file.write(content[written:])
        except BaseException:
            self._file.truncate(self._length)
            raise
        self._length += len(content)
        self._digest.update(content)

    def state(self) -> dict[str, np.ndarray]:
        """Makes what was appended outlast a power cut; returns arrays with which `go_back` finds this place."""
        os.fsync(self._file.fileno())
        return {_LENGTH: np.array(self._length), _DIGEST: np.frombuffer(self._digest.digest(), np.uint8)}

    def objection(self, state: Mapping[str, Any]) -> str:
        """Returns why `go_back` can't go to where `state` was returned; nothing if it can."""
        content = self._path.read_bytes()
        length, digest = int(state[_LENGTH]), state.get(_DIGEST)  # older versions saved no digest
        if length > len(content):
            return "the metrics file is shorter than when it was saved"
        if digest is not None and hashlib.sha256(content[:length]).digest() != bytes(digest):
            return "the metrics file is not what it was when it was saved"
        return ""

    def go_back(self, state: Mapping[str, Any]) -> None:
        """Drops what was appended since `state` was returned; everything if it is empty."""
        self._length = int(state.get(_LENGTH, 0))
        self._file.truncate(self._length)
        self._digest = hashlib.sha256(self._path.read_bytes())

    def close(self) -> None:
        """Makes what was appended outlast a power cut, and closes the file."""
        try:
            os.fsync(self._file.fileno())
        finally:
            self._file.close()


def read_rows(path: Path) -> Iterator[dict[str, Any]]:
    """Yields the rows of a metrics file; a torn last line is left out with a `RunWarning`."""
    try:
        lines = _files.read_bytes(path).split(b"\n")
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        raise RunError(f"{path} can't be read: {error}.") from error
    for number, line in enumerate(lines, 1):
        last = number == len(lines)
        if last and not line:
            return
        try:
            if last:
                raise ValueError("it has no end")
            yield _files.parsed(line)
        except ValueError as error:
            if number < len(lines) - 1:
                raise RunError(f"line {number} of {path} can't be read: {error}.") from error
            warn(f"line {number} of {path}, the last, is torn and left out.", stacklevel=4)


def _line(row: Row, name: str) -> bytes:
    if not isinstance(row, Mapping):
        raise ValueError(f"{name} must be a mapping from names to values, got a {type(row).__name__}.")
    return json.dumps(_files.plain(row, name), separators=(",", ":")).encode() + b"\n"
