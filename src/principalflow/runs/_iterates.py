"""The parameters that a run keeps on its way: rows of a step and its parameters, in one file of NumPy's that grows."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from principalflow import _checks
from principalflow.runs._errors import RunError

ITERATES = "iterates.npy"
# The array of a checkpoint that says how many rows there were.
STATE = ("iterates_length",)


class Kept(NamedTuple):
    """The parameters that a run kept.

    Attributes:
        steps: The steps before which they were kept.
        thetas: The flat parameters, a row for each; read from the file where they are looked at.
    """

    steps: np.ndarray
    thetas: np.ndarray


def iterates(path: str | os.PathLike) -> Kept:
    """Returns the parameters that a run kept on its way, as `training.Options(keep_every=...)` has it do.

    Args:
        path: A run directory.

    Returns:
        `Kept`: the steps, and a row of flat parameters for each.

    Raises:
        ValueError: If the path is none.
        RunError: If it is no run that kept any, or the file is damaged.

    Example:
        >>> import tempfile
        >>> import principalflow as pf
        >>> options = pf.training.Options(data="iris", hidden=(4,), learning_rate=0.1, steps=20, keep_every=10)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = pf.training.run(options, folder, progress=False)
        ...     steps, thetas = pf.runs.iterates(folder)
        >>> steps, thetas.shape
        (array([ 0, 10, 20]), (3, 35))
    """
    rows = _read(_checks.path("path", path) / ITERATES)
    return Kept(np.array(rows["step"]), rows["theta"])


class Iterates:
    """The file of an open run. Its header says how many rows count: what lies behind them is written over."""

    def __init__(self, path: Path):
        self._path, self._length = path, 0
        self._dtype: Any = None
        if path.exists():
            rows = _read(path)
            self._length, self._dtype = len(rows), rows.dtype

    def append(self, step: int, theta: np.ndarray) -> None:
        """Appends a row."""
        dtype = np.dtype([("step", "<i8"), ("theta", theta.dtype, theta.shape)])
        if self._dtype not in (None, dtype):
            raise ValueError(f"theta must be as before, {self._dtype['theta']}, got {dtype['theta']}.")
        row = np.array([(step, theta)], dtype)
        with self._path.open("r+b" if self._length else "wb") as file:
            _write_header(file, dtype, self._length)
            file.seek(self._length * dtype.itemsize, os.SEEK_CUR)
            file.write(row.tobytes())
            file.flush()
            _write_header(file, dtype, self._length + 1)
        self._length, self._dtype = self._length + 1, dtype

    def state(self) -> dict[str, np.ndarray]:
        """Makes what was appended outlast a power cut; returns the array with which `go_back` finds this place."""
        if self._length:
            with self._path.open("rb") as file:
                os.fsync(file.fileno())
        return {STATE[0]: np.array(self._length)}

    def objection(self, state: Mapping[str, Any]) -> str:
        """Returns why `go_back` can't go to where `state` was returned; nothing if it can."""
        return "fewer iterates are kept than when it was saved" if _length(state) > self._length else ""

    def go_back(self, state: Mapping[str, Any]) -> None:
        """Drops what was appended since `state` was returned; everything if it is empty."""
        self._length = _length(state)
        if not self._length:
            self._path.unlink(missing_ok=True)
            self._dtype = None
        else:
            with self._path.open("r+b") as file:
                _write_header(file, self._dtype, self._length)
                file.truncate(file.tell() + self._length * self._dtype.itemsize)


def _length(state: Mapping[str, Any]) -> int:
    return int(state.get(STATE[0], 0))  # older versions kept none


def _write_header(file: Any, dtype: np.dtype, length: int) -> None:
    """Writes the header, as long for any length, and stays behind it."""
    file.seek(0)
    content = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": (length,)}
    np.lib.format.write_array_header_1_0(file, content)


def _read(path: Path) -> Any:
    try:
        _checks.regular_file("it", path)
        rows = np.load(path, mmap_mode="r", allow_pickle=False)
        if rows.dtype.names != ("step", "theta") or rows.ndim != 1 or rows["theta"].ndim != 2:
            raise ValueError("it doesn't hold steps and parameters")
    except FileNotFoundError as error:
        raise RunError(f"{path.parent} is no run that kept its iterates: it has no {path.name}.") from error
    except Exception as error:  # whatever NumPy makes of a damaged header
        raise RunError(f"{path} can't be read: {error}.") from error
    return rows
