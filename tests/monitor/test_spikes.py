import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from principalflow.monitor._spikes import Level, Spikes


def found(losses, name="loss"):
    """The spikes of a series of losses."""
    spikes, all_of_them = Spikes(), []
    for step, loss in enumerate(losses):
        spikes.add({"step": step, name: loss, **({"batch_loss_change": 0.0} if name == "batch_loss" else {})})
        if spikes.current is not None and spikes.current not in all_of_them:
            all_of_them.append(spikes.current)
    return all_of_them


def bumped(losses, at, heights):
    losses = np.array(losses, dtype=float)
    losses[at : at + len(heights)] += heights
    return losses


SMOOTH = np.exp(-np.arange(100) / 100)
NOISY = 1 + 0.1 * np.random.default_rng(0).standard_normal(300)


def test_a_smooth_series_is_in_line_up_to_a_fifth_above_its_level():
    level = Level(SMOOTH)
    assert level.level == np.median(SMOOTH[-21:])
    assert level.limit == pytest.approx(1.2 * level.level)


def test_a_noisy_series_is_in_line_up_to_eight_deviations():
    level = Level(NOISY)
    assert 1 + 0.5 < level.limit < 1 + 1.2  # 8 robust deviations of 0.1, estimated from a hundred


def test_a_bump_that_was_seen_doubles_is_out_of_line():
    limit = Level(bumped(SMOOTH, 80, [1.0])).limit
    change = SMOOTH[80] - SMOOTH[79]
    assert limit == pytest.approx(np.median(SMOOTH[-21:]) + 2 * (1 + change) * 1.1)  # 1.1 for a hundred values


def test_of_few_numbers_only_a_multiple_is_out_of_line():
    assert Level([2.0, 2.0]).limit == 8
    assert Level([-2.0]).limit == 4
    assert math.isnan(Level().limit)


def test_a_rise_of_several_rows_is_one_spike_with_its_peak():
    (spike,) = found(bumped(SMOOTH, 60, [0.3, 0.8, 2.0, 1.0, 0.5, 0.2]))
    assert spike.onset["step"] == 60
    assert (spike.peak_step, spike.peak) == (62, pytest.approx(2.0 + SMOOTH[62]))
    assert spike.level == pytest.approx(np.median(SMOOTH[39:60]))


def test_a_spike_shows_five_rows_after_its_peak():
    spikes = Spikes()
    for step, loss in enumerate(bumped(SMOOTH, 60, [0.3, 0.8, 2.0, 1.0, 0.5, 0.2])[:70]):
        spikes.add({"step": step, "loss": loss})
        assert (spikes.current is not None and spikes.current.shows) == (step >= 67)


def test_aftershocks_belong_to_a_spike_and_later_ones_are_spikes_of_their_own():
    assert len(found(bumped(bumped(SMOOTH, 50, [2.0]), 56, [1.0]))) == 1
    assert len(found(bumped(bumped(SMOOTH, 50, [2.0]), 80, [1.0]))) == 2


def test_a_noisy_series_has_no_spike_and_one_in_it_is_found():
    assert found(NOISY, "batch_loss") == []
    (spike,) = found(bumped(NOISY, 200, [2.0]), "batch_loss")
    assert spike.onset["step"] == 200


@given(st.floats(1e-8, 1e8), st.floats(-5, 5))
def test_spikes_dont_depend_on_units(scale, size):
    """Of the loss; and not on their sign either, as where the loss is a negative log-likelihood."""
    losses = bumped(size * SMOOTH, 60, [10.0])
    assert [spike.onset["step"] for spike in found(scale * losses)] == [60]


def test_growth_without_end_is_one_spike():
    assert len(found([*SMOOTH, *np.exp(np.arange(300.0)), *[math.inf] * 100, *[math.nan] * 100])) == 1


def test_what_lasts_is_a_new_level():
    spikes = found([*SMOOTH, *[5.0] * 80, 50.0])
    assert [(spike.onset["step"], spike.level) for spike in spikes] == [(100, pytest.approx(SMOOTH[89])), (180, 5.0)]


def test_rounding_at_the_bottom_is_no_spike():
    assert found([*np.exp(-np.arange(60.0)), *np.random.default_rng(0).random(100) * 1e-20]) == []


def test_a_loss_that_never_was_finite_is_no_spike():
    assert found([math.nan] * 5) == []


def test_memory_is_bounded():
    spikes = Spikes()
    for step in range(3000):
        spikes.add({"step": step, "loss": 1.0 if step < 1000 else 2.0 + step, "edge": 1.0})
    assert len(spikes._rows) == len(spikes._measured) == len(spikes.current.before) == 200
    assert len(spikes.current.since) == 15


def test_losses_of_batches_take_the_place_of_those_on_the_monitors_data():
    """Steps may become known after the first row, and rows between them have none."""
    spikes = Spikes()
    for step in range(50):
        spikes.add({"step": 2 * step, "loss": 1.0} if step < 20 else {"step": 2 * step, "batch_loss": 9.0})
        spikes.add({"step": 2 * step + 1, "loss": 1.0})
    assert spikes.current is None
