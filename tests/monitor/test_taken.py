"""What a step says of the edge, against closed forms on quadratics."""

import math

import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given
from hypothesis import strategies as st
from monitor.cases import BOWL

import principalflow as pf
from principalflow.monitor import Taken, critical_factor
from principalflow.monitor._taken import split
from principalflow.optimizers import Edge, Filter, Part

THETA = jnp.array([1.0, 1.0])


def step_of(h, theta=THETA, curvature=(1.0, 4.0)):
    """A step of descent on a bowl as keywords of `observe`, with where it leads."""
    gradient = jnp.array(curvature) * theta
    return theta - h * gradient, dict(updates=-h * gradient, gradient=gradient, loss=theta @ gradient / 2)


def second_row(h, monitor):
    """The row of a step whose rate was given before it."""
    after, step = step_of(h)
    monitor.observe(0, THETA, h)
    return monitor.observe(1, after, h, **step)


@given(h=st.floats(0.01, 3))
def test_the_realised_edge_of_descent_is_h_times_the_curvature_along_the_gradient_over_two(h):
    after, step = step_of(h)
    row = pf.Monitor(BOWL, measure="cheap").observe(1, after, h, **step)
    along = 65 / 17  # g.Hg / g.g with g = (1, 4)
    assert row["realised_edge"] == pytest.approx(h * along / 2, rel=1e-9)
    assert (row["realised_edge"] > 1) == (row["batch_loss_change"] > 0)


def test_the_numbers_of_a_step_are_its_own():
    after, step = step_of(0.1)
    row = pf.Monitor(BOWL, measure="cheap").observe(1, after, 0.1, **step)
    assert row["batch_loss"] == 2.5
    assert row["batch_loss_change"] == pytest.approx(float(BOWL.value(after)) - 2.5)
    assert row["batch_gradient_norm"] == pytest.approx(math.sqrt(17))
    assert row["update_norm"] == pytest.approx(0.1 * math.sqrt(17))
    assert row["batch_slope"] == pytest.approx(-1.7)


def test_what_is_left_out_of_a_step_is_computed():
    after, step = step_of(0.1)
    whole = pf.Monitor(BOWL, measure="cheap").observe(1, after, 0.1, **step)
    part = pf.Monitor(BOWL, measure="cheap").observe(1, after, 0.1, updates=step["updates"])
    assert part.pop("events") == whole.pop("events") == []
    assert part == pytest.approx(whole)


@pytest.mark.parametrize(("given", "column"), [("gradient", "batch_gradient_norm"), ("loss", "batch_loss")])
def test_what_is_given_of_a_step_is_taken_though_the_rest_is_computed(given, column):
    after, step = step_of(0.1)
    step = {"updates": step["updates"], given: 100 * step[given]}
    row = pf.Monitor(BOWL, measure="cheap").observe(1, after, 0.1, **step)
    assert row[column] == pytest.approx(100 * (math.sqrt(17) if given == "gradient" else 2.5))


def test_a_loss_that_is_no_number_is_refused_by_its_name():
    after, step = step_of(0.1)
    with pytest.raises(ValueError, match=r"^loss must be one number, got shape \(1,\)"):
        pf.Monitor(BOWL, measure="cheap").observe(1, after, 0.1, **step | dict(loss=jnp.ones(1)))


@pytest.mark.parametrize("reads", [True, False])
def test_the_split_goes_by_the_rate_that_the_step_was_taken_at(reads):
    tx = optax.sgd(optax.piecewise_constant_schedule(0.01, {2: 10.0}))
    monitor = pf.Monitor(BOWL, k=1, every=1, **dict(optimizer=tx) if reads else {})
    theta, state = THETA, tx.init(THETA)
    for step, (h, following) in enumerate([(0.01, 0.01), (0.01, 0.1), (0.1, 0.1)], 1):
        gradient = BOWL.gradient(theta)
        updates, state = tx.update(gradient, state)
        theta = theta + updates
        own = dict(state=state) if reads else {}
        row = monitor.observe(step, theta, following, **own, updates=updates, gradient=gradient)
        if reads or step > 1:
            assert row["directional_sharpness"] == pytest.approx(
                float(gradient @ BOWL.hvp(theta, gradient) / (gradient @ gradient))
            )
            assert (row["momentum"], row["landscape"]) == pytest.approx((1, 4 * h / 2))


def test_where_the_rate_of_a_step_is_not_known_what_depends_on_it_is_left_out():
    after, step = step_of(0.1)
    row = pf.Monitor(BOWL, k=1).observe(1, after, 0.1, **step)
    assert {"directional_sharpness", "landscape", "direction", "momentum"}.isdisjoint(row)
    assert "batch_sharpness" in row


def test_a_step_is_judged_on_its_own_batch():
    inputs, targets = jnp.arange(1.0, 5.0), jnp.zeros(4)
    objective = pf.Objective(lambda w, batch: jnp.mean((w * batch[0] - batch[1]) ** 2), 1.0, (inputs, targets))
    batch = inputs[3:], targets[3:]  # its curvature is 32
    monitor = pf.Monitor(objective, measure="cheap")
    after, update, gradient = (jnp.array([x]) for x in (1.0 - 0.32, -0.32, 32.0))
    row = monitor.observe(1, after, 0.01, updates=update, gradient=gradient, loss=16.0, batch=batch)
    assert row["realised_edge"] == pytest.approx(0.01 * 32 / 2)


