import jax.numpy as jnp
import numpy as np
import pytest
from cases import random_quadratic
from hypothesis import given
from hypothesis import strategies as st

import principalflow as pf

H = 0.3


@given(size=st.sampled_from([1, 7, 20]), seed=st.integers(0, 1000))
def test_the_principal_flow_in_closed_form_equals_descent_at_each_of_20_steps(size, seed):
    A, b, theta = random_quadratic(size, H, seed)
    iterates = [theta]
    for _ in range(20):
        iterates.append(iterates[-1] - H * (A @ iterates[-1] + b))
    solution = pf.flows.solve_quadratic(pf.flows.Principal(H), A, b, theta, H * np.arange(21))
    error = np.linalg.norm(solution - np.array(iterates), axis=1)
    assert np.all(error <= 1e-8 * np.linalg.norm(iterates, axis=1))


@pytest.mark.parametrize(
    "flow",
    [
        pf.flows.NegativeGradient(),
        pf.flows.PositiveGradient(),
        pf.flows.IGR(H),
        pf.flows.ThirdOrder(H),
        pf.flows.BackwardError(H, order=4),
        pf.flows.Principal(H),
        pf.flows.Principal(H, branch="principal"),
    ],
    ids=lambda flow: type(flow).__name__,
)
def test_every_flow_integrates_to_its_closed_form(flow):
    A, b, theta = random_quadratic(5, H)
    times = jnp.array([0.0, 0.2, 0.6])
    expected = pf.flows.solve_quadratic(flow, A, b, theta, times)
    solution = pf.integrate(flow, pf.functions.quadratic(A, b), theta, 0.6, rtol=1e-11, atol=1e-13, saves=times)
    np.testing.assert_allclose(solution.thetas, expected, atol=1e-8 * jnp.linalg.norm(expected[-1]))


def test_a_direction_without_curvature_moves_at_constant_speed():
    solution = pf.flows.solve_quadratic(pf.flows.Principal(H), [[0.0]], [2.0], [1.0], [3.0])
    np.testing.assert_allclose(solution, [[1.0 - 3.0 * 2.0]])


@pytest.mark.parametrize(
    ("A", "b", "message"),
    [
        ([[1.0]], [2.0, 1.0], r"b must have shape \(1,\), got \(2,\)"),
        ([[1.0]], [[2.0]], r"b must have shape \(1,\), got \(1, 1\)"),
        ([[1.0, 0.0]], [1.0], "A must be a square matrix"),
        ([[1j]], [1.0], "A must be real"),
        ([[1e308]], [1.0], "h times the eigenvalues of A must be finite"),
        ([[0.0, 1e-9], [0.0, 0.0]], [1.0, 1.0], "A must be symmetric"),
    ],
)
def test_bad_arguments_are_named(A, b, message):
    with pytest.raises(ValueError, match=message):
        pf.flows.solve_quadratic(pf.flows.Principal(H), A, b, [1.0], [3.0])


@pytest.mark.parametrize(
    ("flow", "times", "message"),
    [
        (pf.flows.FlippedDirection(), [1.0], "flow must be a SpectralFlow"),
        (pf.flows.IGR, [1.0], "flow must be a flow, not its class"),
        (pf.flows.IGR(H), [[1.0]], r"times must be one real number or a vector of them, got float64\(1, 1\)"),
        (pf.flows.IGR(H), [1j], "times must be one real number or a vector of them"),
        (pf.flows.IGR(H), [np.nan], "times must be finite"),
    ],
)
def test_a_bad_flow_and_bad_times_are_named(flow, times, message):
    with pytest.raises(ValueError, match=message):
        pf.flows.solve_quadratic(flow, [[1.0]], [1.0], [1.0], times)
