"""When to measure: every this many steps, and within a share of the loop's own time."""

import math
import time
from typing import Any

from principalflow import _checks


class Schedule:
    """Tells when a measurement is due, and keeps the time of the loop and that of measurements apart.

    Attributes:
        loop_time: The loop's own seconds.
        spent: The seconds of measurements.
        put_off: At how many steps a measurement was due and put off, to keep to the budget.
    """

    _clock = staticmethod(time.perf_counter)

    def __init__(self, every: int, budget: float | None):
        self._every = _checks.whole("every", every, least=1)
        self._budget = None if budget is None else _checks.positive("budget", budget)
        self.loop_time = self.spent = self._last_cost = 0.0
        self.put_off = 0
        self._last_step: int | None = None
        self._mark: float | None = None

    @property
    def overhead(self) -> float:
        """The time spent measuring over the loop's own time; NaN before the loop has taken any."""
        return self.spent / self.loop_time if self.loop_time else math.nan

    def is_due(self, step: Any) -> bool:
        """Whether to measure at this step; called at each, so it must be quick."""
        self.loop_time += self._lap()
        step = _checks.whole("step", step, least=0)
        if self._last_step is None:
            return True
        if 0 <= step - self._last_step < self._every:
            return False
        fits = self._budget is None or self.spent + self._last_cost <= self._budget * self.loop_time
        self.put_off += not fits
        return fits

    def begin(self) -> None:
        """Ends the loop's own time: a measurement begins."""
        self.loop_time += self._lap()

    def end(self, step: int | None) -> None:
        """Ends the measurement of a step that was due, or of one that wasn't if it is None."""
        cost = self._lap()
        self.spent += cost
        if step is None:
            return
        # The first finds its eigenpairs from nothing and compiles, which says nothing of the next.
        self._last_cost = 0.0 if self._last_step is None else cost
        self._last_step = step

    def _lap(self) -> float:
        """Returns the time since it was last called."""
        before, self._mark = self._mark, self._clock()
        return 0.0 if before is None else self._mark - before
