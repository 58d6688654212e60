"""Run directories as tables."""

import os
from pathlib import Path
from typing import Any

import pandas

from principalflow import _checks
from principalflow.runs import _directory
from principalflow.runs._directory import CONFIG, METRICS
from principalflow.runs._errors import RunError
from principalflow.runs._metrics import read_rows


def find(path: str | os.PathLike) -> list[Path]:
    """Returns the run directories at `path`: itself, or those right below it, as a sweep leaves them, by name.

    Raises:
        ValueError: If the path is none.
        RunError: If there are none, or they can't be read.
    """
    path = _checks.path("path", path)
    try:
        if (path / CONFIG).exists():
            return [path]
        runs = sorted(item.parent for item in path.glob(f"*/{CONFIG}"))
    except OSError as error:
        raise RunError(f"{path} can't be read: {error.strerror}.") from error
    if not runs:
        raise RunError(f"{path} is not a run directory, and has none right below it.")
    return runs


def load(path: str | os.PathLike) -> pandas.DataFrame:
    """Returns the metrics of a run, or of the runs of a sweep, as a pandas DataFrame.

    Args:
        path: A run directory, or a folder of them.

    Returns:
        One row for each recorded step, NaN where a column was not recorded. For one run, `frame.attrs` has `config`,
        `status`, `message` and `path`; for several, a first column `run` has their names, and `attrs["runs"]` these
        attributes for each.

    Raises:
        ValueError: If the path is none.
        RunError: If there is no run, or its metrics are damaged before their last line; a torn last line is left out
            with a `RunWarning`.

    Example:
        >>> import tempfile, principalflow as pf
        >>> with pf.runs.create(tempfile.mkdtemp(), {"seed": 0}) as run:
        ...     run.append({"step": 0, "loss": 2.5})
        >>> frame = pf.runs.load(run.path)
        >>> str(frame.attrs["status"]), frame.attrs["config"]
        ('completed', {'seed': 0})
    """
    paths = find(path)
    if paths == [Path(path)]:
        return _frame(paths[0])
    frames = {item.name: _frame(item) for item in paths}
    attrs = {name: dict(frame.attrs) for name, frame in frames.items()}
    for name, frame in frames.items():
        frame.attrs.clear()
        if "run" in frame:
            raise RunError(f"{paths[0].parent / name} has a column run, which in a table of several has their names.")
        frame.insert(0, "run", name)
    together = pandas.concat([frame for frame in frames.values() if len(frame)] or frames.values(), ignore_index=True)
    _fill_events(together)
    together.attrs["runs"] = attrs
    return together


def _frame(path: Path) -> pandas.DataFrame:
    rows = list(read_rows(path / METRICS))
    try:
        frame = pandas.DataFrame(rows)
    except (TypeError, ValueError, OverflowError) as error:  # of text that is no Unicode, for one
        raise RunError(f"{path / METRICS} can't be made a table: {error}.") from error
    _fill_events(frame)
    status = _directory.read_status(path)
    frame.attrs = {
        "config": _directory.read_config(path),
        "status": status["status"],
        "message": status["message"],
        "path": str(path),
    }
    return frame


def _fill_events(frame: Any) -> None:
    """Makes of events lists of sentences, or None."""
    if "events" in frame:
        frame["events"] = frame["events"].astype(object).where(frame["events"].notna(), None)
