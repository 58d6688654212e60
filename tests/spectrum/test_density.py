"""Density and trace against known spectra."""

import jax.numpy as jnp
import numpy as np
import pytest
from cases import regression
from hypothesis import given, settings
from hypothesis import strategies as st

import principalflow as pf
from principalflow.spectrum import density, trace

VALUES = np.concatenate([np.full(600, 1.0), np.full(200, 3.0), [10.0, 20.0]])
BOWL = pf.Objective(lambda theta: jnp.sum(jnp.asarray(VALUES) * theta**2) / 2, jnp.zeros(VALUES.size))
SMALL = pf.Objective(lambda theta: jnp.sum(theta**3) / 6, jnp.zeros(60))  # its Hessian is diag(theta)
LOW_RANK = pf.Objective(lambda theta: jnp.sum(theta[:5] ** 2), jnp.zeros(800))
NETWORK = regression(samples=40, sizes=(8, 30, 20, 3))


def density_of(eigenvalues, **options):
    """The density of a Hessian that has these eigenvalues, again and again."""
    return density(SMALL, jnp.asarray(np.resize(eigenvalues, 60)), **options)


def mass(spectrum, low, high):
    inside = (spectrum.nodes > low) & (spectrum.nodes < high)
    return np.sum(spectrum.weights * inside, axis=1)


def test_density_integrates_to_one():
    spectrum = density(NETWORK, NETWORK.theta, probes=4, steps=30)
    np.testing.assert_allclose(np.trapezoid(spectrum.values, spectrum.grid), 1, atol=1e-3)


@settings(max_examples=100)
@given(st.floats(-12, 6), st.integers(2, 700), st.lists(st.floats(-100, 100), min_size=1, max_size=5))
def test_density_sums_to_one_whatever_the_width_the_points_and_the_spectrum(exponent, points, eigenvalues):
    spectrum = density_of(eigenvalues, width=10**exponent, points=points)
    np.testing.assert_allclose(np.sum(spectrum.values) * (spectrum.grid[1] - spectrum.grid[0]), 1, rtol=1e-9)
    assert np.all(spectrum.values >= 0)


def test_density_is_the_sum_of_bells_where_the_grid_is_fine():
    spectrum = density_of([1.0, 1.0, 3.0], width=0.1, points=4000)
    bells = np.exp(-(((spectrum.grid[:, None] - [1.0, 1.0, 3.0]) / 0.1) ** 2) / 2) / (0.1 * np.sqrt(2 * np.pi))
    np.testing.assert_allclose(spectrum.values, np.mean(bells, axis=1), atol=1e-4)


def test_density_on_a_coarse_grid_has_each_eigenvalue_in_its_cell():
    spectrum = density_of([-1.0, 0.0, 1.0, 1.0], width=1e-6, points=100)
    spacing = spectrum.grid[1] - spectrum.grid[0]
    for value, share in ((-1.0, 0.25), (0.0, 0.25), (1.0, 0.5)):
        inside = np.abs(spectrum.grid - value) <= spacing
        np.testing.assert_allclose(np.sum(spectrum.values[inside]) * spacing, share, rtol=1e-9)


def test_density_has_the_mass_of_each_cluster_within_its_standard_error():
    spectrum = density(BOWL, BOWL.theta, probes=30, steps=8)
    for low, high, share in ((0.5, 1.5, 600 / 802), (2.5, 3.5, 200 / 802)):
        masses = mass(spectrum, low, high)
        error = np.std(masses, ddof=1) / np.sqrt(len(masses))
        assert abs(np.mean(masses) - share) < 4 * error


def test_density_knows_the_extremes():
    spectrum = density(BOWL, BOWL.theta, probes=2, steps=8)
    np.testing.assert_allclose([spectrum.nodes[spectrum.weights > 0].min(), spectrum.nodes.max()], [1, 20], rtol=1e-8)


def test_more_probes_give_smaller_standard_errors():
    few, many = (density(BOWL, BOWL.theta, probes=n, steps=8, width=0.5) for n in (8, 128))
    ratio = np.max(few.standard_errors) / np.max(many.standard_errors)
    assert 2.5 < ratio < 6.5  # 4, up to the error of 8 probes' own spread


