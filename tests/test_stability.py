"""Stability coefficients, predictions and critical points against closed forms."""

import jax.numpy as jnp
import numpy as np
import pytest
from cases import regression
from hypothesis import given, settings
from hypothesis import strategies as st

import principalflow as pf
from principalflow.stability import analyse, critical_point, predict_projection, relative_progress

NETWORK = regression(samples=40, sizes=(8, 30, 20, 3))  # 953 parameters
H = 0.02


@pytest.fixture(scope="module")
def dense():
    values, vectors = np.linalg.eigh(NETWORK.hessian(NETWORK.theta))
    return values[::-1], vectors[:, ::-1]


@pytest.fixture(scope="module")
def analysis():
    return analyse(NETWORK, NETWORK.theta, H, k=3, tol=1e-8)


def test_projections_are_positive_and_those_of_the_vectors(analysis):
    gradient = NETWORK.gradient(NETWORK.theta)
    assert np.all(analysis.projections >= 0)
    np.testing.assert_allclose(analysis.vectors.T @ gradient, analysis.projections, atol=1e-12)


def test_coefficients_are_alpha_times_projection(dense, analysis):
    values, vectors = dense
    projections = np.abs(vectors[:, :3].T @ np.asarray(NETWORK.gradient(NETWORK.theta)))
    z = H * values[:3] + 0j
    np.testing.assert_allclose(analysis.coefficients, np.log(1 - z) / z * projections, rtol=1e-7)


def test_drift_is_the_estimate(analysis):
    np.testing.assert_allclose(analysis.drift, pf.drift.estimate(NETWORK, NETWORK.theta, H), rtol=1e-9)


def test_at_the_edge_the_small_rest_of_the_gradient_counts():
    s = analyse(pf.functions.quadratic(np.diag([2.0, 1.0])), [1.0, 0.0018], h=1.0, k=1)
    np.testing.assert_allclose(s.loss_change.total_discrete, -(0.0018**2) / 2, rtol=1e-9)


def test_a_former_analysis_is_a_guess(analysis):
    again = analyse(NETWORK, NETWORK.theta + 1e-4, H, k=3, guess=analysis, tol=1e-2)
    assert again.eigenpairs.products == 5  # three vectors, the probe and the gradient


def test_total_discrete_loss_change_is_the_second_order_expansion(analysis):
    gradient = NETWORK.gradient(NETWORK.theta)
    curvature = gradient @ NETWORK.hvp(NETWORK.theta, gradient)
    expected = -H * gradient @ gradient + H**2 / 2 * curvature
    np.testing.assert_allclose(analysis.loss_change.total_discrete, expected, rtol=1e-9)


def test_total_continuous_loss_change_is_close_to_the_sum_over_all_directions(dense, analysis):
    values, vectors = dense
    squares = (vectors.T @ np.asarray(NETWORK.gradient(NETWORK.theta))) ** 2
    alphas = np.asarray(pf.flows.Principal(H).alpha(H * values)).real
    expected = H * np.sum(alphas * squares)
    # Beyond the three directions |h lambda| < 0.3, where alpha is nearly straight: its mean is that of the mean.
    assert np.max(np.abs(H * values[3:])) < 0.3
    np.testing.assert_allclose(analysis.loss_change.total_continuous, expected, rtol=3e-3)


@settings(max_examples=8)  # each compiles
@given(st.lists(st.floats(-3, 6), min_size=1, max_size=6), st.floats(0.1, 1.0))
def test_on_quadratics_the_discrete_change_is_what_descent_does(eigenvalues, h):
    bowl = pf.functions.quadratic(np.diag(eigenvalues))
    theta = jnp.linspace(1, 2, len(eigenvalues))
    s = analyse(bowl, theta, h, k=2)
    after = theta - h * bowl.gradient(theta)
    np.testing.assert_allclose(
        s.loss_change.total_discrete, bowl.value(after) - bowl.value(theta), atol=1e-9, rtol=1e-9
    )


def test_per_direction_loss_changes_on_a_quadratic():
    s = analyse(pf.functions.quadratic(np.diag([1.0, 5.0])), [1.0, 1.0], h=0.5)
    np.testing.assert_allclose(s.loss_change.discrete, [-0.5 * (1 - 1.25) * 25, -0.5 * (1 - 0.25)])
    np.testing.assert_allclose(s.loss_change.continuous, [0.5 * np.log(1.5) / 2.5 * 25, 0.5 * np.log(0.5) / 0.5])


