import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from principalflow.monitor._schedule import Schedule


class Loop:
    """A loop whose steps and measurements take given times, on a clock of its own."""

    def __init__(self, costs, every=1, budget=None):
        self.schedule, self.now, self.costs, self.measured = Schedule(every, budget), 0.0, iter(costs), []
        self.schedule._clock = lambda: self.now

    def observe(self, step, pending=0.0):
        if self.schedule.is_due(step):
            self.now += pending
            self.schedule.begin()
            self.now += next(self.costs)
            self.schedule.end(step)
            self.measured.append(step)

    def watch(self, cost):
        """A step that is watched without its curvature."""
        self.schedule.begin()
        self.now += cost
        self.schedule.end(None)

    def run(self, steps, seconds=1.0):
        for step in range(steps):
            self.observe(step)
            self.now += seconds


def test_a_measurement_is_due_every_so_many_steps():
    loop = Loop(itertools.repeat(1.0), every=3)
    loop.run(8)
    loop.observe(2)  # counting anew
    assert loop.measured == [0, 3, 6, 2]


@given(
    budget=st.floats(0.01, 2),
    compilation=st.floats(0, 100),
    cost=st.floats(0.01, 5),
    steps=st.lists(st.floats(0, 10), max_size=50),
)
def test_the_budget_is_kept_beyond_the_first_measurement(budget, compilation, cost, steps):
    first = compilation + cost
    loop = Loop(itertools.chain([first], itertools.repeat(cost)), budget=budget)
    for step, seconds in enumerate(steps):
        loop.observe(step)
        assert loop.schedule.spent <= max(budget * loop.schedule.loop_time, first) * (1 + 1e-9) + cost
        loop.now += seconds


def test_a_measurement_is_put_off_until_it_fits():
    loop = Loop(itertools.repeat(1.0), budget=0.1)
    loop.run(45)
    assert loop.measured == [0, 10, 30, 40]  # at 30 s, 2 s spent and 1 s to spend


def test_a_measurement_that_is_put_off_counts_once():
    loop = Loop(itertools.repeat(1.0), budget=0.1)
    loop.run(31)
    assert loop.schedule.put_off == 2


def test_watched_steps_leave_the_budget_to_the_curvature():
    loop = Loop(itertools.repeat(1.0), every=10, budget=0.2)
    for step in range(50):
        loop.observe(step)
        loop.watch(1.0)
        loop.now += 1.0
    assert loop.measured == [0, 10, 20, 30, 40]
    assert loop.schedule.spent == 55


def test_without_a_budget_nothing_is_put_off():
    loop = Loop(itertools.repeat(100.0))
    loop.run(5)
    assert loop.measured == [0, 1, 2, 3, 4]
    assert loop.schedule.overhead == 125  # the loop's time up to the last observation is 4 s


@pytest.mark.parametrize("budget", [None, 0.1])
def test_on_a_clock_that_stands_still_all_is_measured_and_no_overhead_known(budget):
    loop = Loop(itertools.repeat(0.0), budget=budget)
    loop.run(3, seconds=0.0)
    assert loop.measured == [0, 1, 2]
    assert np.isnan(loop.schedule.overhead)


def test_waiting_for_the_loops_own_work_is_the_loops_time():
    loop = Loop([1.0, 1.0])
    loop.observe(0, pending=3.0)
    loop.observe(1, pending=5.0)
    assert (loop.schedule.spent, loop.schedule.loop_time) == (2.0, 8.0)
