"""Steps of the pairs on y' = i y^2, whose solution is y / (1 - i y t)."""

import numpy as np
import pytest

from principalflow.flows._runge_kutta import SOLVERS, _between, _step, adaptive, chebyshev_pair, pair_of, pairs_of

START = np.array([0.9 + 0.1j, -0.4 + 0.5j])


def field(y):
    return 1j * y**2


def exact(time):
    return START / (1 - 1j * START * time)


def steps(pair):
    """Several steps from the start: their lengths, ends and polynomials."""
    lengths = np.geomspace(0.01, 0.04, 5) if pair.order == 5 else np.geomspace(0.1, 0.25, 5)
    for length in lengths:
        end, slopes = _step(field, START, field(START), length, pair)
        yield length, end, _between(field, START, end, slopes, length, pair)


def slope(lengths, errors):
    return np.polyfit(np.log(lengths), np.log(errors), 1)[0]


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_step_has_the_pairs_order(solver):
    lengths, errors = zip(*((t, abs(end - exact(t)).max()) for t, end, _ in steps(pair_of(solver))), strict=True)
    assert slope(lengths, errors) == pytest.approx(pair_of(solver).order + 1, abs=0.4)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("part", [0.3, 0.7])
def test_states_within_a_step_have_one_order_less(solver, part):
    found = ((t, abs(between(part) - exact(part * t)).max()) for t, _, between in steps(pair_of(solver)))
    assert slope(*zip(*found, strict=True)) == pytest.approx(pair_of(solver).order, abs=0.4)


@pytest.mark.parametrize("solver", SOLVERS)
def test_states_within_a_step_meet_its_ends(solver):
    for _, end, between in steps(pair_of(solver)):
        np.testing.assert_allclose([between(0.0), between(1.0)], [START, end], rtol=1e-14)


@pytest.mark.parametrize("solver", SOLVERS)
def test_times_to_save_do_not_change_the_steps(solver):
    def follow(times):
        return adaptive(field, START, np.asarray(times), pairs_of(solver), 1e-6, 1e-9, 1000, lambda *_: None)

    few, many = follow([0.0, 2.0]), follow(np.linspace(0, 2, 50))
    assert few.steps == many.steps
    np.testing.assert_array_equal(few.last, many.last)


@pytest.mark.parametrize("stages", [3, 5, 12])
def test_chebyshev_pairs_are_of_order_two(stages):
    pair = chebyshev_pair(stages)
    lengths, errors = zip(*((t, abs(end - exact(t)).max()) for t, end, _ in steps(pair)), strict=True)
    assert slope(lengths, errors) == pytest.approx(3, abs=0.4)


@pytest.mark.parametrize("stages", [3, 5, 12, 30])
def test_chebyshev_pairs_are_stable_as_far_as_their_stages_reach(stages):
    for z in np.linspace(0.01, 0.6 * (stages**2 - 1), 50):
        new, _ = _step(lambda x, z=z: -z * x, np.ones(1), -z * np.ones(1), 1.0, chebyshev_pair(stages))
        assert abs(new[0]) < 1


def test_a_longer_step_has_as_many_more_stages_as_it_needs():
    pairs = pairs_of("rkc", 2.0)
    assert [len(pairs(length).stages) for length in (0.1, 10.0, 100.0)] == [3, 6, 19]
