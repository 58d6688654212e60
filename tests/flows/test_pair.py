"""The flow of centre and amplitude."""

import jax.numpy as jnp
import numpy as np
import pytest
from cases import regression

import principalflow as pf
from principalflow.flows import Pair, PairState


def quartic(start):
    return pf.Objective(lambda w: 3 * w[0] ** 2 / 2 - w[0] ** 4 / 4, jnp.array([start]))


@pytest.mark.parametrize("h", [0.7, 0.8])  # h*lambda = 2.1 and 2.4 at 0
@pytest.mark.parametrize("orders", [(1, 1), (2, 2), (3, 2)])
def test_the_quartic_comes_to_rest_at_descents_amplitude(h, orders):
    solution = pf.integrate(Pair(h, orders=orders), quartic(0.1), [0.1], 400 * h, rtol=1e-11, atol=1e-13)
    state = solution.states[-1]
    assert state.amplitude[0] ** 2 == pytest.approx(3 - 2 / h, abs=1e-10)
    assert state.centre[0] == pytest.approx(0, abs=1e-10)


def test_at_the_start_centre_and_amplitude_are_theta():
    objective = regression()
    for begin in ("iterates", "eigenpairs"):
        flow = Pair(0.1, begin=begin)
        state = flow.start(objective, objective.theta)
        np.testing.assert_allclose(flow.parameters(state), objective.theta, rtol=1e-12)


@pytest.mark.parametrize("begin", ["iterates", "eigenpairs"])
def test_the_amplitude_is_found_on_quadratics(begin):
    h, lambdas = 0.5, np.array([4.02, 3.98, 0.02])
    bowl = pf.functions.quadratic(np.diag(lambdas))
    theta = jnp.array([1e-6, -2e-6, 1.0])  # the last is drift, a million times as large
    amplitude = Pair(h, begin=begin).start(bowl, theta).amplitude
    np.testing.assert_allclose(amplitude[:2], theta[:2], rtol=2e-3)
    assert abs(amplitude[2]) < 1e-6


def test_euler_steps_of_h_are_descent_with_one_term():
    objective, h = regression(), 0.3
    flow = Pair(h, orders=(1, 1))
    solution = pf.integrate(flow, objective, objective.theta, 3 * h, solver="euler", step=h)
    path = pf.descend(objective, objective.theta, h, 3).thetas
    np.testing.assert_allclose(flow.iterates(objective, solution.states[-1])[1], path[3], rtol=1e-12)


def test_orders_of_one_are_the_averaged_gradient_and_the_difference():
    objective, h = regression(), 0.3
    c, v = objective.theta, 0.01 * jnp.ones_like(objective.theta)
    field = Pair(h, orders=(1, 1)).field(objective, PairState(c, v))
    above, below = objective.gradient(c + v), objective.gradient(c - v)
    np.testing.assert_allclose(field.centre, -(above + below) / 2, rtol=1e-12)
    np.testing.assert_allclose(field.amplitude, (above - below) / 2 - 2 * v / h, rtol=1e-12)


def test_it_goes_on_where_the_series_of_two_steps_diverges():
    bowl = pf.functions.quadratic(jnp.diag(jnp.array([2.5, 0.1])))
    flow = Pair(1.0, orders=(2, 6), begin="eigenpairs")
    solution = pf.integrate(flow, bowl, [1e-3, 1.0], 10.0)
    assert solution.status == "completed"
    np.testing.assert_allclose(solution.theta, pf.descend(bowl, [1e-3, 1.0], 1.0, 10).thetas[-1], rtol=0.02)


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda: Pair(0.0), "h"),
        (lambda: Pair(0.1, orders=2), "orders"),
        (lambda: Pair(0.1, orders=(0, 2)), "orders"),
        (lambda: Pair(0.1, begin="guess"), "begin"),
        (lambda: Pair(0.1, k=0), "k"),
    ],
)
def test_errors_name_the_argument(make, word):
    with pytest.raises(ValueError, match=f"^{word} must"):
        make()
