"""A run as the page needs it: columns of numbers, events and options."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

THRESHOLD = "2/h"
SCALED = "h eigenvalue_{}"


@dataclass(frozen=True)
class Run:
    """What was recorded of one run.

    Attributes:
        name: What the reader calls it.
        columns: The numbers, NaN where a row has none; with `THRESHOLD` and `SCALED` from the learning rate. Those that
            were recorded and aren't finite are infinite.
        events: Steps and sentences.
        config: Options and their values, those of nested options as "outer.inner".
        status: "running", "done", "diverged", "interrupted", or "" where nothing is known.
        message: A sentence, or "".
        k: How many eigenvalues were recorded.
    """

    name: str
    columns: dict[str, np.ndarray]
    events: list[tuple[int, str]]
    config: dict[str, str]
    status: str
    message: str
    k: int

    def recorded(self, *names: str) -> list[np.ndarray]:
        """Returns the columns, at those rows that have a number in all of them; all empty where a column is missing."""
        if not self.columns.keys() >= {*names}:
            return [np.array([]) for _ in names]
        columns = [self.columns[name] for name in names]
        rows = ~np.any(np.isnan(columns), axis=0)
        return [column[rows] for column in columns]


def read(name: str, frame: Any) -> Run:
    """Returns the run of a table; raises a ValueError if it has no steps or no losses."""
    missing = [column for column in ("step", "loss") if column not in getattr(frame, "columns", ())]
    if missing:
        raise ValueError(f"runs[{name!r}] must be a DataFrame with columns step and loss; it has no {missing[0]}.")
    if not len(frame):
        raise ValueError(f"runs[{name!r}] must have at least one row, got none.")
    columns = {str(label): values for label in frame if (values := _numbers(frame[label])) is not None}
    if not {"step", "loss"} <= columns.keys() or not np.all(np.isfinite(columns["step"])):
        raise ValueError(f"runs[{name!r}] must have numbers in its columns step and loss, and all steps finite.")
    # Every row has a loss, so NaN isn't "not recorded" there.
    columns["loss"] = np.where(np.isnan(columns["loss"]), np.inf, columns["loss"])
    columns = {label: values for label, values in columns.items() if not np.all(np.isnan(values))}
    k = 0
    while f"eigenvalue_{k}" in columns:
        k += 1
    if "learning_rate" in columns:
        columns |= _against_rate(columns, k)
    return Run(
        name=str(name),
        columns=columns,
        events=_events(frame, columns["step"]),
        config=_flat(frame.attrs.get("config") or {}),
        status=str(frame.attrs.get("status") or ""),
        message=str(frame.attrs.get("message") or ""),
        k=k,
    )


def _numbers(column: Any) -> np.ndarray | None:
    """Returns a column of numbers, or None for one of other things."""
    if column.dtype.kind not in "biufO":
        return None
    try:
        return column.to_numpy(dtype=float, na_value=np.nan)
    except (TypeError, ValueError):
        return None


def _against_rate(columns: dict[str, np.ndarray], k: int) -> dict[str, np.ndarray]:
    h = np.where(columns["learning_rate"] > 0, columns["learning_rate"], np.nan)
    scaled = {SCALED.format(i): h * columns[f"eigenvalue_{i}"] for i in range(k)}
    return {THRESHOLD: 2 / h, **scaled} if k else {}


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
