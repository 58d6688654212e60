"""Rod flow, against its authors' closed forms and equations."""

import jax.numpy as jnp
import numpy as np
import pytest
from cases import regression

import principalflow as pf
from principalflow.flows import Rod, RodState

VALLEY = pf.Objective(lambda w: w[1] * w[0] ** 2 / 2 - w[1] / 1000, jnp.array([0.01, 1.99]))


@pytest.mark.parametrize("sharpness", [1.0, 1.9, 2.1, 2.4])
def test_on_quadratics_the_rod_grows_exactly_above_the_edge(sharpness):
    h, bowl = 0.5, pf.functions.quadratic([[sharpness / 0.5]])
    growth = Rod(h, rank=1).field(bowl, RodState(jnp.zeros(1), jnp.eye(1), jnp.full((1, 1), 0.01))).covariance[0, 0]
    assert growth == pytest.approx(0.01 * (sharpness**2 / 2 - 2) / h, rel=1e-9)
    assert (growth > 0) == (sharpness > 2)


@pytest.mark.parametrize("h", [0.7, 0.8])  # h*lambda = 2.1 and 2.4 at 0
def test_the_quartic_comes_to_rest_at_the_authors_length(h):
    quartic = pf.Objective(lambda w: 3 * w[0] ** 2 / 2 - w[0] ** 4 / 4, jnp.array([0.1]))
    state = pf.integrate(Rod(h), quartic, [0.1], 400 * h, rtol=1e-11, atol=1e-13).states[-1]
    assert state.covariance[0, 0] == pytest.approx(3 - 2 / h, abs=1e-9)
    assert state.centre[0] == pytest.approx(0, abs=1e-9)


def test_of_one_direction_it_is_the_authors_equations_projected():
    objective, h, length = regression(), 0.3, 0.2
    c = objective.theta
    q = pf.spectrum.top_eigenpairs(objective, c, 2).vectors @ np.array([0.8, 0.6])
    field = Rod(h, rank=1).field(objective, RodState(c, jnp.asarray(q)[:, None], jnp.full((1, 1), length**2)))
    above, below = objective.gradient(c + length * q), objective.gradient(c - length * q)
    s, a = (above + below) / 2, (above - below) / 2
    M = (h**2 / 2 * (jnp.outer(s, s) + jnp.outer(a, a)) - 2 * length**2 * jnp.outer(q, q)) / h
    np.testing.assert_allclose(field.centre, -s - h / 2 * objective.hvp(c, s), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(field.covariance, [[q @ M @ q]], rtol=1e-7)
    # The drift's source aside, the direction turns as that of the nearest covariance of rank one.
    own = h / 2 * jnp.outer(a, a)
    turning = (own @ q - q * (q @ own @ q)) / length**2
    np.testing.assert_allclose(field.directions[:, 0], turning, rtol=1e-6, atol=1e-9)


def test_the_mean_gradient_is_that_of_a_gaussian_of_this_covariance_to_third_derivatives():
    objective, random = regression(), np.random.default_rng(0)
    c = objective.theta
    Q, _ = np.linalg.qr(random.standard_normal((c.size, 3)))
    F = 1e-3 * random.standard_normal((3, 3))
    h = 1e-6
    field = Rod(h, rank=3).field(objective, RodState(c, jnp.asarray(Q), jnp.asarray(F @ F.T)))
    V = jnp.asarray(Q @ F)
    curved = jnp.sum(objective.third(c, V, V), axis=1) / 2
    mean = objective.gradient(c) + curved
    expected = mean + h / 2 * objective.hvp(c, mean)
    np.testing.assert_allclose(-field.centre - expected, 0, atol=1e-3 * float(jnp.linalg.norm(curved)))


def test_the_covariance_of_several_directions_follows_their_products():
    # On quadratics Sigma' = h/2 H Sigma H - 2 Sigma / h where the gradient is zero.
    h, lambdas = 0.5, np.array([4.2, 3.9, 1.0])
    bowl = pf.functions.quadratic(np.diag(lambdas))
    S = np.array([[2.0, 0.5, 0.1], [0.5, 1.0, 0.2], [0.1, 0.2, 0.5]])
    field = Rod(h, rank=3).field(bowl, RodState(jnp.zeros(3), jnp.eye(3), jnp.asarray(S)))
    np.testing.assert_allclose(field.covariance, S * (h / 2 * np.outer(lambdas, lambdas) - 2 / h), rtol=1e-9)


def test_a_rod_of_no_length_has_a_finite_field():
    objective = regression()
    directions = jnp.eye(objective.theta.size)[:, :2]
    field = Rod(0.1, rank=2).evaluate(objective, RodState(objective.theta, directions, jnp.zeros((2, 2))))
    assert field.converged


def test_it_starts_as_the_rod_between_two_iterates():
    objective, h = regression(), 0.1
    flow = Rod(h, rank=objective.theta.size)  # all directions
    state = flow.start(objective, objective.theta)
    first, second = pf.descend(objective, objective.theta, h, 1).thetas
    np.testing.assert_allclose(flow.centre(objective, state), (first + second) / 2, rtol=1e-12)
    half = (first - second) / 2
    covariance = state.directions @ state.covariance @ state.directions.T
    np.testing.assert_allclose(covariance, np.outer(half, half), atol=1e-12)
    ends = flow.iterates(objective, state)
    assert min(float(jnp.linalg.norm(end - first)) for end in ends) < 1e-9


def test_the_sharpness_rises_above_the_edge_and_falls_as_that_of_descent():
    solution = pf.integrate(Rod(1.0, rank=1), VALLEY, VALLEY.theta, 200.0, rtol=1e-8, saves=200)
    path = pf.descend(VALLEY, VALLEY.theta, 1.0, 201).thetas[:, 1]
    of_descent = (path[:-1] + path[1:]) / 2
    np.testing.assert_allclose(solution.thetas[:, 1], of_descent[:201], atol=0.15 * float(jnp.ptp(of_descent)))
    assert float(solution.thetas[:, 1].max()) == pytest.approx(float(of_descent.max()), abs=0.01)


@pytest.mark.parametrize(("make", "word"), [(lambda: Rod(0.0), "h"), (lambda: Rod(0.1, rank=0), "rank")])
def test_errors_name_the_argument(make, word):
    with pytest.raises(ValueError, match=f"^{word} must"):
        make()
