"""What all monitors share: a measurement where one is due, what it brings that is new, and where it goes."""

import math
from collections.abc import Callable, Mapping
from typing import Any, Self

import numpy as np
import pandas

from principalflow import _checks
from principalflow.monitor._events import Changes, Event, in_words
from principalflow.monitor._schedule import Schedule
from principalflow.monitor._sinks import sink
from principalflow.monitor._summary import summary
from principalflow.monitor._threshold import Threshold
from principalflow.record import Record, Row
from principalflow.status import Status

# Begins the names of those arrays of a monitor's state that the eigenpairs start from.
_TRAIL = "trail_"


class Watch:
    """A monitor but for the measuring, which subclasses do.

    Attributes:
        rows: What was measured, the oldest first: the columns of `principalflow.Record`, and `events` where there are.
        events: Whatever changed, the oldest first.
    """

    _take: Any  # the subclass's `record.WarmStart`

    def __init__(self, record: Record, every: int, budget: float | None, to: Any, config: dict[str, Any]):
        self.rows: list[Row] = []
        self.events: list[Event] = []
        self._schedule = Schedule(every, budget)
        self._sink = sink(to, dict(every=every, budget=budget, k=record.k, tol=record.tol, **config))
        self._changes = Changes(record.tol)
        self._threshold = Threshold.of()
        self._closed = False

    @property
    def state(self) -> dict[str, Any]:
        """Arrays on which the next row and its events depend, to be kept and given to `restore`."""
        trail = {_TRAIL + name: array for name, array in self._take.state.items()}
        return trail | {name: np.array(on) for name, on in self._changes.states.items()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Makes the next row and its events what they would have been where `state` was read."""
        trail = {name: array for name, array in state.items() if name.startswith(_TRAIL)}
        self._take.restore({name.removeprefix(_TRAIL): array for name, array in trail.items()})
        self._changes.states = {name: bool(on) for name, on in state.items() if np.ndim(on) == 0}

    @property
    def overhead(self) -> float:
        """The time spent measuring over the loop's own time; NaN before the loop has taken any."""
        return self._schedule.overhead

    def table(self) -> pandas.DataFrame:
        """Returns the rows as a pandas DataFrame.

        What a row doesn't have is NaN, or empty among words; several events are joined.
        """
        rows = [{**row, "events": "; ".join(in_words(row).get("events", []))} for row in self.rows]
        table = pandas.DataFrame(rows)
        words = [name for name in table if any(isinstance(value, str) for value in table[name])]
        return table.fillna(dict.fromkeys(words, ""))

    def summary(self) -> str:
        """Returns in a few sentences what was seen, and what it means for the learning rate."""
        seen, put_off = summary(self.rows, self.events, self._threshold, self.overhead), self._schedule.put_off
        late = f" At {put_off} steps a measurement was due and put off, to keep to the budget."
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

    def _measure(
        self,
        step: int,
        learning_rate: float,
        threshold: Threshold,
        wait: Callable[[], Any],
        take: Callable[[float], Row],
        loss: Callable[[], float],
    ) -> Row | None:
        """Returns the row of a step that is due, once `wait` has let the loop's own pending work end."""
        h = _rate(learning_rate)
        if h == 0:  # the step goes nowhere, and there is no 2/h
            return None
        wait()
        self._schedule.begin()
        self._threshold = threshold
        row, failure = self._attempt(take, loss, h)
        row = {"step": step, **row}
        if "eigenvalue_0" in row:
            row["threshold"] = threshold.times_h / h
        if events := self._changes.events(row, failure, threshold):
            row["events"] = events
            self.events += events
        self.rows.append(row)
        self._sink.append(row)
        self._schedule.end(step)
        return row

    def _attempt(self, take: Callable[[float], Row], loss: Callable[[], float], h: float) -> tuple[Row, str]:
        """Returns the record, or what is known without it and why there is none: numbers must not end a loop."""
        try:
            if not math.isfinite(h):
                raise _checks.NonFiniteError("the learning rate is not finite")
            return take(h), ""
        except ValueError as error:
            # Later on it is the numbers that have changed, not the arguments.
            if not self._changes.states and not isinstance(error, _checks.NonFiniteError | np.linalg.LinAlgError):
                raise
            return {"learning_rate": h, "loss": loss()}, str(error)


def _rate(learning_rate: Any) -> float:
    """Returns the rate; one that isn't finite is no wrong argument but the fate of a run."""
    try:
        if not math.isfinite(learning_rate):
            return math.nan
    except (TypeError, ValueError, OverflowError):
        pass  # the check says what is wrong
    rate = _checks.non_negative("learning_rate", learning_rate)
    least, most = _checks.RATES  # below them it counts as 0, above them it isn't known
    return 0.0 if rate < least else rate if rate <= most else math.nan
