import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import network, random_quadratic, regression, square_loss
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_digits

import principalflow as pf


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 20])
def test_integrated_on_quadratics_it_equals_descent_at_each_of_20_steps(size):
    h = 0.3
    A, b, theta = random_quadratic(size, h, seed=size)
    bowl = pf.functions.quadratic(A, b)
    path = pf.descend(bowl, theta, h, 20)
    solution = pf.integrate(pf.flows.Principal(h), bowl, theta, 20 * h, rtol=1e-12, atol=1e-14, saves=20)
    assert solution.status == "completed"
    error = jnp.linalg.norm(solution.thetas - path.thetas, axis=1)
    assert jnp.all(error <= 1e-8 * jnp.linalg.norm(path.thetas, axis=1))


@pytest.mark.parametrize("method", ["dense", "krylov"])
@pytest.mark.parametrize("branch", ["continuous", "principal"])
def test_at_real_and_complex_dtype_the_field_is_the_same(method, branch):
    objective = regression(sizes=(2, 5, 1))
    flow = pf.flows.Principal(h=2.0, branch=branch, method=method, rtol=1e-13)
    theta = objective.theta
    assert jnp.linalg.eigvalsh(objective.hessian(theta))[-1] > 1 / flow.h
    np.testing.assert_allclose(flow.field(objective, theta + 0j), flow.field(objective, theta), rtol=1e-9)


@pytest.mark.parametrize("branch", ["continuous", "principal"])
@pytest.mark.parametrize("offset", [0.0, 0.05j])
def test_krylov_equals_dense(branch, offset):
    objective = regression(samples=20, sizes=(4, 16, 3))
    theta = objective.theta + offset if offset else objective.theta
    dense, krylov = (
        pf.flows.Principal(h=0.2, branch=branch, method=m).evaluate(objective, theta) for m in ("dense", "krylov")
    )
    assert krylov.converged
    assert jnp.linalg.norm(krylov.vector - dense.vector) <= 1e-8 * jnp.linalg.norm(dense.vector)
    assert int(krylov.products) < theta.size


@pytest.mark.slow
def test_on_a_network_of_1482_parameters_at_the_edge_krylov_equals_dense_within_30_products():
    images, labels = load_digits(return_X_y=True)
    data = (images[:300] / 16, np.eye(10)[labels[:300]])
    objective = pf.Objective(lambda p, batch: square_loss(p, batch) / 2, network((64, 16, 16, 10)), data)
    h = 0.115
    theta = pf.descend(objective, objective.theta, h, 1300).thetas[-1]
    values, vectors = jnp.linalg.eigh(objective.hessian(theta))
    assert theta.size == 1482
    assert h * values[-1] > 1.9
    flow = pf.flows.Principal(h)
    dense = vectors @ (flow.alpha(h * values) * (vectors.T @ objective.gradient(theta)))
    krylov = flow.evaluate(objective, theta)
    assert jnp.linalg.norm(krylov.vector - dense) <= 1e-8 * jnp.linalg.norm(dense)
    assert int(krylov.products) <= 30


@pytest.mark.parametrize("method", ["dense", "krylov"])
def test_it_holds_for_a_defective_complex_hessian(method):
    # The Hessian [[z + i, 1], [1, z - i]]/h has one eigenvector; the derivative of phi replaces the other.
    z, h = 1.4 + 0.2j, 0.5
    nilpotent = jnp.array([[1j, 1], [1, -1j]])
    A = (z * jnp.eye(2) + nilpotent) / h
    objective = pf.Objective(lambda theta: 0.5 * theta @ A @ theta, jnp.array([1.0 + 0j, 0.5]))
    flow = pf.flows.Principal(h, method=method)
    g = objective.gradient(objective.theta)
    derivative = (-1 / (1 - z) - flow.alpha(z)) / z
    expected = flow.alpha(z) * g + derivative * (nilpotent @ g)
    np.testing.assert_allclose(flow.field(objective, objective.theta), expected, rtol=1e-10)


