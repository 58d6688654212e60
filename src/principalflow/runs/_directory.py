"""A run directory: `config.json`, `metrics.jsonl`, `status.json` and `checkpoints/`, owned by one process at a time."""

import json
import os
import time
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
from filelock import FileLock, Timeout

from principalflow import _checks
from principalflow.runs import _checkpoints, _files

Status = Literal["running", "done", "diverged", "interrupted"]
Row = Mapping[str, Any]

CONFIG, METRICS, STATUS, CHECKPOINTS, LOCK = "config.json", "metrics.jsonl", "status.json", "checkpoints", "lock"

# The array of a checkpoint that says how long the metrics file was.
_LENGTH = "metrics_length"


class RunError(RuntimeError):
    """A run directory can't be used as asked."""


class RunWarning(UserWarning):
    """A run directory was damaged, and something of it was left out."""


class Run:
    """An open run directory; made by `create` and `reopen`, and a context manager.

    Leaving the context closes the run as "done", or as "interrupted" by an exception.

    Attributes:
        path: The directory.
        config: What the run was made with.
    """

    def __init__(self, path: Path, config: Mapping[str, Any], lock: Any):
        self.path, self.config, self._lock = path, dict(config), lock
        self._metrics = (path / METRICS).open("ab")
        self._started, self._open = time.time(), True
        self._write_status("running", "")

    def append(self, *rows: Row) -> None:
        """Appends rows to the metrics, one JSON line each, and hands them to the operating system at once.

        Numbers that are not finite are written as null.
        """
        if not self._open:
            raise RunError(f"{self.path} is closed.")
        lines = [json.dumps(_files.plain(row), separators=(",", ":")) + "\n" for row in rows]
        self._metrics.write("".join(lines).encode())
        self._metrics.flush()

    def checkpoint(self, step: int, arrays: Mapping[str, Any]) -> None:
        """Saves named arrays as the checkpoint of `step`: what was appended until now will not be lost."""
        os.fsync(self._metrics.fileno())
        length = np.array(self._metrics.tell())
        _checkpoints.save(self.path / CHECKPOINTS, _checks.whole("step", step, 0), {**arrays, _LENGTH: length})

    def restore(self) -> tuple[int, dict[str, np.ndarray]] | None:
        """Goes back to the newest checkpoint, dropping what was appended after it.

        A checkpoint that can't be read is passed over with a `RunWarning`, for the one before it.

        Returns:
            Its step and arrays; None if there is none, and then the metrics are empty.

        Raises:
            RunError: If there are checkpoints but none can be read. Nothing is changed then.
        """

        def usable(arrays: Mapping[str, Any]) -> bool:
            return int(arrays[_LENGTH]) <= self._metrics.tell()

        self._metrics.seek(0, os.SEEK_END)
        try:
            found = _checkpoints.restore(self.path / CHECKPOINTS, usable, lambda text: warn(text, stacklevel=5))
        except ValueError as error:
            raise RunError(f"{error}. Mend them, or remove them all to start anew.") from error
        step, arrays = found or (-1, {_LENGTH: 0})
        self._metrics.truncate(int(arrays[_LENGTH]))
        self._metrics.seek(0, os.SEEK_END)
        _checkpoints.clear_newer(self.path / CHECKPOINTS, step)
        return found and (step, {name: array for name, array in arrays.items() if name != _LENGTH})

    def close(self, status: Status = "done", message: str = "") -> None:
        """Ends the run with a status and a sentence, and lets others open it."""
        if self._open:
            _checks.one_of("status", status, ("running", "done", "diverged", "interrupted"))
            self._open = False
            try:
                os.fsync(self._metrics.fileno())
                self._metrics.close()
                self._write_status(status, message)
            finally:
                self._lock.release()

    def __enter__(self) -> "Run":
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self.close("done" if kind is None else "interrupted", "" if kind is None else f"{kind.__name__}: {error}")

    def _write_status(self, status: Status, message: str) -> None:
        from principalflow import __version__

        content = {"status": status, "message": message, "process": os.getpid(), "started": self._started}
        content |= {"seconds": time.time() - self._started, "version": __version__}
        _files.write_json(self.path / STATUS, content)


