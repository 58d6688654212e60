"""When a loss spikes: it leaves the level that it had, by more than its noise from step to step."""

import math
import statistics
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from principalflow.record import Row

# The level is the median of so many values, the noise that of more.
_LEVEL, _NOISE = 21, 100
# With fewer values the noise isn't known: a rise must then be to this multiple of the level.
_FEW, _START = 10, 4.0
# Else it must be by this share of the level, by so many robust standard deviations of the change from step to step, and
# by this multiple of the largest bump.
_SHARE, _DEVIATIONS, _BUMPS = 0.2, 8.0, 2.0
# What is below this share of the highest loss so far is rounding, or of no concern.
_FLOOR = 1e-4
# A spike is reported this many rows after its highest, or after its first, whichever comes first.
_AFTER_PEAK, _AFTER_ONSET = 5, 15
# It is over once the loss was back for so many rows; one that has lasted longer without rising is the new level.
_BACK, _LASTING = 10, 50
# Rows that are kept from before a spike, and measurements of the curvature.
_WINDOW = 200
# A monitor that begins by this step has seen the start of the run.
BEGINNING = 10


class Level:
    """What a series of numbers is used to: its level, and above which limit a number is out of line."""

    def __init__(self, values: Iterable[float] = ()) -> None:
        self._values = deque((value for value in values if math.isfinite(value)), maxlen=_NOISE)

    def add(self, value: float) -> None:
        """Takes one more number."""
        self._values.append(value)

    @property
    def count(self) -> int:
        """How many numbers it goes by."""
        return len(self._values)

    @property
    def is_known(self) -> bool:
        """Whether there are enough numbers for the noise."""
        return self.count >= _FEW

    @property
    def level(self) -> float:
        """The median of the latest; NaN before the first."""
        # NumPy's takes longer than all else of a quiet row.
        return statistics.median(list(self._values)[-_LEVEL:]) if self._values else math.nan

    @property
    def limit(self) -> float:
        """The most that is in line; NaN before the first number."""
        level = self.level
        if not self.is_known:
            return level + (_START - 1) * abs(level)
        changes = np.diff(self._values)
        deviation = 1.4826 * float(np.median(np.abs(changes))) / math.sqrt(2)
        # A bump stands out from both its neighbours: noise with heavy tails has them, a rise in the making hasn't.
        bump = float(np.max(np.minimum(changes[:-1], -changes[1:])))
        # The largest of few says little of what is to come.
        return level + max(_SHARE * abs(level), _DEVIATIONS * deviation, _BUMPS * bump * (1 + _FEW / self.count))

    def is_exceeded_by(self, value: float) -> bool:
        """Whether a number is above the limit, which is found only where it may be."""
        level = self.level
        return value > level + _SHARE * abs(level) and value > self.limit


@dataclass
class Spike:
    """A spike of the loss, with what was before it and since.

    Attributes:
        level: The loss before it.
        limit: What it got above.
        before: The rows before it, the oldest first.
        measured: Those of them, and older ones, in which the curvature was measured.
        from_start: Whether `before` has the start of the run.
        since: The first rows from its onset on.
        peak: The highest loss so far, infinite where the loss wasn't finite.
        peak_step: The step of that.
    """

    level: float
    limit: float
    before: list[Row]
    measured: list[Row]
    from_start: bool
    since: list[Row] = field(default_factory=list)
    peak: float = -math.inf
    peak_step: int = 0
    _after_peak: int = 0
    _back: int = 0

    @property
    def onset(self) -> Row:
        """The first row above the limit."""
        return self.since[0]

    @property
    def shows(self) -> bool:
        """Whether its peak can be told."""
        return self.peak == math.inf or self._after_peak >= _AFTER_PEAK or len(self.since) >= _AFTER_ONSET

    @property
    def is_back(self) -> bool:
        """Whether the loss is down again."""
        return self._back >= _BACK

    @property
    def lasts(self) -> bool:
        """Whether the loss has stayed up for so long that this is its new level."""
        return self._after_peak >= _LASTING and math.isfinite(self.peak)

    def add(self, row: Row, loss: float) -> None:
        """Takes the next row."""
        if len(self.since) < _AFTER_ONSET:
            self.since.append(row)
        self._after_peak += 1
        if loss > self.peak:
            self.peak, self.peak_step, self._after_peak = loss, row["step"], 0
        self._back = self._back + 1 if loss <= self.limit else 0


class Spikes:
    """Finds spikes in the rows of a monitor, with bounded memory.

    The loss is that of the steps' own batches, where the steps are known, else that on the monitor's data.

    Attributes:
        current: The spike that goes on, if any.
    """

    def __init__(self) -> None:
        self.current: Spike | None = None
        self._level = Level()
        self._rows: deque[Row] = deque(maxlen=_WINDOW)
        self._measured: deque[Row] = deque(maxlen=_WINDOW)
        self._first_step = math.inf
        self._highest = 0.0
        self._by_batch = False

    def add(self, row: Row) -> None:
        """Takes the next row."""
        if "batch_loss" in row and not self._by_batch:
            self._by_batch, self._level = True, Level()
        self._first_step = min(self._first_step, row["step"])
        if self.counts(row):
            self._follow(row, loss_of(row))
        if self.current is None:
            self._rows.append(row)
            if "edge" in row:
                self._measured.append(row)

    def counts(self, row: Row) -> bool:
        """Whether a row has the loss that is followed."""
        return "batch_loss" in row or not self._by_batch

    def _follow(self, row: Row, loss: float) -> None:
        if self.current is not None and (self.current.is_back or self.current.lasts):
            # What lasted is the level from now on.
            self._level = self._level if self.current.is_back else Level()
            self.current = None
        if self.current is None and self._begins(loss):
            from_start = self._first_step <= BEGINNING and len(self._rows) < _WINDOW
            before, measured = list(self._rows), list(self._measured)
            self.current = Spike(self._level.level, self._level.limit, before, measured, from_start)
        if self.current is not None:
            self.current.add(row, loss)
        elif math.isfinite(loss):
            self._level.add(loss)
            self._highest = max(self._highest, abs(loss))

    def _begins(self, loss: float) -> bool:
        if not math.isfinite(loss):
            return self._level.count > 0
        # Of few batches one may well have several times another's loss: there the last step must have raised its own.
        last = self._rows[-1] if self._rows else {}
        rose = last.get("batch_loss_change", math.inf) > 0
        is_high = self._level.is_exceeded_by(loss) and loss > self._level.level + _FLOOR * self._highest
        return is_high and (self._level.is_known or rose)


def loss_of(row: Row) -> float:
    """Returns the loss of a row, infinite where it isn't finite or isn't after the step."""
    loss = row["batch_loss"] if "batch_loss" in row else row["loss"]
    return loss if math.isfinite(loss + row.get("batch_loss_change", 0.0)) else math.inf