def test_density_of_a_low_rank_hessian_is_nearly_all_at_zero():
    spectrum = density(LOW_RANK, LOW_RANK.theta, probes=3, steps=20)
    assert np.all(np.isfinite(spectrum.values))
    assert np.all(mass(spectrum, -1e-6, 1e-6) > 0.97)


def test_density_of_a_zero_hessian_is_a_bell_at_zero():
    flat = pf.Objective(lambda theta: jnp.sum(theta), jnp.zeros(700))
    spectrum = density(flat, flat.theta)
    assert abs(spectrum.grid[np.argmax(spectrum.values)]) < spectrum.width


def test_density_of_few_parameters_is_exact():
    small = regression()
    spectrum = density(small, small.theta)
    np.testing.assert_allclose(spectrum.nodes[0], np.linalg.eigvalsh(small.hessian(small.theta)), atol=1e-12)
    np.testing.assert_array_equal(spectrum.standard_errors, 0)


def test_trace_is_within_its_standard_error():
    exact = float(jnp.trace(NETWORK.hessian(NETWORK.theta)))
    estimates = [trace(NETWORK, NETWORK.theta, products=40, seed=seed) for seed in range(8)]
    assert all(estimate.products == 40 for estimate in estimates)
    deviations = [(estimate.value - exact) / estimate.standard_error for estimate in estimates]
    assert np.max(np.abs(deviations)) < 4


def test_trace_is_closer_than_plain_sampling_for_the_same_products():
    hutchinson = np.sqrt(2 / 200) * jnp.linalg.norm(NETWORK.hessian(NETWORK.theta))  # Gaussian vectors
    assert trace(NETWORK, NETWORK.theta, products=200).standard_error < 0.5 * hutchinson


def test_trace_of_a_low_rank_hessian_is_exact():
    np.testing.assert_allclose(trace(LOW_RANK, LOW_RANK.theta, products=20).value, 10, rtol=1e-10)


def test_more_products_than_parameters_give_the_exact_trace_and_keep_no_matrix():
    found = trace(NETWORK, NETWORK.theta, products=10**9)
    np.testing.assert_allclose(found.value, jnp.trace(NETWORK.hessian(NETWORK.theta)), rtol=1e-12)
    assert found.products == NETWORK.theta.size


def test_select_restricts_trace_and_density():
    of_layer = lambda path: path.startswith("[2]")  # noqa: E731
    index = NETWORK.entries(of_layer)
    block = np.asarray(NETWORK.hessian(NETWORK.theta))[np.ix_(index, index)]
    np.testing.assert_allclose(trace(NETWORK, NETWORK.theta, products=63, select=of_layer).value, np.trace(block))
    spectrum = density(NETWORK, NETWORK.theta, select=of_layer)
    np.testing.assert_allclose(spectrum.nodes[0], np.linalg.eigvalsh(block), atol=1e-12)


@pytest.mark.parametrize(
    ("function", "changes", "message"),
    [
        (density, dict(probes=1), "probes must be"),
        (density, dict(steps=0), "steps must be"),
        (density, dict(width=-1.0), "width must be"),
        (density, dict(width=1e308), "width must make a grid within the range of numbers"),
        (density, dict(probes=10**9), "probes must be a whole number of at most 10000"),
        (density, dict(steps=10**9), "steps must be a whole number of at most 1000"),
        (density, dict(points=10**9), "points must be a whole number of at most 100000"),
        (density, dict(seed=10**30), "seed must be a whole number of at most"),
        (trace, dict(seed=10**30), "seed must be a whole number of at most"),
        (trace, dict(products=10**30), "products must be a whole number of at most"),
        (density, dict(theta=jnp.zeros(3)), "theta must be flat"),
        (trace, dict(products=3), "products must be"),
        (trace, dict(theta=NETWORK.theta * 1j), "theta must be real"),
    ],
)
def test_bad_input_is_refused(function, changes, message):
    with pytest.raises(ValueError, match=message):
        function(**(dict(objective=NETWORK, theta=NETWORK.theta) | changes))


@pytest.mark.parametrize("function", [density, trace])
@pytest.mark.parametrize("size", [3, 600])
def test_a_hessian_that_is_not_finite_is_refused(function, size):
    roots = pf.Objective(lambda theta: jnp.sum(jnp.sqrt(theta)), jnp.ones(size))
    with pytest.raises(pf.NonFiniteError, match="the Hessian at theta must be finite"):
        function(roots, jnp.zeros(size))
