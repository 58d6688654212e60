"""A run as the page needs it: columns of numbers, events and options."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from principalflow import training

THRESHOLD = "threshold"
SCALED = "h eigenvalue_{}"
RELATIVE = "eigenvalue_{} / threshold"
OF_DESCENT = "2/h"  # the formula of plain descent
# Those for which no threshold is known; adam where an earlier version recorded it.
_UNKNOWN = ("adam", "prodigy")
_SAME = 0.01  # by how much h times the threshold may vary along a run that has one formula for it


@dataclass(frozen=True)
class Run:
    """What was recorded of one run.

    Attributes:
        name: What the reader calls it.
        columns: The numbers, NaN where a row has none; with `THRESHOLD`, `SCALED` and `RELATIVE` where the threshold is
            known. Those that were recorded and aren't finite are infinite.
        events: Steps and sentences.
        config: Options and their values, those of nested options as "outer.inner".
        status: "running", "completed", "diverged", "interrupted", or "" where nothing is known.
        message: A sentence, or "".
        of_batches: Whether the losses are those of batches, so that one can't be compared with the next.
        k: How many eigenvalues were measured.
        edge: The threshold, the largest stable curvature, as a formula in the learning rate h or in words: "2/h" for
            descent, "3.8/h" with a momentum of 0.9, "38/h" for Adam; empty where none is known.
        unknown: Whether the curvature was measured, of an optimiser for which no threshold is known.
        metric: The optimiser's name where the curvature is that in its own metric.
    """

    name: str
    columns: dict[str, np.ndarray]
    events: list[tuple[int, str]]
    config: dict[str, str]
    status: str
    message: str
    of_batches: bool
    k: int
    edge: str
    unknown: bool
    metric: str

    @property
    def optimizer(self) -> str:
        """The optimiser's name, or else the run's."""
        return self.config.get("optimizer", self.name)

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


def edges(runs: list[Run]) -> list[str]:
    """Returns the different edges of those runs that have one."""
    return sorted({run.edge for run in runs if run.edge}, key=lambda edge: (len(edge), edge))


def of_descent(runs: list[Run]) -> bool:
    """Returns whether all edges are those of plain descent."""
    return {*edges(runs)} <= {OF_DESCENT}


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
    config = _flat(frame.attrs.get("config") or {})
    unknown, recorded = k > 0 and _is_unknown(labels, config), THRESHOLD in columns
    if k and not unknown:
        columns = _with_threshold(columns, k)
    return Run(
        name=str(name),
        columns=columns,
        events=_events(frame, columns["step"]),
        config=config,
        status=str(frame.attrs.get("status") or ""),
        message=str(frame.attrs.get("message") or ""),
        of_batches=of_batches,
        k=k,
        edge=_edge(columns),
        unknown=unknown,
        metric=config["optimizer"] if recorded and config.get("optimizer") in training.RESCALING else "",
    )


def _is_unknown(labels: Any, config: Mapping[str, str]) -> bool:
    """Whether no threshold is known where one isn't recorded; else it is descent, of which none needs to be."""
    if THRESHOLD in labels:
        return False
    per_parameter = config.get("optimizer") == "dal" and config.get("per_parameter") == "True"
    # Of an optimiser that a monitor doesn't know it records the Hessian's eigenpairs, and nothing that needs the rate.
    unread = "residual_0" in labels and "regime_0" not in labels
    return config.get("optimizer") in _UNKNOWN or per_parameter or unread


def _with_threshold(columns: dict[str, np.ndarray], k: int) -> dict[str, np.ndarray]:
    """Returns the columns with the threshold, descent's where none was recorded, and what follows from it."""
    h = columns.get("learning_rate", np.full(len(columns["step"]), np.nan))
    h = np.where(h > 0, h, np.nan)
    columns = {THRESHOLD: 2 / h, **columns}
    for i in range(k):
        columns[SCALED.format(i)] = h * columns[f"eigenvalue_{i}"]
        columns[RELATIVE.format(i)] = columns[f"eigenvalue_{i}"] / columns[THRESHOLD]
    return {name: values for name, values in columns.items() if not np.all(np.isnan(values))}


def _edge(columns: Mapping[str, np.ndarray]) -> str:
    """Returns the threshold as a formula, where h times it is the same all along, or in words."""
    if THRESHOLD not in columns:
        return ""
    products = columns.get("learning_rate", np.nan) * columns[THRESHOLD]
    products = products[np.isfinite(products)]
    if not len(products) or np.ptp(products) > _SAME * np.median(products):
        return "the optimiser's threshold"
    return f"{np.median(products):.3g}/h"


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