def test_regimes_change_at_one_and_two():
    values = np.array([4.1, 3.9, 2.1, 1.9, -1.0])
    s = analyse(pf.functions.quadratic(np.diag(values)), np.ones(5), h=0.5, k=5)
    assert s.regimes == ("unstable", "complex stable", "complex stable", "real stable", "real stable")


def test_the_sign_of_a_coefficient_turns_at_two():
    s = analyse(pf.functions.quadratic(np.diag([4.1, 3.9])), np.ones(2), h=0.5)
    assert s.coefficients[0].real > 0 > s.coefficients[1].real


def test_k_beyond_the_parameters_takes_all():
    assert len(analyse(pf.functions.banana(), [1.0, 2.0], h=0.001).eigenvalues) == 2


def test_a_critical_point_has_no_coefficients():
    s = analyse(pf.functions.banana(), [1.0, 1.0], h=0.001)
    np.testing.assert_array_equal(s.coefficients, 0)
    assert s.drift == s.loss_change.total_continuous == s.loss_change.total_discrete == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(h=0), "h must be"),
        (dict(k=0), "k must be"),
        (dict(tol=0), "tol must be"),
        (dict(theta=[1j, 0]), "theta must be real"),
        (dict(objective=jnp.sum), "objective must be a principalflow.Objective"),
        (dict(objective=pf.Objective(lambda t: jnp.sum(t) * jnp.nan, jnp.ones(2))), "loss at theta must be finite"),
    ],
)
def test_bad_input_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        analyse(**(dict(objective=pf.functions.banana(), theta=[1.0, 2.0], h=0.1) | changes))


@given(st.floats(-5, 9), st.floats(-2, 2))
def test_the_principal_flow_predicts_descent_on_quadratics(lam, projection):
    h = 0.5
    predicted = predict_projection(pf.flows.Principal(h), [lam], [projection], time=h)
    np.testing.assert_allclose(predicted, [(1 - h * lam) * projection], atol=1e-12)


def test_the_real_flows_predict_exponentials():
    np.testing.assert_allclose(predict_projection(pf.flows.NegativeGradient(), [3.0], [2.0], 0.5), [2 * np.exp(-1.5)])
    np.testing.assert_allclose(
        predict_projection(pf.flows.IGR(0.5), [3.0], [2.0], 0.5), [2 * np.exp(-(3 + 0.25 * 9) * 0.5)]
    )


@pytest.mark.parametrize("flow", [pf.flows.NegativeGradient(), pf.flows.Principal(0.5)])
def test_predictions_beyond_the_largest_number_are_infinite_and_those_of_zero_are_zero(flow):
    found = predict_projection(flow, [-1e3, -1e3], [1.0, 0.0], time=1e3)
    assert np.isinf(found[0])
    assert found[1] == 0


def test_nothing_changes_in_no_time_whatever_the_curvature():
    found = predict_projection(pf.flows.IGR(0.1), jnp.float32([1e30, 1.0]), jnp.float32([1.0, 2.0]), time=0)
    np.testing.assert_array_equal(found, [1.0, 2.0])


@pytest.mark.parametrize("name", ["lambdas", "projection"])
def test_predictions_from_what_is_not_finite_are_refused(name):
    with pytest.raises(ValueError, match=f"{name} must be finite"):
        predict_projection(**(dict(flow=pf.flows.IGR(0.5), lambdas=1.0, projection=1.0, time=1.0) | {name: np.nan}))


def test_a_flow_without_coefficients_predicts_nothing():
    with pytest.raises(ValueError, match="flow must be a SpectralFlow"):
        predict_projection(pf.flows.FlippedDirection(), 1.0, 1.0, 1.0)  # pyright: ignore


H_CRITICAL = 0.5
RATE_FLOWS = [pf.flows.IGR(H_CRITICAL), pf.flows.ThirdOrder(H_CRITICAL), pf.flows.BackwardError(H_CRITICAL, order=5)]


@pytest.mark.parametrize("flow", [pf.flows.NegativeGradient(), *RATE_FLOWS], ids=lambda flow: type(flow).__name__)
def test_truncated_flows_are_drawn_to_every_minimum(flow):
    point = critical_point(flow, [9.0, 3.0, 1.0])
    assert point.kind == "minimum"
    assert point.is_attractive


def test_the_principal_flow_leaves_sharp_minima_as_descent_does():
    point = critical_point(pf.flows.Principal(H_CRITICAL), [5.0, 3.0, 1.0])
    np.testing.assert_array_equal(point.attractive, [False, True, True])
    np.testing.assert_array_equal(point.repulsive, [True, False, False])