def test_the_continuous_branch_solves_the_banana_step_in_few_steps_and_a_fifth_of_the_error():
    banana, theta, h = pf.functions.banana(), jnp.array([1.3, 1.5]), 0.0017
    step = theta - h * banana.gradient(theta)
    continuous = pf.integrate(pf.flows.Principal(h), banana, theta, h, rtol=1e-9)
    assert continuous.status == "completed"
    assert continuous.steps <= 50
    adaptive = pf.integrate(pf.flows.Principal(h, branch="principal"), banana, theta, h, rtol=1e-9, max_steps=500)
    assert adaptive.status in ("stuck", "max_steps")  # it chatters on the cut
    assert len(adaptive.thetas) == 1
    principal = pf.integrate(pf.flows.Principal(h, branch="principal"), banana, theta, h, solver="euler", step=h / 4000)
    error, principal_error = (jnp.linalg.norm(s.thetas[-1] - step) for s in (continuous, principal))
    assert error <= principal_error / 5


@given(z=st.floats(-50, 50))
def test_alpha_is_real_below_one_and_its_real_part_turns_positive_at_two(z):
    alpha = pf.flows.Principal(h=1.0).alpha(z)
    assert (abs(alpha.imag) > 0) == (z > 1)
    if abs(z - 2) > 1e-9:
        assert (alpha.real > 0) == (z > 2)


def test_small_rates_give_the_negative_gradient_flow():
    banana = pf.functions.banana()
    field = pf.flows.Principal(h=1e-12).field(banana, banana.theta)
    np.testing.assert_allclose(field, -banana.gradient(banana.theta), rtol=1e-8)


def test_the_third_order_term_is_added_whole():
    banana, h = pf.functions.banana(), 0.001
    theta = banana.theta
    g = banana.gradient(theta)
    third = jnp.einsum("ijk,j,k->i", jax.jacfwd(jax.hessian(banana.value))(theta), g, g)
    difference = pf.flows.PrincipalThirdOrder(h).field(banana, theta) - pf.flows.Principal(h).field(banana, theta)
    np.testing.assert_allclose(difference, -(h**2) / 12 * third, rtol=1e-10)


def test_an_eigenvalue_of_exactly_one_over_h_is_floored_and_not_infinite():
    bowl = pf.functions.quadratic([[2.0]])
    solution = pf.integrate(pf.flows.Principal(h=0.5), bowl, [1.0], time=0.5, rtol=1e-9, atol=1e-12)
    assert solution.status == "completed"
    np.testing.assert_allclose(solution.thetas[-1], 0, atol=1e-9)  # descent lands on the minimum


@pytest.mark.parametrize("method", ["dense", "krylov"])
@pytest.mark.parametrize("offset", [0.0, 0.0j])
def test_where_the_hessian_is_not_finite_the_field_is_not_converged(method, offset):
    roots = pf.Objective(lambda theta: jnp.sum(theta ** (3 / 2)), jnp.ones(3))
    result = pf.flows.Principal(0.1, method=method).evaluate(roots, jnp.zeros(3) + offset)
    assert not result.converged
    assert result.error == jnp.inf


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(branch="left"), "branch must be one of 'continuous', 'principal', 'tracked', got 'left'"),
        (dict(method="magic"), "method must be one of 'auto', 'dense', 'krylov', got 'magic'"),
        (dict(rtol=-1.0), "rtol must be a number above 0 and below 1"),
        (dict(rtol=1e308), "rtol must be a number above 0 and below 1"),
        (dict(max_products=0), "max_products must be a whole number of at least 1"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        pf.flows.Principal(0.1, **arguments)


def test_options_may_be_any_whole_and_real_numbers():
    flow = pf.flows.Principal(0.1, method="krylov", rtol=jnp.array(1e-8), max_products=np.uint8(60))
    assert flow == pf.flows.Principal(0.1, method="krylov")
    assert flow.evaluate(pf.functions.banana(), [1.3, 1.5]).converged