def test_directional_sharpness_is_the_curvature_along_the_update():
    row = second_row(0.1, pf.Monitor(BOWL, k=1, every=1))
    assert row["directional_sharpness"] == pytest.approx(65 / 17)


@given(h=st.floats(0.05, 0.6), momentum=st.floats(0, 0.9))
def test_the_realised_edge_is_landscape_times_direction_over_momentum(h, momentum):
    row = second_row(h, pf.Monitor(BOWL, k=1, every=1, momentum=momentum))
    assert row["landscape"] == pytest.approx(row["edge"])
    product = row["landscape"] * row["direction"] / row["momentum"]
    assert product == pytest.approx(row["realised_edge"], rel=1e-9)


def test_plain_descent_has_a_momentum_of_one():
    assert second_row(0.1, pf.Monitor(BOWL, k=1, every=1))["momentum"] == pytest.approx(1)


def test_the_split_is_taken_in_the_metric():
    P = np.array([4.0, 1.0])
    gradient = np.array([1.0, 4.0])
    update = -0.1 * gradient / P
    taken = Taken(2.5, 2.0, float(gradient @ update), 1.0, 1.0, learning_rate=0.1)
    edge = Edge(optimizer="adam", part=Part(learning_rate=0.1, filter=Filter.average(0.9)), preconditioner=P)
    parts = split(taken, edge, 4.0, float(update @ (P * update)))
    assert parts["landscape"] * parts["direction"] / parts["momentum"] == pytest.approx(taken.realised_edge)
    assert parts["landscape"] == pytest.approx(4.0 / edge.threshold)


def test_an_update_that_goes_uphill_has_no_realised_edge():
    assert math.isnan(Taken(1.0, 1.1, 0.1, 1.0, 1.0).realised_edge)


def test_a_change_within_rounding_has_no_realised_edge():
    assert math.isnan(Taken(1.0, 1.0, -1e-17, 1.0, 1.0, eps=2e-16).realised_edge)


def test_a_step_into_infinity_has_an_infinite_realised_edge():
    assert Taken(1.0, math.nan, -0.1, 1.0, 1.0).realised_edge == math.inf


@given(curvature=st.floats(1e-3, 1e3), start=st.floats(1e-2, 1e2))
def test_the_critical_factor_of_a_parabola_is_found_to_a_sixteenth(curvature, start):
    found = critical_factor(lambda factor: -factor + curvature * factor**2 / 2, start=start)
    assert found == pytest.approx(2 / curvature, rel=1 / 16)


def test_a_loss_that_never_rises_has_an_infinite_critical_factor():
    assert critical_factor(lambda factor: -factor) == math.inf


def test_a_loss_that_always_rises_has_no_critical_factor():
    assert math.isnan(critical_factor(lambda factor: factor))


def test_cheap_measures_take_no_hessian_product(monkeypatch):
    def none(*_):
        raise AssertionError("a Hessian product")

    monkeypatch.setattr(pf.Objective, "hvp", none)
    monkeypatch.setattr(pf.Objective, "linearize", none)
    after, step = step_of(0.1)
    monitor = pf.Monitor(BOWL, measure="cheap")
    assert "realised_edge" in monitor.observe(1, after, 0.1, **step)
    assert monitor.observe(2, after, 0.1) is None


def test_steps_are_watched_between_measurements_of_the_curvature():
    monitor, theta = pf.Monitor(BOWL, k=1, every=3), THETA
    for number in range(1, 6):
        theta, step = step_of(0.1, theta)
        monitor.observe(number, theta, 0.1, **step)
    assert ["eigenvalue_0" in row for row in monitor.rows] == [True, False, False, True, False]
    assert all("realised_edge" in row for row in monitor.rows)
    assert "5 steps were watched" in monitor.summary()


def test_losses_that_are_plain_numbers_compile_once():
    monitor, (after, step) = pf.Monitor(BOWL, measure="cheap"), step_of(0.1)
    for number, loss in enumerate((2.5, 2.6, 2.7)):
        monitor.observe(number, np.asarray(after), 0.1, **step | dict(loss=loss))
    programs = [key for key in BOWL._programs._programs if key[0].__name__ == "_numbers"]
    assert len(programs) == 1


def test_batch_sharpness_is_the_curvature_along_the_gradient_of_the_batch():
    after, step = step_of(0.1)
    monitor = pf.Monitor(BOWL, k=1, every=1)
    monitor.observe(0, THETA, 0.1)
    row = monitor.observe(1, after, 0.1, **step | dict(updates=jnp.array([0.0, -0.1])))
    assert row["batch_sharpness"] != row["directional_sharpness"]
    before = after - jnp.array([0.0, -0.1])
    g = step["gradient"]
    assert row["batch_sharpness"] == pytest.approx(float(g @ BOWL.hvp(before, g) / (g @ g)))
