"""The flow with one eigendirection turned round."""

import jax.numpy as jnp
import numpy as np
import pytest
from cases import regression

import principalflow as pf

NETWORK = regression(samples=20, sizes=(5, 12, 3))  # 111 parameters: the Krylov route


@pytest.mark.parametrize("index", [0, 2])
def test_field_is_the_gradient_flow_with_one_sign_turned(index):
    gradient = NETWORK.gradient(NETWORK.theta)
    vectors = jnp.linalg.eigh(NETWORK.hessian(NETWORK.theta))[1][:, ::-1]
    coefficients = -jnp.ones(NETWORK.theta.size).at[index].set(-1.0)
    expected = vectors @ (coefficients * (vectors.T @ gradient))
    actual = pf.flows.FlippedDirection(index, rtol=1e-10, max_products=111).field(NETWORK, NETWORK.theta)
    np.testing.assert_allclose(actual, expected, atol=1e-8)


def test_the_direction_is_found_where_the_gradient_is_blind_to_it():
    diagonal = jnp.arange(1.0, 101.0)
    bowl = pf.Objective(lambda theta: jnp.sum(diagonal * theta**2) / 2, jnp.zeros(100))
    theta = jnp.ones(100).at[-1].set(0.0)
    found = pf.flows.FlippedDirection(max_products=100).direction(bowl, theta)
    assert found.converged
    np.testing.assert_allclose(jnp.abs(found.vector), jnp.eye(100)[-1], atol=1e-6)


def test_a_negative_definite_hessian_has_its_largest_direction():
    diagonal = -jnp.arange(1.0, 101.0)
    hill = pf.Objective(lambda theta: jnp.sum(diagonal * theta**2) / 2, jnp.zeros(100))
    found = pf.flows.FlippedDirection(max_products=100).direction(hill, jnp.ones(100))
    np.testing.assert_allclose(jnp.abs(found.vector), jnp.eye(100)[0], atol=1e-5)


def test_on_a_quadratic_one_coordinate_grows_and_the_others_shrink():
    bowl = pf.functions.quadratic(jnp.diag(jnp.array([1.0, 3.0])))
    end = pf.integrate(pf.flows.FlippedDirection(), bowl, [1.0, 1.0], time=0.5).thetas[-1]
    np.testing.assert_allclose(end, [np.exp(-0.5), np.exp(1.5)], rtol=1e-5)


def test_the_loss_rises_where_the_gradient_flow_lowers_it():
    theta = NETWORK.theta
    flipped = pf.integrate(pf.flows.FlippedDirection(), NETWORK, theta, time=0.3, rtol=1e-4)
    straight = pf.integrate(pf.flows.NegativeGradient(), NETWORK, theta, time=0.3)
    assert flipped.status == "completed"
    assert NETWORK.value(flipped.thetas[-1]) > NETWORK.value(theta) > NETWORK.value(straight.thetas[-1])


def test_a_direction_that_lanczos_cannot_tell_is_not_called_found():
    sphere = pf.Objective(lambda theta: jnp.sum(theta**2) / 2, jnp.ones(100))
    found = pf.flows.FlippedDirection(1).direction(sphere, sphere.theta)
    assert not found.converged
    assert found.error == jnp.inf


@pytest.mark.parametrize(
    "arguments", [dict(index=-1), dict(index=0.5), dict(rtol=0), dict(rtol=1), dict(index=5, max_products=5)]
)
def test_bad_arguments_are_refused(arguments):
    with pytest.raises(ValueError, match="must be"):
        pf.flows.FlippedDirection(**arguments)


def test_an_index_beyond_the_parameters_is_refused():
    with pytest.raises(ValueError, match="index must be below the number of parameters, 2, got 2"):
        pf.flows.FlippedDirection(2).field(pf.functions.banana(), [1.0, 1.0])


def test_complex_parameters_are_refused():
    with pytest.raises(ValueError, match="theta must be real"):
        pf.flows.FlippedDirection().field(pf.functions.banana(), [1.0 + 1j, 1.0])


@pytest.mark.parametrize("size", [3, 100])
def test_where_the_hessian_is_not_finite_the_direction_is_not_converged(size):
    roots = pf.Objective(lambda theta: jnp.sum(theta ** (3 / 2)), jnp.ones(size))
    found = pf.flows.FlippedDirection().direction(roots, jnp.zeros(size))
    assert not found.converged
    assert found.error == jnp.inf


def test_options_may_be_any_whole_and_real_numbers():
    bowl = pf.functions.quadratic(np.diag([1.0, 2.0, 3.0]))
    flow = pf.flows.FlippedDirection(np.uint8(2), rtol=jnp.array(0.1), max_products=np.int64(9))
    np.testing.assert_allclose(flow.field(bowl, [1.0, 1.0, 1.0]), [1.0, -2.0, -3.0])
