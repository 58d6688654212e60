"""A run as the page needs it: columns of numbers, events and options."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

THRESHOLD = "threshold"
SCALED = "h eigenvalue_{}"
RELATIVE = "eigenvalue_{} / threshold"


@dataclass(frozen=True)
class Run:
    """What was recorded of one run.

    Attributes:
        name: What the reader calls it.
        columns: The numbers, NaN where a row has none; with `THRESHOLD`, `SCALED` and `RELATIVE` from the learning
            rate. Those that were recorded and aren't finite are infinite.
        events: Steps and sentences.
        config: Options and their values, those of nested options as "outer.inner".
        status: "running", "completed", "diverged", "interrupted", or "" where nothing is known.
        message: A sentence, or "".
        of_batches: Whether the losses are those of batches, so that one can't be compared with the next.
        k: How many eigenvalues were measured.
        edge: The largest stable h times curvature: 2, or 2(1+m) where momentum m was recorded with its threshold.
    """

    name: str
    columns: dict[str, np.ndarray]
    events: list[tuple[int, str]]
    config: dict[str, str]
    status: str
    message: str
    of_batches: bool
    k: int
    edge: float

    @property
    def edge_formula(self) -> str:
        """The curvature beyond which training is unstable."""
        return f"{self.edge:.3g}/h"

    @property
    def diverged(self) -> bool:
        """Whether it is known to have diverged, or has losses that aren't finite."""
        return self.status == "diverged" or bool(np.any(np.isinf(self.columns["loss"])))

    def recorded(self, *names: str) -> list[np.ndarray]:
        """Returns the columns, at those rows that have a number in all of them; all empty where a column is missing."""
        if not self.columns.keys() >= {*names}:
            return [np.array([]) for _ in names]
        columns = [self.columns[name] for name in names]
        rows = ~np.any(np.isnan(columns), axis=0)
        return [column[rows] for column in columns]


def edges(runs: list[Run]) -> dict[float, str]:
    """Returns the different edges, with their formulas, of those runs whose curvature was measured."""
    return dict(sorted((run.edge, run.edge_formula) for run in runs if run.k))


def read(name: str, frame: Any) -> Run:
    """Returns the run of a table; raises a ValueError if it has no steps or no losses."""
    labels = getattr(frame, "columns", ())
    of_batches = "batch_loss" in labels and "loss" not in labels
    if of_batches:
        frame = frame.rename(columns={"batch_loss": "loss"})
    missing = [column for column in ("step", "loss") if column not in getattr(frame, "columns", ())]
    if missing:
        raise ValueError(f"runs[{name!r}] must be a DataFrame with columns step and loss; it has no {missing[0]}.")
    columns = {str(label): values for label in frame if (values := _numbers(frame[label])) is not None}
    if not {"step", "loss"} <= columns.keys() or not np.all(np.isfinite(columns["step"])):
        raise ValueError(f"runs[{name!r}] must have numbers in its columns step and loss, and all steps finite.")
    columns["loss"] = _marked(columns["loss"], columns.get("batch_loss"))
    columns = {label: values for label, values in columns.items() if not np.all(np.isnan(values))}
    k = 0
    while f"eigenvalue_{k}" in columns:
        k += 1
    edge = 2.0
    if "learning_rate" in columns and k:
        h = np.where(columns["learning_rate"] > 0, columns["learning_rate"], np.nan)
        columns = {THRESHOLD: 2 / h, **columns}
        for i in range(k):
            columns[SCALED.format(i)] = h * columns[f"eigenvalue_{i}"]
            columns[RELATIVE.format(i)] = columns[f"eigenvalue_{i}"] / columns[THRESHOLD]
        products = h * columns[THRESHOLD]
        edge = round(float(np.nanmedian(products)), 4) if np.any(np.isfinite(products)) else 2.0
    return Run(
        name=str(name),
        columns=columns,
        events=_events(frame, columns["step"]),
        config=_flat(frame.attrs.get("config") or {}),
        status=str(frame.attrs.get("status") or ""),
        message=str(frame.attrs.get("message") or ""),
        of_batches=of_batches,
        k=k,
        edge=edge,
    )


def _numbers(column: Any) -> np.ndarray | None:
    """Returns a column of numbers, or None for one of other things."""
    if column.dtype.kind not in "biufO":
        return None
    try:
        return column.to_numpy(dtype=float, na_value=np.nan)
    except (TypeError, ValueError, OverflowError):
        return None


def _marked(loss: np.ndarray, batch_loss: np.ndarray | None) -> np.ndarray:
    """Returns the losses, infinite where they were recorded and aren't finite."""
    recorded_and_not_finite = np.isnan(loss if batch_loss is None else batch_loss)
    return np.where(recorded_and_not_finite, np.inf, loss)


def _events(frame: Any, steps: np.ndarray) -> list[tuple[int, str]]:
    if "events" not in frame:
        return []
    listed = ((step, cell) for step, cell in zip(steps, frame["events"], strict=True) if isinstance(cell, Iterable))
    return [(int(step), str(event)) for step, cell in listed for event in ([cell] if isinstance(cell, str) else cell)]


def _flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    flat = {}
    for option, value in config.items():
        nested = isinstance(value, Mapping) and value
        flat |= _flat(value, f"{prefix}{option}.") if nested else {f"{prefix}{option}": str(value)}
    return flat