def create(path: str | os.PathLike, config: Mapping[str, Any]) -> Run:
    """Makes a run directory and opens it.

    Args:
        path: Where; a folder that doesn't exist yet, or is empty.
        config: What the run is made with; written to `config.json`.

    Returns:
        The `Run`.

    Raises:
        RunError: If there is something already, or another process uses it.

    Example:
        >>> import tempfile, principalflow as pf
        >>> with pf.runs.create(tempfile.mkdtemp(), {"learning_rate": 0.1}) as run:
        ...     run.append({"step": 0, "loss": 2.5}, {"step": 1, "loss": 1.5})
        >>> pf.runs.load(run.path)
           step  loss
        0     0   2.5
        1     1   1.5
    """
    path = Path(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"{path} can't be made a run directory: {error}") from error
    lock = _locked(path)
    # A process that ended while it made a run may have left the beginning of a config.
    if others := [item.name for item in path.iterdir() if item.name not in (LOCK, _files.unfinished(CONFIG))]:
        lock.release()
        kind = "is a run already" if CONFIG in others else f"isn't empty: it has {', '.join(sorted(others)[:3])}"
        raise RunError(f"{path} {kind}; choose another folder, or continue a run with reopen.")
    _files.write_json(path / CONFIG, config)
    return Run(path, config, lock)


def reopen(path: str | os.PathLike) -> Run:
    """Opens an existing run directory to go on with it.

    Args:
        path: The directory.

    Returns:
        The `Run`; call `restore` to go back to its last checkpoint.

    Raises:
        RunError: If it is no run directory, or another process uses it.

    Example:
        >>> import tempfile, principalflow as pf
        >>> run = pf.runs.create(tempfile.mkdtemp(), {"learning_rate": 0.1})
        >>> run.close("interrupted")
        >>> with pf.runs.reopen(run.path) as again:
        ...     print(again.config)
        {'learning_rate': 0.1}
    """
    path = Path(path)
    config, lock = read_config(path), _locked(path)
    _drop_torn_line(path / METRICS)
    return Run(path, config, lock)


def read_config(path: Path) -> dict[str, Any]:
    """Returns the config of a run directory."""
    try:
        return json.loads((path / CONFIG).read_text())
    except FileNotFoundError as error:
        raise RunError(f"{path} is not a run directory: it has no {CONFIG}.") from error
    except json.JSONDecodeError as error:
        raise RunError(f"{path / CONFIG} can't be read: {error}.") from error


def read_status(path: Path) -> dict[str, Any]:
    """Returns the status of a run directory; a run whose process is gone counts as interrupted."""
    try:
        status = json.loads((path / STATUS).read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        status = {"status": "interrupted", "message": "it has no status"}
    if status["status"] == "running" and not is_locked(path):
        status |= {"status": "interrupted", "message": "its process ended without a word"}
    return status


def read_rows(path: Path) -> Iterable[dict[str, Any]]:
    """Yields the rows of the metrics; a torn last line is left out with a `RunWarning`."""
    lines = (path / METRICS).read_bytes().split(b"\n") if (path / METRICS).exists() else [b""]
    for number, line in enumerate(lines, 1):
        last = number == len(lines)
        if last and not line:
            return
        try:
            if last:
                raise ValueError("it has no end")
            yield json.loads(line)
        except ValueError as error:
            if number < len(lines) - 1:
                raise RunError(f"line {number} of {path / METRICS} can't be read: {error}.") from error
            warn(f"line {number} of {path / METRICS}, the last, is torn and left out.", stacklevel=4)


def is_locked(path: Path) -> bool:
    """Whether a process has the run open."""
    try:
        with FileLock(path / LOCK, timeout=0):
            return False
    except Timeout:
        return True
    except OSError:  # where nothing can be written, nobody writes a run
        return False


def warn(text: str, stacklevel: int) -> None:
    """Warns that a run directory is damaged."""
    warnings.warn(text, RunWarning, stacklevel=stacklevel)


def _locked(path: Path) -> Any:
    """Returns the lock of a directory, taken; the system frees it when the process ends, however it does."""
    # Whoever only asks whether it is taken, takes it for a moment: hence the wait.
    lock = FileLock(path / LOCK, timeout=0.3, thread_local=False)
    try:
        return lock.acquire().lock
    except Timeout as error:
        raise RunError(f"{path} is in use by another process{_owner(path)}.") from error
    except OSError as error:
        raise RunError(f"{path} can't be written to: {error.strerror}.") from error


def _drop_torn_line(metrics: Path) -> None:
    if not metrics.exists():
        return
    content = metrics.read_bytes()
    whole = content.rfind(b"\n") + 1
    if whole < len(content):
        os.truncate(metrics, whole)
        warn(f"the last line of {metrics} was torn and is removed.", stacklevel=4)


def _owner(path: Path) -> str:
    try:
        return f" ({json.loads((path / STATUS).read_text())['process']})"
    except (OSError, ValueError, KeyError):
        return ""
