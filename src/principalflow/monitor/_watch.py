"""What all monitors share: a measurement where one is due, what it brings that is new, and where it goes."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal, Protocol, Self

import numpy as np
import pandas

from principalflow import _checks
from principalflow.monitor._diagnosis import Diagnosis
from principalflow.monitor._events import Changes, Event, is_settling
from principalflow.monitor._schedule import Schedule
from principalflow.monitor._sinks import sink
from principalflow.monitor._summary import summary
from principalflow.monitor._taken import Taken, split
from principalflow.optimizers import Edge, Part
from principalflow.record import Record, Row
from principalflow.spectrum import basis_memory
from principalflow.status import Status

Measure = Literal["sharpness", "cheap"]
MEASURES = ("sharpness", "cheap")
# The columns of a record that don't depend on the learning rate.
_OF_LANDSCAPE = ("eigenvalue_", "residual_", "projection_")
_SHARED = ("loss", "gradient_norm", "products", "converged")
# Begins the names of those arrays of a monitor's state that the eigenpairs start from.
_TRAIL = "trail_"
# How far a rate that is given may be from the optimiser's own: the rounding of single precision, and some.
_SAME_RATE = 1e-4
# Rows that are held in memory; where there are more, the older half goes. Those that `to` was given stay there.
_MOST_ROWS = 200_000


class Observed(Protocol):
    """One moment of a loop, as a framework can measure it."""

    def wait(self) -> Any:
        """Lets the loop's own pending work end."""

    def loss(self) -> float:
        """Returns the loss on the monitor's own data."""
        ...

    def record(self, edge: Edge) -> Row:
        """Returns the columns of `principalflow.Record`, in the optimiser's metric."""
        ...

    def taken(self) -> Taken | None:
        """Returns the step that led here in numbers; None where it isn't known."""
        ...

    def update_square(self, preconditioner: Any) -> float:
        """Returns the square of its update in the metric P."""
        ...

    def curvatures(self, preconditioner: Any) -> tuple[float, float]:
        r"""Returns $\Delta^T H \Delta$, and $v^T H v / g^T v$ along $v = P^{-1} g$, on its batch where it started."""
        ...


