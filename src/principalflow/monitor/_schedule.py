"""When to measure the curvature: every so many steps, and within a share of the loop's own time."""

import math
import time
from typing import Any

from principalflow import _checks


class Schedule:
    """Tells when a measurement is due, and keeps the time of the loop and that of measurements apart.

    Attributes:
        loop_time: The loop's own seconds.
        spent: The seconds of all measurements, those of steps too.
        put_off: How many measurements were put off, to keep to the budget.
    """

    _clock = staticmethod(time.perf_counter)

    def __init__(self, every: int, budget: float | None):
        self._every = _checks.whole("every", every, least=1)
        self._budget = None if budget is None else _checks.positive("budget", budget)
        self.loop_time = self.spent = 0.0
        self._spent_on_due = self._last_cost = 0.0  # the budget is for these; what each step costs is known beforehand
        self.put_off, self._is_put_off = 0, False
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
        fits = self._budget is None or self._spent_on_due + self._last_cost <= self._budget * self.loop_time
        self.put_off += not fits and not self._is_put_off
        self._is_put_off = not fits
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
        self._spent_on_due += cost
        # The first finds its eigenpairs from nothing and compiles, which says nothing of the next.
        self._last_cost = 0.0 if self._last_step is None else cost
        self._last_step = step

    def _lap(self) -> float:
        """Returns the time since it was last called."""
        before, self._mark = self._mark, self._clock()
        return 0.0 if before is None else self._mark - before
