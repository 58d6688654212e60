"""The central flow: what holds the sharpness at 2/h."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import regression

import principalflow as pf
from principalflow.flows import Central, CentralState
from principalflow.flows._held import covariance, refined

VALLEY = pf.Objective(lambda w: w[1] * w[0] ** 2 / 2 - w[1] / 1000, jnp.array([0.0, 1.99]))


def follow(flow, objective, theta, time):
    solution = pf.integrate(flow, objective, theta, time)
    assert solution.solver == "euler"
    assert solution.steps == round(time / (flow.h * flow.substep))
    return solution


def test_below_the_edge_it_is_the_negative_gradient_flow():
    objective, h = regression(), 0.01
    flow = Central(h)
    field = flow.evaluate(objective, flow.start(objective, objective.theta))
    np.testing.assert_allclose(field.vector.centre, -objective.gradient(objective.theta), rtol=1e-12)
    assert int(field.contractions) == 0


def test_the_covariance_along_one_direction_is_the_authors_formula():
    # On the edge X = max(0, -2 grad(lambda).g / |grad(lambda)|^2); here lambda is y.
    flow = Central(1.0, k=1)
    state = CentralState(jnp.array([0.0, 2.0]), jnp.array([[1.0], [0.0]]))
    np.testing.assert_allclose(flow.covariance(VALLEY, state), [[2 * 0.001]], rtol=1e-6)


def test_the_sharpness_is_held_and_the_oscillation_predicted():
    solution = follow(Central(1.0, k=1), VALLEY, [0.0, 1.99], 100.0)
    np.testing.assert_allclose(solution.theta, [0, 2], atol=1e-9)
    # Descent oscillates with x^2 = 2/1000 on the mean.
    path = pf.descend(VALLEY, [0.05, 2.0], 1.0, 4000).thetas
    x_squared = float(Central(1.0, k=1).covariance(VALLEY, solution.states[-1])[0, 0])
    assert jnp.mean(path[:, 0] ** 2) == pytest.approx(x_squared, rel=0.02)


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_the_covariance_is_complementary_to_what_it_leaves_below_the_edge(k):
    random = np.random.default_rng(k)
    A = random.standard_normal((k, k))
    A = jnp.asarray(A + A.T - 2 * np.eye(k))
    thirds = random.standard_normal((k, k, 30))
    thirds = thirds + thirds.swapaxes(0, 1)
    B = jnp.asarray(np.tensordot(thirds, thirds, ([2], [2])))
    X = covariance(A, B, jnp.ones(k, bool))
    left = A + jnp.tensordot(B, X, 2)
    assert jnp.linalg.eigvalsh(X)[0] >= -1e-9
    assert jnp.linalg.eigvalsh(left)[0] >= -1e-4 * jnp.linalg.norm(A)
    assert abs(jnp.sum(X * left)) <= 1e-6 * jnp.linalg.norm(A)


def test_on_a_quadratic_nothing_holds_the_sharpness():
    bowl, flow = pf.functions.quadratic([[2.1]]), Central(1.0, k=1)
    solution = follow(flow, bowl, [1.0], 2.0)
    assert flow.covariance(bowl, solution.states[-1]) == 0
    assert solution.theta[0] == pytest.approx((1 - 2.1 / 4) ** 8)  # Euler's steps of the gradient flow


def test_directions_are_the_sharpest_ones():
    random = np.random.default_rng(0)
    Q, _ = np.linalg.qr(random.standard_normal((40, 40)))
    H = jnp.asarray((Q * np.linspace(-1, 3, 40) ** 3) @ Q.T)
    found = jax.jit(lambda guess: refined(lambda v: H @ v, guess))(random.standard_normal((40, 3)))
    np.testing.assert_allclose(found.values, jnp.linalg.eigvalsh(H)[::-1][:3], rtol=1e-4)
    np.testing.assert_allclose(found.vectors.T @ found.vectors, np.eye(3), atol=1e-10)


@pytest.mark.slow
def test_a_network_is_held_at_its_edge():
    objective = regression(samples=20, sizes=(3, 8, 1))
    before = pf.descend(objective, objective.theta, 0.2, 200).thetas[-1]
    h = 2.0 / float(pf.spectrum.top_eigenpairs(objective, before, 1).values[0])
    solution = follow(Central(h, k=2), objective, before, 50 * h)
    assert h * float(pf.spectrum.top_eigenpairs(objective, solution.theta, 1).values[0]) <= 2.001


@pytest.mark.parametrize(
    ("make", "word"),
    [(lambda: Central(0.0), "h"), (lambda: Central(1.0, k=0), "k"), (lambda: Central(1.0, substep=0), "substep")],
)
def test_errors_name_the_argument(make, word):
    with pytest.raises(ValueError, match=f"^{word} must"):
        make()
