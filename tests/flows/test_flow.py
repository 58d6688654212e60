"""What every flow has."""

import jax.numpy as jnp
import pytest

import principalflow as pf
from principalflow.flows import Central, CentralRMSProp, CentralRMSPropState, CentralState

VALLEY = pf.Objective(lambda w: w[1] * w[0] ** 2 / 2 - w[1] / 1000, jnp.array([0.0, 2.0]))


def test_without_an_oscillation_the_mean_loss_is_the_loss():
    bowl = pf.functions.quadratic([[2.0]])
    assert pf.flows.NegativeGradient().mean_loss(bowl, jnp.array([3.0])) == 9


@pytest.mark.parametrize("flow", ["TwoStep", "Pair", "TwoPoint", "Rod"])
def test_the_mean_loss_at_rest_is_that_of_descents_cycle(flow):
    h = 0.7  # h*lambda = 2.1 at 0
    quartic = pf.Objective(lambda w: 3 * w[0] ** 2 / 2 - w[0] ** 4 / 4, jnp.array([0.1]))
    flow = getattr(pf.flows, flow)(h)
    state = pf.integrate(flow, quartic, [0.1], 400 * h, rtol=1e-11, atol=1e-13).states[-1]
    cycle = pf.descend(quartic, [0.1], h, 4000, keep="last").thetas[-1]
    assert flow.mean_loss(quartic, state) == pytest.approx(float(quartic.value(cycle)), rel=1e-7)


def test_the_mean_loss_of_central_flows_is_that_on_both_sides_of_the_centre():
    centre, across = jnp.array([0.0, 2.0]), jnp.array([[1.0], [0.0]])

    def mean(x_squared):
        return float(VALLEY.value(jnp.array([x_squared**0.5, 2.0])))

    flow, state = Central(1.0, k=1), CentralState(centre, across)
    x_squared = float(flow.covariance(VALLEY, state)[0, 0])
    assert flow.mean_loss(VALLEY, state) == pytest.approx(mean(x_squared), abs=1e-12)

    metric, h = 1.0, 0.01
    flow = CentralRMSProp(h, decay=0.9, eps=1e-15, k=1)
    state = CentralRMSPropState(centre, jnp.array([(h * metric) ** 2, (3 * h) ** 2]), across)
    x_squared = float(flow.covariance(VALLEY, state)[0, 0]) / metric
    assert flow.mean_loss(VALLEY, state) == pytest.approx(mean(x_squared), abs=1e-12)
