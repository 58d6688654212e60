"""A run directory: config, metrics, iterates, status and checkpoints, owned by one process at a time."""

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout

from principalflow import _checks, _files
from principalflow._version import __version__
from principalflow.runs import _checkpoints, _iterates, _metrics
from principalflow.runs._errors import RunError, warn
from principalflow.runs._iterates import ITERATES, Iterates
from principalflow.runs._metrics import Metrics, Row
from principalflow.status import Status

STATUSES = tuple(map(str, (Status.RUNNING, Status.COMPLETED, Status.DIVERGED, Status.INTERRUPTED)))
_FORMER = {"done": Status.COMPLETED}  # as earlier versions wrote it

CONFIG, METRICS, STATUS, CHECKPOINTS, LOCK = "config.json", "metrics.jsonl", "status.json", "checkpoints", "lock"

# The arrays of a checkpoint that say how far metrics and iterates were.
_STATE = (*_metrics.STATE, *_iterates.STATE)


class Run:
    """An open run directory; made by `create` and `reopen`, and a context manager.

    Leaving the context closes the run as completed, or as interrupted by an exception.

    Attributes:
        path: The directory.
        config: What the run was made with.
    """

    def __init__(self, path: Path, config: Mapping[str, Any], lock: Any):
        self.path, self.config = path, dict(config)
        self._lock: Any = lock
        self._started, self._open = time.time(), True
        self._write_status(Status.RUNNING, "")
        self._metrics, self._iterates = Metrics(path / METRICS), Iterates(path / ITERATES)

    def append(self, *rows: Row) -> None:
        """Appends rows to the metrics, one JSON line each, and hands them to the operating system at once.

        Numbers that are not finite are written as null.

        Raises:
            ValueError: If a row is no mapping, or holds what JSON has no form for.
            RunError: If the run is closed.
            OSError: If the disk is full; no row is written then.
        """
        self._check_open()
        self._metrics.append(rows)

    def keep(self, step: int, theta: Any) -> None:
        """Keeps the flat parameters of a step, for `runs.iterates`.

        Raises:
            ValueError: If the step is no whole number, or the parameters are no vector of numbers as those before.
            RunError: If the run is closed.
            OSError: If the disk is full; nothing is kept then.
        """
        self._check_open()
        theta = _checkpoints.numbers("theta", theta)
        if theta.ndim != 1:
            raise ValueError(f"theta must be flat, got shape {theta.shape}.")
        self._iterates.append(_checks.whole("step", step, least=0, most=np.iinfo(np.int64).max), theta)

    def checkpoint(self, step: int, arrays: Mapping[str, Any]) -> None:
        """Saves named arrays as the checkpoint of `step`: what was appended and kept until now will not be lost.

        The last two are kept.

        Raises:
            ValueError: If the step is no whole number, or the arrays are no mapping from names to arrays of numbers.
            RunError: If the run is closed, or the checkpoint can't be written.
        """
        self._check_open()
        step = _checks.whole("step", step, least=0, most=np.iinfo(np.int64).max)
        arrays = _checkpoints.check(arrays, reserved=_STATE)
        _checkpoints.save(self.path / CHECKPOINTS, step, arrays | self._metrics.state() | self._iterates.state())

    def restore(self) -> tuple[int, dict[str, np.ndarray]] | None:
        """Goes back to the newest checkpoint, dropping what was appended and kept after it.

        A checkpoint that can't be read, or that the metrics file no longer begins as it did then, is passed over with a
        `RunWarning`, for the one before it; so is one from when more was kept.

        Returns:
            Its step and arrays; None if there is none, and then the metrics are empty.

        Raises:
            RunError: If the run is closed, or has checkpoints but none can be used. Nothing is changed then.
        """
        self._check_open()
        folder = self.path / CHECKPOINTS
        try:
            found = _checkpoints.restore(folder, self._objection, lambda text: warn(text, stacklevel=5))
        except ValueError as error:
            raise RunError(f"{error}. Restore what was changed, or remove all of {folder} to start anew.") from error
        for file in (self._metrics, self._iterates):
            file.go_back(found.arrays if found else {})
        _checkpoints.clear(folder, found)
        return found and (found.step, _without_state(found.arrays))

    def close(self, status: Status | str = Status.COMPLETED, message: str = "") -> None:
        """Ends the run with a status and a sentence, and lets others open it; a second call does nothing.

        Raises:
            ValueError: For an unknown status, or a message that is no text. The run stays open then.
        """
        if self._open:
            _checks.one_of("status", status, STATUSES)
            if not isinstance(message, str):
                raise ValueError(f"message must be text, got a {type(message).__name__}.")
            self._open = False
            try:
                self._metrics.close()
                self._write_status(Status(status), message)
            finally:
                self._lock.release()
                self._lock = None  # one that lives until Python ends complains then

    def __enter__(self) -> "Run":
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        ending = (Status.COMPLETED, "") if kind is None else (Status.INTERRUPTED, f"{kind.__name__}: {error}")
        self.close(*ending)

    def _objection(self, state: Mapping[str, Any]) -> str:
        return self._metrics.objection(state) or self._iterates.objection(state)

    def _check_open(self) -> None:
        if not self._open:
            raise RunError(f"{self.path} is closed.")

    def _write_status(self, status: Status, message: str) -> None:
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
        ValueError: If the path is none, or the config is no mapping or holds what JSON has no form for.
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
    path = _checks.path("path", path)
    if not isinstance(config, Mapping):
        raise ValueError(f"config must be a mapping from names to values, got a {type(config).__name__}.")
    content = _files.plain(config, "config")
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"{path} can't be made a run directory: {error}") from error
    with _taken(path) as lock:
        # A process that ended while it made a run may have left the beginning of a config.
        if others := [item.name for item in path.iterdir() if item.name not in (LOCK, _files.unfinished(CONFIG))]:
            kind = "is a run already" if CONFIG in others else f"isn't empty: it has {', '.join(sorted(others)[:3])}"
            raise RunError(f"{path} {kind}; choose another folder, or continue a run with reopen.")
        _files.write_json(path / CONFIG, content)
        _checkpoints.begin(path / CHECKPOINTS)
        return Run(path, config, lock)


