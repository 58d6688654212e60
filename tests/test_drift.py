"""Drift against closed forms and slopes."""

import jax.numpy as jnp
import numpy as np
import pytest
from cases import regression, slope

import principalflow as pf

NETWORK = regression()
RATES = np.geomspace(0.004, 0.032, 4)


def test_drift_of_the_gradient_flow_on_a_quadratic():
    bowl = pf.functions.quadratic([[2.0]])
    np.testing.assert_allclose(pf.drift.per_iteration(bowl, [1.0], h=0.1), np.exp(-0.2) - 0.8, rtol=1e-6)


def test_the_principal_flow_has_no_drift_on_quadratics():
    bowl = pf.functions.quadratic([[2.0, 0.5], [0.5, 1.0]])
    assert pf.drift.per_iteration(bowl, [1.0, 1.0], h=1.2, flow=pf.flows.Principal(1.2)) < 5e-5  # 1e-5 of the step


def test_global_drift_is_the_distance_from_one_start():
    bowl = pf.functions.quadratic([[1.0]])
    steps = np.arange(1, 6)
    np.testing.assert_allclose(
        pf.drift.global_drift(bowl, [1.0], h=0.1, steps=5), np.exp(-0.1 * steps) - 0.9**steps, rtol=1e-5
    )


def test_the_estimate_is_the_leading_term():
    gaps = []
    for h in RATES:
        measured = pf.drift.per_iteration(NETWORK, NETWORK.theta, h)
        gaps.append(abs(measured - pf.drift.estimate(NETWORK, NETWORK.theta, h)))
    assert abs(slope(RATES, gaps) - 3) < 0.2


def test_finite_differences_estimate_the_same():
    exact, difference = (
        pf.drift.estimate(NETWORK, NETWORK.theta, 0.1, curvature=curvature)
        for curvature in ("hvp", "finite_difference")
    )
    np.testing.assert_allclose(difference, exact, rtol=0.02)  # epsilon is 0.01 in units of the gradient's length


@pytest.mark.parametrize("curvature", ["hvp", "finite_difference"])
def test_a_critical_point_does_not_drift(curvature):
    assert pf.drift.estimate(pf.functions.banana(), [1.0, 1.0], 0.1, curvature=curvature) == 0


def test_a_flow_that_ends_early_is_named():
    runaway = pf.Objective(lambda theta: -jnp.sum(theta**4), jnp.array([1.0]))
    with pytest.warns(pf.drift.DriftWarning, match="drift from step 1 on is not known: diverged") as warned:
        assert np.isnan(pf.drift.per_iteration(runaway, [1.0], h=0.3))
    assert warned[0].message.status is pf.Status.DIVERGED


@pytest.mark.parametrize("settled", [True, False])
def test_momentum_drift_is_the_flow_minus_the_step_to_second_order(settled):
    m, gaps = 0.6, []
    gradient = NETWORK.gradient(NETWORK.theta)
    for h in RATES:
        velocity = -h / (1 - m) * gradient if settled else jnp.zeros_like(gradient)
        step = NETWORK.theta + m * velocity - h * gradient
        flow = pf.integrate(pf.flows.NegativeGradient(), NETWORK, NETWORK.theta, h / (1 - m), rtol=1e-12, atol=1e-14)
        drift = pf.drift.momentum(NETWORK, NETWORK.theta, velocity, h, m)
        gaps.append(jnp.linalg.norm(flow.thetas[-1] - step - drift.total))
    assert abs(slope(RATES, gaps) - 3) < 0.3


def test_momentum_drift_without_momentum_is_that_of_descent():
    drift = pf.drift.momentum(NETWORK, NETWORK.theta, jnp.zeros_like(NETWORK.theta), 0.1, momentum=0.0)
    np.testing.assert_allclose(jnp.linalg.norm(drift.total), pf.drift.estimate(NETWORK, NETWORK.theta, 0.1))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(h=0), "h must be"),
        (dict(momentum=1.0), "momentum must be a number of at least 0 and below 1"),
        (dict(momentum=-0.1), "momentum must be"),
        (dict(velocity=jnp.zeros(3)), "velocity must be flat"),
        (dict(velocity=NETWORK.theta * jnp.nan), "velocity must be finite"),
        (dict(theta=NETWORK.theta * jnp.nan), "theta must be finite"),
        (dict(curvature="exact"), "curvature must be one of"),
        (dict(h=1e308), "h must be a learning rate from"),
        (dict(h=10**400), "h must be within the range of floating-point numbers"),
        (dict(velocity=np.array(["a"] * NETWORK.theta.size)), "velocity must be an array of numbers"),
        (dict(objective=None), "objective must be a principalflow.Objective"),
    ],
)
def test_bad_input_is_refused(changes, message):
    good = dict(objective=NETWORK, theta=NETWORK.theta, velocity=jnp.zeros_like(NETWORK.theta), h=0.1, momentum=0.9)
    with pytest.raises(ValueError, match=message):
        pf.drift.momentum(**(good | changes))


@pytest.mark.parametrize("flow", ["", [], 0, "ngf", pf.flows.NegativeGradient])
def test_what_is_no_flow_is_not_taken_for_the_gradient_flow(flow):
    with pytest.raises(ValueError, match="flow must be a flow"):
        pf.drift.per_iteration(NETWORK, NETWORK.theta, h=0.1, flow=flow)


@pytest.mark.parametrize("curvature", ["hvp", "finite_difference"])
def test_the_estimate_takes_the_parameters_that_the_objective_was_made_with(curvature):
    params = {"a": jnp.array([1.0, 2.0]), "b": jnp.array(0.5)}
    objective = pf.Objective(lambda p: jnp.sum(p["a"] ** 2) + p["b"] ** 4, params)
    found = [pf.drift.estimate(objective, theta, 0.1, curvature=curvature) for theta in (params, objective.theta)]
    assert found[0] == found[1]