def test_the_principal_flow_leaves_saddles_by_more_directions_than_the_gradient_flow():
    values = [5.0, 1.0, -1.0]
    principal = critical_point(pf.flows.Principal(H_CRITICAL), values)
    gradient = critical_point(pf.flows.NegativeGradient(), values)
    assert principal.kind == gradient.kind == "saddle"
    np.testing.assert_array_equal(principal.repulsive, [True, False, True])
    np.testing.assert_array_equal(gradient.repulsive, [False, False, True])


def test_the_flipped_flow_is_driven_away_in_its_direction():
    np.testing.assert_array_equal(critical_point(pf.flows.FlippedDirection(), [1.0, 5.0]).attractive, [True, False])


@pytest.mark.parametrize(
    ("values", "kind"), [([1.0, 0.0], "degenerate"), ([-1.0, -2.0], "maximum"), ([0.0, -1.0, 1.0], "saddle")]
)
def test_kinds_of_critical_points(values, kind):
    assert critical_point(pf.flows.NegativeGradient(), values).kind == kind


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [3, 40])
def test_a_zero_that_an_eigensolver_rounded_is_a_zero(size, dtype):
    values = np.linalg.eigvalsh(np.ones((size, size), dtype))
    assert np.min(np.abs(values)) < np.max(np.abs(values)) * np.finfo(dtype).eps  # not all of them exactly zero
    point = critical_point(pf.flows.NegativeGradient(), values)
    assert point.kind == "degenerate"
    np.testing.assert_array_equal(point.attractive, values > 0.5)
    assert not np.any(point.repulsive)


@settings(max_examples=30)
@given(st.floats(-1e-3, 1e-3), st.floats(1e-3, 1e3))
def test_a_curvature_within_tol_of_zero_has_no_sign(share, largest):
    for tol in (None, 1e-3):
        point = critical_point(pf.flows.NegativeGradient(), [largest, share * largest], tol=tol)
        within = abs(share) <= (tol or 10 * np.finfo(float).eps)
        assert point.kind == ("degenerate" if within else "minimum" if share > 0 else "saddle")
        assert point.attractive[1] == (share > 0 and not within)


def test_at_the_edge_the_principal_flow_is_neither_drawn_nor_driven_away():
    point = critical_point(pf.flows.Principal(0.1), [20 * (1 + 1e-16), 20 * (1 - 4e-16), 1.0])
    assert point.kind == "minimum"
    np.testing.assert_array_equal(point.attractive, [False, False, True])
    np.testing.assert_array_equal(point.repulsive, False)


@pytest.mark.parametrize("tol", [-1e-3, 1.0, np.nan, "0.1"])
def test_a_bad_tol_is_named(tol):
    with pytest.raises(ValueError, match="tol must be a"):
        critical_point(pf.flows.NegativeGradient(), [1.0], tol=tol)


@pytest.mark.parametrize("lambdas", [1.0, [], [1j], [np.nan]])
def test_lambdas_must_be_a_real_vector(lambdas):
    with pytest.raises(ValueError, match="lambdas must"):
        critical_point(pf.flows.NegativeGradient(), lambdas)


@settings(max_examples=8)
@given(st.floats(0.1, 5), st.floats(0.1, 1))
def test_relative_progress_on_quadratics(lam, h):
    ratio = relative_progress(pf.functions.quadratic([[lam]]), [1.0], h)
    np.testing.assert_allclose(ratio, -1 + h * lam / 2, atol=1e-9)


def test_relative_progress_is_not_known_at_a_critical_point():
    assert np.isnan(relative_progress(pf.functions.banana(), [1.0, 1.0], 0.1))


def test_relative_progress_is_not_known_where_the_change_is_within_the_rounding_of_the_loss():
    assert np.isnan(relative_progress(pf.functions.banana(), [1.0, 2.0], 1e-30))


def test_relative_progress_is_not_known_where_the_square_of_the_gradient_is_beyond_the_largest_number():
    steep = pf.Objective(lambda p: 1e25 * p[0], jnp.ones(1, jnp.float32))
    assert np.isnan(relative_progress(steep, steep.theta, 1e-24))


def test_relative_progress_is_infinite_where_the_step_leaves_the_range_of_the_loss():
    assert relative_progress(pf.functions.banana(), [1.0, 2.0], 1e90) == np.inf


def test_relative_progress_needs_a_finite_loss():
    roots = pf.Objective(lambda theta: jnp.sum(jnp.sqrt(theta)), jnp.ones(2))
    with pytest.raises(ValueError, match="the gradient at theta must be finite"):
        relative_progress(roots, [0.0, 1.0], 0.1)