def reopen(path: str | os.PathLike) -> Run:
    """Opens an existing run directory to go on with it.

    Args:
        path: The directory.

    Returns:
        The `Run`; call `restore` to go back to its last checkpoint.

    Raises:
        ValueError: If the path is none.
        RunError: If it is no run directory, another process uses it, or what it writes to is a link that leads
            elsewhere.

    Example:
        >>> import tempfile, principalflow as pf
        >>> run = pf.runs.create(tempfile.mkdtemp(), {"learning_rate": 0.1})
        >>> run.close("interrupted")
        >>> with pf.runs.reopen(run.path) as again:
        ...     print(again.config)
        {'learning_rate': 0.1}
    """
    path = _checks.path("path", path)
    config = read_config(path)
    with _taken(path) as lock:
        return Run(path, config, lock)


def read_config(path: Path) -> dict[str, Any]:
    """Returns the config of a run directory.

    Raises:
        RunError: If it is no run directory, or its config can't be read.
    """
    try:
        return _files.read_json(path / CONFIG)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise RunError(f"{path} is not a run directory: it has no {CONFIG}.") from error
    except (OSError, ValueError) as error:
        raise RunError(f"{path / CONFIG} can't be read: {error}.") from error


def read_status(path: Path) -> dict[str, Any]:
    """Returns the status of a run directory; a run whose process is gone counts as interrupted, as does damage."""
    try:
        status = _files.read_json(path / STATUS)
        word = status.get("status")
        status["status"] = _FORMER.get(word, word) if isinstance(word, str) else word
        if status["status"] not in STATUSES or not isinstance(status.get("message"), str):
            raise ValueError
    except FileNotFoundError:
        status = {"status": "interrupted", "message": "it has no status"}
    except (OSError, ValueError):
        status = {"status": "interrupted", "message": f"its {STATUS} can't be read"}
    if status["status"] == Status.RUNNING and not is_locked(path):
        status |= {"status": Status.INTERRUPTED, "message": "its process ended without a word"}
    return status | {"status": Status(status["status"])}


def last_checkpoint(path: Path) -> tuple[int, dict[str, np.ndarray]]:
    """Returns the step and the arrays of a run's newest checkpoint; one that can't be read is passed over.

    Raises:
        RunError: If there is none, or none that can be read.
    """
    try:
        found = _checkpoints.restore(path / CHECKPOINTS, lambda arrays: "", lambda text: warn(text, stacklevel=5))
    except ValueError as error:
        raise RunError(f"{error}.") from error
    if found is None:
        raise RunError(f"{path} has no checkpoint: it has not got so far, or it diverged before.")
    return found.step, _without_state(found.arrays)


def is_locked(path: Path) -> bool:
    """Whether a process has the run open."""
    if (path / LOCK).is_symlink():  # no run's; older versions of filelock would empty what it leads to
        return False
    try:
        with FileLock(path / LOCK, timeout=0):
            return False
    except Timeout:
        return True
    except OSError:  # where nothing can be written, nobody writes a run
        return False


def check_free(path: Path) -> None:
    """Raises a `RunError` if another process has the run open."""
    if is_locked(path):
        raise _in_use(path)


def _in_use(path: Path) -> RunError:
    process = read_status(path).get("process")
    return RunError(f"{path} is in use by another process{f' ({process})' if isinstance(process, int) else ''}.")


def _without_state(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: array for name, array in arrays.items() if name not in _STATE}


@contextmanager
def _taken(path: Path) -> Iterator[Any]:
    """Gives the lock of a directory, taken, to a run that is opened; frees it if that fails."""
    _refuse_others(path)
    # Whoever only asks whether it is taken, takes it for a moment: hence the wait.
    lock = FileLock(path / LOCK, timeout=0.3, thread_local=False)
    try:
        lock.acquire()  # the system frees it when the process ends, however it does
        yield lock
    except Timeout as error:
        raise _in_use(path) from error
    except OSError as error:
        lock.release()
        raise RunError(f"{path} can't be written to: {error.strerror}.") from error
    except BaseException:
        lock.release()
        raise


def _refuse_others(path: Path) -> None:
    """Raises where a run would write through a link, which leads elsewhere, or to what it did not make."""
    written = CONFIG, LOCK, METRICS, ITERATES, STATUS, _checkpoints.RECORD
    for name in (CHECKPOINTS, *written, *map(_files.unfinished, written)):
        item = path / name
        is_right = item.is_dir() if name == CHECKPOINTS else item.is_file()
        if item.is_symlink() or (item.exists() and not is_right):
            kind = "a link" if item.is_symlink() else "no folder" if name == CHECKPOINTS else "no file"
            raise RunError(f"{item} is {kind}, and a run writes only to what is its own: move it away.")
