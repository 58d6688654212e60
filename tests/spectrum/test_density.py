"""Density and trace against known spectra."""

import jax.numpy as jnp
import numpy as np
import pytest
from cases import regression

import principalflow as pf
from principalflow.spectrum import density, trace

VALUES = np.concatenate([np.full(600, 1.0), np.full(200, 3.0), [10.0, 20.0]])
BOWL = pf.Objective(lambda theta: jnp.sum(jnp.asarray(VALUES) * theta**2) / 2, jnp.zeros(VALUES.size))
LOW_RANK = pf.Objective(lambda theta: jnp.sum(theta[:5] ** 2), jnp.zeros(800))
NETWORK = regression(samples=40, sizes=(8, 30, 20, 3))


def mass(spectrum, low, high):
    inside = (spectrum.nodes > low) & (spectrum.nodes < high)
    return np.sum(spectrum.weights * inside, axis=1)


def test_density_integrates_to_one():
    spectrum = density(NETWORK, NETWORK.theta, probes=4, steps=30)
    np.testing.assert_allclose(np.trapezoid(spectrum.values, spectrum.grid), 1, atol=1e-3)


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
