"""The flow of two points about a centre."""

import jax.numpy as jnp
import numpy as np
import pytest
from cases import regression

import principalflow as pf
from principalflow.flows import TwoPoint, TwoPointState

VALLEY = pf.Objective(lambda w: w[1] * w[0] ** 2 / 2 - w[1] / 1000, jnp.array([0.01, 1.99]))


@pytest.mark.parametrize("h", [0.7, 0.8])  # h*lambda = 2.1 and 2.4 at 0
def test_the_quartic_comes_to_rest_at_descents_amplitude(h):
    quartic = pf.Objective(lambda w: 3 * w[0] ** 2 / 2 - w[0] ** 4 / 4, jnp.array([0.1]))
    state = pf.integrate(TwoPoint(h), quartic, [0.1], 400 * h, rtol=1e-11, atol=1e-13).states[-1]
    assert state.magnitude**2 == pytest.approx(3 - 2 / h, abs=1e-10)
    assert state.centre[0] == pytest.approx(0, abs=1e-10)


@pytest.mark.parametrize("sharpness", [2.3, 1.8, 1.3])
def test_on_quadratics_the_magnitude_is_multiplied_as_by_steps(sharpness):
    bowl = pf.functions.quadratic(np.diag([sharpness, 0.1]))
    solution = pf.integrate(TwoPoint(1.0, begin="eigenpairs"), bowl, [1e-3, 1.0], 10.0, rtol=1e-9, atol=1e-14)
    assert solution.states[-1].magnitude == pytest.approx(1e-3 * (sharpness - 1) ** 10, rel=1e-6)


def test_what_a_step_takes_away_decays_by_ten_a_step():
    bowl = pf.functions.quadratic([[1.0]])
    state = TwoPointState(jnp.zeros(1), jnp.ones(1), jnp.array(0.5))
    assert TwoPoint(1.0).field(bowl, state).magnitude == pytest.approx(0.5 * np.log(0.1))


@pytest.mark.parametrize("begin", ["iterates", "eigenpairs"])
def test_at_the_start_the_even_iterate_is_theta(begin):
    objective = regression()
    flow = TwoPoint(0.1, begin=begin)
    state = flow.start(objective, objective.theta)
    np.testing.assert_allclose(flow.parameters(state), objective.theta, rtol=1e-12)
    assert state.magnitude >= 0


def test_a_magnitude_of_nothing_has_a_finite_field():
    objective = regression()
    direction = jnp.ones_like(objective.theta) / jnp.sqrt(objective.theta.size)
    field = TwoPoint(0.1).evaluate(objective, TwoPointState(objective.theta, direction, jnp.array(0.0)))
    assert field.converged
    assert field.vector.magnitude == 0
    np.testing.assert_allclose(field.vector.centre, -objective.gradient(objective.theta), rtol=1e-12)


def test_the_direction_turns_to_the_sharpest_one():
    bowl = pf.functions.quadratic(np.diag([2.0, 1.0, -1.0]))
    state = TwoPointState(jnp.zeros(3), jnp.array([0.6, 0.8, 0.0]), jnp.array(0.1))
    turning = TwoPoint(1.0).field(bowl, state).direction
    assert turning @ state.direction == pytest.approx(0, abs=1e-15)
    assert turning[0] > 0


def test_the_sharpness_rises_above_the_edge_and_falls_as_that_of_descent():
    solution = pf.integrate(TwoPoint(1.0), VALLEY, VALLEY.theta, 200.0, rtol=1e-8, saves=200)
    path = pf.descend(VALLEY, VALLEY.theta, 1.0, 201).thetas[:, 1]
    of_descent = (path[:-2] + 2 * path[1:-1] + path[2:]) / 4
    sharpness = jnp.stack([state.centre[1] for state in solution.states])[1:]
    np.testing.assert_allclose(sharpness, of_descent, atol=0.1 * float(jnp.ptp(of_descent)))


@pytest.mark.parametrize(
    ("make", "word"), [(lambda: TwoPoint(0.0), "h"), (lambda: TwoPoint(0.1, begin="guess"), "begin")]
)
def test_errors_name_the_argument(make, word):
    with pytest.raises(ValueError, match=f"^{word} must"):
        make()
