"""Run directories for other programs: parquet, CSV, TensorBoard."""

import math
import numbers
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from principalflow import _checks
from principalflow.runs._errors import RunError
from principalflow.runs._load import find, load

FORMATS = ("parquet", "csv", "tensorboard")
_FORMATS_BY_SUFFIX = {".parquet": "parquet", ".csv": "csv", "": "tensorboard"}


def export(path: str | os.PathLike, to: str | os.PathLike, *, format: str | None = None) -> Path:  # noqa: A002
    """Writes the metrics of a run, or of the runs of a sweep, in another format.

    Args:
        path: A run directory, or a folder of them.
        to: The file; for TensorBoard the log folder, in which each run of a sweep gets one of its own.
        format: "parquet", "csv" or "tensorboard"; None to tell it from the name of `to`.

    Returns:
        Where it was written.

    Raises:
        ValueError: For an unknown format, or a name that doesn't tell it.
        RunError: As `load` does, and if the format has no place for the metrics, or the file can't be written.

    Example:
        >>> import pathlib, tempfile, principalflow as pf
        >>> with pf.runs.create(tempfile.mkdtemp(), {}) as run:
        ...     run.append({"step": 0, "loss": 2.5})
        >>> print(pf.runs.export(run.path, run.path / "metrics.csv").read_text())
        step,loss
        0,2.5
    """
    to = _checks.path("to", to)
    if format is None and to.suffix not in _FORMATS_BY_SUFFIX:
        raise ValueError(f"to must end in .parquet or .csv, or be a folder for TensorBoard, got {str(to)!r}.")
    kind = _FORMATS_BY_SUFFIX[to.suffix] if format is None else format
    _checks.one_of("format", kind, FORMATS)
    if kind == "tensorboard":
        for run in find(path):
            frame = load(run)
            with _refusals(run, to):
                _write_events(frame, to if run == Path(path) else to / run.name)
        return to
    frame = load(path)
    frame.attrs = {}
    if "events" in frame:
        frame["events"] = frame["events"].map(lambda events: _joined(events, "; "))
    with _refusals(path, to):
        to.parent.mkdir(parents=True, exist_ok=True)
        frame.to_parquet(to, index=False) if kind == "parquet" else frame.to_csv(to, index=False)
    return to


@contextmanager
def _refusals(path: Any, to: Path) -> Iterator[None]:
    """Names the run and the file in whatever a writer objects to: a column of numbers and text, a row without step."""
    try:
        yield
    except ImportError:
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise RunError(f"the metrics of {path} can't be written to {to}: {reason}.") from error


def _write_events(frame: Any, folder: Path) -> None:
    try:
        from tensorboardX import SummaryWriter
    except ImportError as error:
        raise ImportError("TensorBoard's files need tensorboardX: pip install 'principalflow[reproduce]'.") from error
    with SummaryWriter(str(folder)) as writer:
        for row in frame.to_dict("records"):
            add_row(writer, row)


def add_row(writer: Any, row: dict[str, Any]) -> None:
    """Adds a row to a TensorBoard writer: numbers as scalars, events as text."""
    step = int(row["step"])
    for tag, value in scalars(row).items():
        writer.add_scalar(tag, value, step)
    if row.get("events") and hasattr(writer, "add_text"):
        writer.add_text("principalflow/events", _joined(row["events"], "\n\n"), step)


def scalars(row: dict[str, Any]) -> dict[str, float]:
    """Returns the finite numbers of a row but for its step, under the names that they have among those of others."""
    found = {name: value for name, value in row.items() if name != "step" and isinstance(value, numbers.Real)}
    return {f"principalflow/{name}": float(value) for name, value in found.items() if math.isfinite(value)}


def _joined(events: Any, separator: str) -> str:
    return separator.join(map(str, events)) if isinstance(events, list) else str(events or "")
