"""Each flow's Jacobian at a critical point has the eigenvalues that it claims."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import principalflow as pf

H = 0.004
FLOWS = [
    pf.flows.NegativeGradient(),
    pf.flows.PositiveGradient(),
    pf.flows.IGR(H),
    pf.flows.ThirdOrder(H),
    pf.flows.BackwardError(H, order=3),
]
COMPLEX_FLOWS = [pf.flows.Principal(H), pf.flows.PrincipalThirdOrder(H)]
MINIMUM = jnp.array([1.0, 1.0])  # of the banana function, which isn't quadratic there


@pytest.mark.parametrize("flow", FLOWS, ids=lambda flow: type(flow).__name__)
def test_real_flows(flow):
    banana = pf.functions.banana()
    jacobian = jax.jacfwd(lambda theta: flow.field(banana, theta))(MINIMUM)
    expected = flow.jacobian_eigenvalues(jnp.linalg.eigvalsh(banana.hessian(MINIMUM)))
    np.testing.assert_allclose(np.sort(jnp.linalg.eigvals(jacobian).real), np.sort(expected), rtol=1e-8)


@pytest.mark.parametrize("flow", COMPLEX_FLOWS, ids=lambda flow: type(flow).__name__)
def test_complex_flows(flow):
    banana = pf.functions.banana()
    r = 1e-4  # central differences: an error of r squared
    columns = [
        (flow.field(banana, MINIMUM + r * e) - flow.field(banana, MINIMUM - r * e)) / (2 * r) for e in jnp.eye(2)
    ]
    expected = flow.jacobian_eigenvalues(jnp.linalg.eigvalsh(banana.hessian(MINIMUM)))
    actual = jnp.linalg.eigvals(jnp.stack(columns, axis=1))
    np.testing.assert_allclose(np.sort_complex(actual), np.sort_complex(expected), rtol=1e-4)


def test_only_the_principal_flow_leaves_a_minimum_that_is_too_sharp():
    sharp = 2.5 / H
    assert pf.flows.Principal(H).jacobian_eigenvalues(sharp).real > 0
    for flow in (pf.flows.NegativeGradient(), pf.flows.IGR(H), pf.flows.ThirdOrder(H)):
        assert flow.jacobian_eigenvalues(sharp) < 0


def test_every_flow_is_repelled_along_mild_negative_curvature():
    for flow in (pf.flows.NegativeGradient(), pf.flows.IGR(H), pf.flows.ThirdOrder(H), pf.flows.Principal(H)):
        assert flow.jacobian_eigenvalues(-0.1 / H).real > 0
