"""When a loss rises for good: slowly, or to a level from which it doesn't come back."""

import math
import statistics
from collections import deque

from principalflow.monitor._spikes import BEGINNING, Spike, loss_of
from principalflow.record import Row

# The level is the median of so many losses, and the noise is read off as many as that.
_LEVEL, _NOISE = 21, 100
# It is out of line by so much of the best level, and by so many robust standard deviations of the noise, ...
_SHARE, _DEVIATIONS = 0.25, 3.0
# ... for so many rows.
_LASTING = 30
# Rows that are kept.
_WINDOW = 260


class Setbacks:
    """Finds where the level of the loss leaves the best that it had, and stays up.

    A spike comes back, or is seen as it begins; this is for what `Spikes` misses: a rise that is as slow as the noise
    is large, and one whose end is bounded, as that of a network that forgot all it had learnt.

    Attributes:
        best: The lowest level so far; NaN before the first.
        best_step: Where that was.
        level: That of the latest losses; NaN before the first.
        is_back: Whether the level is in line with the best.
    """

    def __init__(self) -> None:
        self.best, self.best_step, self.level, self.is_back = math.nan, 0, math.nan, True
        self._losses: deque[float] = deque(maxlen=_NOISE)
        self._rows: deque[Row] = deque(maxlen=_WINDOW)
        self._first_step = math.inf
        self._above = 0

    def add(self, row: Row) -> Spike | None:
        """Takes the next row, and returns the setback that it completes, as a spike from where it began."""
        loss = loss_of(row)
        self._rows.append(row)
        self._first_step = min(self._first_step, row["step"])
        if not math.isfinite(loss):
            return None
        self._losses.append(loss)
        if len(self._losses) < _LEVEL:
            return None
        self.level = statistics.median(list(self._losses)[-_LEVEL:])
        if not self.level >= self.best:
            self.best, self.best_step = self.level, row["step"]
        limit = self._limit()
        self._above = self._above + 1 if self.level > limit else 0
        if self.level <= (self.best + limit) / 2:
            self.is_back = True
        if self._above < _LASTING or not self.is_back:
            return None
        self.is_back = False
        return self._setback(limit)

    def _limit(self) -> float:
        # Most rows are far below, and need no noise.
        least = self.best + _SHARE * abs(self.best)
        if self.level <= least:
            return least
        changes = [abs(b - a) for a, b in zip(self._losses, list(self._losses)[1:], strict=False)]
        deviation = 1.4826 * statistics.median(changes) / math.sqrt(2)
        return max(least, self.best + _DEVIATIONS * deviation)

    def _setback(self, limit: float) -> Spike:
        """Returns it as a spike that began where the level, which lags, began to rise to that of now."""
        rows = list(self._rows)
        start = max(len(rows) - _LASTING - _LEVEL // 2, 1)
        before, since = rows[:start], rows[start:]
        measured = [row for row in before if "edge" in row]
        spike = Spike(self.best, limit, before, measured, self._first_step <= BEGINNING and len(rows) < _WINDOW)
        for row in since:
            spike.add(row, loss_of(row))
        return spike
