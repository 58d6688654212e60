"""The central flow of RMSProp."""

import jax.numpy as jnp
import numpy as np
import pytest
from cases import regression

import principalflow as pf
from principalflow.flows import Central, CentralRMSProp, CentralRMSPropState, CentralState

VALLEY = pf.Objective(lambda w: w[1] * w[0] ** 2 / 2 - w[1] / 1000, jnp.array([0.0, 1.99]))


def test_below_the_edge_it_is_the_flow_of_the_update():
    objective, flow = regression(), CentralRMSProp(1e-5, decay=0.9)
    state = flow.start(objective, objective.theta)
    field = flow.evaluate(objective, state)
    g = objective.gradient(objective.theta)
    np.testing.assert_allclose(field.vector.centre, -1e-5 * g / (jnp.sqrt(state.nu) + 1e-8), rtol=1e-9)
    np.testing.assert_allclose(field.vector.nu, (g**2 - state.nu) / 9, rtol=1e-9)
    assert int(field.contractions) == 0


def test_the_average_at_the_start_is_that_of_the_next_step():
    objective = regression()
    former = jnp.linspace(0, 1, objective.theta.size)
    state = CentralRMSProp(1e-3, decay=0.9, nu=objective.unravel(former)).start(objective, objective.theta)
    np.testing.assert_allclose(state.nu, 0.9 * former + 0.1 * objective.gradient(objective.theta) ** 2, rtol=1e-12)


def test_at_a_constant_metric_it_is_the_flow_of_descent():
    objective = regression()
    pairs = pf.spectrum.top_eigenpairs(objective, objective.theta, 2)
    h, directions = 2.0 / float(pairs.values[1]), jnp.asarray(pairs.vectors)
    descent = Central(h, k=2).field(objective, CentralState(objective.theta, directions))
    # The metric 0.5 / 0.5h is 1 / h, and one unit of time is a step.
    flow = CentralRMSProp(0.5 * h, decay=1 - 1e-13, eps=1e-12, k=2)
    state = CentralRMSPropState(objective.theta, jnp.full_like(objective.theta, 0.25), directions)
    field = flow.evaluate(objective, state)
    assert int(field.contractions) == 3
    np.testing.assert_allclose(field.vector.centre, h * descent.centre, rtol=1e-6, atol=1e-9)


def test_the_covariance_along_one_direction_keeps_twice_the_metric_above_the_curvature():
    # Here H = y along x, and y = 2P; then 2 dP/dt = dy/dt has X, with nu' and y' linear in it.
    h, decay, P = 0.01, 0.9, np.array([1.0, 3.0])
    nu, rate = (h * P) ** 2, 0.1 / 0.9
    flow = CentralRMSProp(h, decay=decay, eps=1e-15, k=1)
    state = CentralRMSPropState(jnp.array([0.0, 2.0]), jnp.asarray(nu), jnp.array([[1.0], [0.0]]))
    # 2 / (2h sqrt(nu)) * rate * (y^2 X / P - nu) = (1/1000 - X / (2P)) / P_y
    slope = rate / (h * np.sqrt(nu[0]))
    X = (0.001 / P[1] + slope * nu[0]) / (slope * 4 / P[0] + 1 / (2 * P[0] * P[1]))
    np.testing.assert_allclose(flow.covariance(VALLEY, state), [[X]], rtol=1e-6)


def test_the_sharpness_in_the_metric_is_held():
    flow = CentralRMSProp(0.01, decay=0.9, nu=[1e-4, 1e-6], k=1)
    solution = pf.integrate(flow, VALLEY, [0.0, 1.99], 200.0)
    state = solution.states[-1]
    assert state.centre[1] > 2.0
    assert state.centre[1] / flow.metric(state.nu)[0] == pytest.approx(2, rel=1e-3)


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda: CentralRMSProp(0.0), "h"),
        (lambda: CentralRMSProp(0.1, decay=1.0), "decay"),
        (lambda: CentralRMSProp(0.1, eps=0.0), "eps"),
        (lambda: CentralRMSProp(0.1, k=0), "k"),
        (lambda: CentralRMSProp(0.1, substep=0), "substep"),
        (lambda: CentralRMSProp(0.1, nu=[-1.0, 0.0]).start(VALLEY, VALLEY.theta), "nu"),
        (lambda: CentralRMSProp(0.1, nu=[1.0]).start(VALLEY, VALLEY.theta), "nu"),
    ],
)
def test_errors_name_the_argument(make, word):
    with pytest.raises(ValueError, match=f"^{word} must"):
        make()