class Watch:
    """A monitor but for the measuring, which subclasses do.

    Attributes:
        rows: What was measured, the oldest first; the latest 100,000 at least.
        events: Whatever changed, the oldest first.
        memory: The bytes that the eigenpairs' vectors take at the most; 0 for cheap measures.
    """

    _take: Any  # the subclass's `record.WarmStart`
    _selected: Any = None  # of which parameters the curvature is, where it isn't that of all that steps move

    def __init__(
        self,
        record: Record,
        every: int,
        budget: float | None,
        to: Any,
        measure: Measure,
        config: dict[str, Any],
        itemsize: int,
    ):
        _checks.one_of("measure", measure, MEASURES)
        self.rows: list[Row] = []
        self.events: list[Event] = []
        self._measures_curvature = measure == "sharpness"
        self._schedule = Schedule(every, budget)
        shared = dict(every=every, budget=budget, k=record.k, tol=record.tol, measure=measure)
        self._sink = sink(to, shared | config)
        self._changes = Changes(record.tol)
        self._diagnosis = Diagnosis()
        self._edge: Edge | None = None  # of the last measurement
        self._closed = False
        size = config["parameters"]
        self.memory = basis_memory(min(record.k, size), size, itemsize=itemsize) if self._measures_curvature else 0

    @property
    def state(self) -> dict[str, Any]:
        """Arrays on which the next row and its events depend, but for spikes, to be kept and given to `restore`."""
        trail = {_TRAIL + name: array for name, array in self._take.state.items()}
        return trail | {name: np.array(on) for name, on in self._changes.states.items()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Makes the next row and its events what they would have been where `state` was read.

        What is usual for the loss isn't part of it: spikes are found by the rows from here on.
        """
        trail = {name: array for name, array in state.items() if name.startswith(_TRAIL)}
        self._take.restore({name.removeprefix(_TRAIL): array for name, array in trail.items()})
        self._changes.states = {name: bool(on) for name, on in state.items() if np.ndim(on) == 0}

    @property
    def is_settling(self) -> bool:
        """Whether `edge` says nothing yet, as in the first steps of Adam and its relatives."""
        return bool(self.rows) and self._edge is not None and is_settling(self.rows[-1]["step"], self._edge)

    @property
    def overhead(self) -> float:
        """The time spent measuring over the loop's own time; NaN before the loop has taken any."""
        return self._schedule.overhead

    def table(self) -> pandas.DataFrame:
        """Returns the rows as a pandas DataFrame.

        What a row doesn't have is NaN, or empty among words; several events are joined.
        """
        rows = [{**row, "events": "; ".join(map(str, row["events"]))} for row in self.rows]
        table = pandas.DataFrame(rows)
        words = [name for name in table if any(isinstance(value, str) for value in table[name])]
        return table.fillna(dict.fromkeys(words, ""))

    def summary(self) -> str:
        """Returns in a few sentences why the loss spiked, what else was seen, and what it means for the rate."""
        events = self.events + self._diagnosis.pending()
        seen, put_off = (
            summary(self.rows, events, self._edge, self.overhead, self._diagnosis.aftermath()),
            self._schedule.put_off,
        )
        late = f" {put_off} measurement{'s were' if put_off > 1 else ' was'} put off, to keep to the budget."
        return seen + (late if put_off else "")

    def close(self, status: Status = Status.COMPLETED, message: str | None = None) -> None:
        """Ends what `to` was given a path for, with the summary as its message; a second call does nothing."""
        if not self._closed:
            self._sink.close(status, self.summary() if message is None else message)
            self._closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: Any) -> None:
        if kind is None:
            self.close()
        else:
            self.close(Status.INTERRUPTED, f"{kind.__name__}: {error}")

    def _is_due(self, step: int) -> bool:
        """Whether the curvature is to be measured at this step; called at each, so it must be quick."""
        return self._schedule.is_due(step) and self._measures_curvature

    def _measure(self, step: int, observed: Observed, edge: Edge | None) -> Row | None:
        """Returns the row of a step: what the step that led here says, and the curvature if there is an `edge`."""
        # At a rate of 0 the step goes nowhere, and before its first step Adam has no metric: the next one is measured.
        if edge is not None and (edge.learning_rate == 0 or edge.starting):
            edge = None
        observed.wait()
        self._schedule.begin()
        taken = observed.taken()
        row = {} if taken is None else taken.row()
        failure = ""
        if edge is not None:
            recorded, failure = self._attempt(observed, edge)
            row |= recorded
            self._edge = edge
            if "eigenvalue_0" in row:
                row |= self._at_edge(row, edge, taken, observed)
        if not row:
            return None
        row = {"step": step, **row}
        row["events"] = [*self._changes.events(row, failure, edge), *self._diagnosis.add(row)]
        self.events += row["events"]
        self.rows.append(row)
        if len(self.rows) > _MOST_ROWS:
            del self.rows[: _MOST_ROWS // 2]
        self._sink.append(row)
        self._schedule.end(None if edge is None else step)
        return row

    def _attempt(self, observed: Observed, edge: Edge) -> tuple[Row, str]:
        """Returns the record, or what is known without it and why there is none: numbers must not end a loop."""
        try:
            if edge.unknown:
                # Its own edge but for the rate: the metric may hold some parameters fast.
                return self._without_rate(observed.record(replace(edge, part=Part(learning_rate=1.0))), edge), ""
            if not math.isfinite(edge.learning_rate):
                raise _checks.NonFiniteError("the learning rate is not finite")
            return observed.record(edge), ""
        except ValueError as error:
            # Later on it is the numbers that have changed, not the arguments.
            if not self._changes.states and not isinstance(error, _checks.NonFiniteError | np.linalg.LinAlgError):
                raise
            return {"learning_rate": edge.learning_rate, "loss": observed.loss()}, str(error)

    def _without_rate(self, row: Row, edge: Edge) -> Row:
        """Returns what a record says of the landscape alone, where it isn't known what the rate does."""
        known = {name: value for name, value in row.items() if name.startswith(_OF_LANDSCAPE) or name in _SHARED}
        h = edge.learning_rate
        return ({"learning_rate": h} if math.isfinite(h) else {}) | known

    def _at_edge(self, row: Row, edge: Edge, taken: Taken | None, observed: Observed) -> Row:
        """Returns where a measured curvature stands, by the optimiser's own threshold."""
        if edge.unknown:
            return {}
        sharpness = row["eigenvalue_0"]
        found: Row = {"threshold": edge.threshold, "edge": sharpness / edge.threshold}
        found["stable_rate"] = edge.part.stable_rate(sharpness)
        if edge.clips:
            found["clipped"] = True
        names = [name for name in row if name.startswith("regime_")]
        found |= {name: edge.regime(row[name.replace("regime", "eigenvalue")]) for name in names}
        if taken is not None and self._selected is None:
            along_update, found["batch_sharpness"] = observed.curvatures(edge.preconditioner)
            if not edge.is_mixed:
                found["batch_threshold"] = edge.part.small_batch_threshold
            if taken.slope < 0 and taken.learning_rate > 0:
                found["directional_sharpness"] = along_update / (-taken.slope * taken.learning_rate)
                found |= split(taken, edge, sharpness, observed.update_square(edge.preconditioner))
        return found


def checked_rate(learning_rate: Any) -> float:
    """Returns the rate; one that isn't finite is no wrong argument but the fate of a run."""
    try:
        if not math.isfinite(learning_rate):
            return math.nan
    except (TypeError, ValueError, OverflowError):
        pass  # the check says what is wrong
    rate = _checks.non_negative("learning_rate", learning_rate)
    least, most = _checks.RATES  # below them it counts as 0, above them it isn't known
    return 0.0 if rate < least else rate if rate <= most else math.nan


def same_rate(learning_rate: Any, edge: Edge) -> None:
    """Raises if a rate that was given, which may be None, isn't the one that was read off the optimiser."""
    if learning_rate is None or (edge.unknown and not edge.starting):
        return
    given, own = checked_rate(learning_rate), edge.learning_rate
    if abs(given - own) > _SAME_RATE * own:
        other = f"learning_rate is {given:g}, but the optimizer's is {own:g}"
        raise ValueError(f"{other}: leave it out, or correct one of them.")
