import jax.numpy as jnp
import numpy as np
import pytest
from cases import compilations

import principalflow as pf
from principalflow._holomorphic import require_holomorphic


def test_the_quadratics_hessian_is_its_matrix():
    A = jnp.array([[2.0, 1.0], [1.0, 5.0]])
    bowl = pf.functions.quadratic(A, b=[1.0, -1.0])
    np.testing.assert_allclose(bowl.hessian([0.3, 0.7]), A, atol=1e-14)
    np.testing.assert_allclose(bowl.gradient([0.3, 0.7]), A @ jnp.array([0.3, 0.7]) + jnp.array([1.0, -1.0]))


def test_the_bananas_hessian_at_the_minimum_is_the_known_one():
    np.testing.assert_allclose(pf.functions.banana().hessian([1.0, 1.0]), [[802, -400], [-400, 200]])


def test_the_cosine_valley_is_continuous_with_a_jump_of_slope():
    valley = pf.functions.cosine_valley()
    np.testing.assert_allclose(valley.value([-1e-9]), valley.value([0.0]), atol=1e-8)
    np.testing.assert_allclose(valley.gradient([-1e-9])[0], 1, atol=1e-8)
    np.testing.assert_allclose(valley.gradient([0.0])[0], 1 / 3, atol=1e-8)


@pytest.mark.parametrize("problem", [pf.functions.banana(), pf.functions.quadratic([[2.0, 1.0], [1.0, 5.0]])])
def test_polynomials_need_not_vouch_for_themselves(problem):
    require_holomorphic(pf.Objective(problem._loss, problem.theta), problem.theta)


@pytest.mark.parametrize(
    "problem",
    [pf.functions.banana, pf.functions.cosine_valley, lambda: pf.functions.quadratic(np.random.rand() * np.eye(3))],
)
def test_the_same_function_once_more_does_not_compile_again(problem):
    problem().value(problem().theta)
    with compilations("jit(_value)") as compiled:
        problem().value(problem().theta)
    assert compiled == []


@pytest.mark.parametrize(
    ("A", "b", "message"),
    [
        ([[1.0, 0.0]], None, "A must be a square matrix"),
        ([[1.0, 2.0], [0.0, 1.0]], None, "A must be symmetric"),
        ([[np.nan]], None, "A must be finite"),
        ([[1.0]], [1.0, 2.0], r"b must have shape \(1,\)"),
        ([[1.0]], [1j], "b must be real where A is real, got dtype complex128"),
        ([["1"]], None, "A must be an array of numbers"),
        ([[10**400]], None, "A must hold numbers within the range of JAX's"),
        (np.eye(2, dtype=jnp.float8_e4m3fn), None, "A must be of float16 or wider"),
    ],
)
def test_a_bad_quadratic_is_named(A, b, message):
    with pytest.raises(ValueError, match=message):
        pf.functions.quadratic(A, b)
