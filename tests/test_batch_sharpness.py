"""Batch sharpness: closed forms, its standard error, and the thresholds of momentum."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest

import principalflow as pf
from principalflow.stability import batch_sharpness, batch_thresholds

# Six samples, each with a Hessian and a linear term of its own.
RANDOM = np.random.default_rng(0)
ROOTS, TERMS = RANDOM.standard_normal((6, 3, 3)), RANDOM.standard_normal((6, 3))
HESSIANS = ROOTS @ ROOTS.transpose(0, 2, 1)
THETA = np.array([1.0, -0.5, 2.0])


def loss(theta, batch):
    hessians, terms = batch
    return jnp.mean(jnp.einsum("i,nij,j->n", theta, hessians, theta) / 2 + terms @ theta)


QUADRATICS = pf.Objective(loss, jnp.zeros(3), (HESSIANS, TERMS))


def curvature(samples):
    """Of a batch along its gradient, in closed form."""
    H, b = HESSIANS[list(samples)].mean(0), TERMS[list(samples)].mean(0)
    g = H @ THETA + b
    return g @ H @ g / (g @ g)


def test_a_batch_of_all_samples_has_the_curvature_along_the_gradient():
    found = batch_sharpness(QUADRATICS, THETA, batch_size=6)
    assert found.mean == pytest.approx(curvature(range(6)), rel=1e-12)
    assert (found.standard_error, found.batches) == (0.0, 1)


@pytest.mark.parametrize("size", [1, 2, 5])
def test_the_mean_is_that_over_all_batches_of_the_size(size):
    every = [curvature(samples) for samples in itertools.combinations(range(6), size)]
    found = batch_sharpness(QUADRATICS, THETA, size, batches=4000)
    assert abs(found.mean - np.mean(every)) < 4 * found.standard_error
    assert found.standard_error == pytest.approx(np.std(every) / np.sqrt(4000), rel=0.1)


def test_repetitions_differ_by_the_standard_error():
    found = [batch_sharpness(QUADRATICS, THETA, 2, batches=50, seed=seed) for seed in range(200)]
    spread = np.std([each.mean for each in found], ddof=1)
    # The deviation of 200 numbers is known to 1/sqrt(400): 5%.
    assert spread == pytest.approx(np.mean([each.standard_error for each in found]), rel=0.2)


def test_the_seed_decides_on_the_batches():
    first, again, other = (batch_sharpness(QUADRATICS, THETA, 2, seed=seed) for seed in (0, 0, 1))
    assert first == again != other


def test_chunks_change_nothing_but_rounding():
    chunked = pf.Objective(loss, jnp.zeros(3), (HESSIANS, TERMS), chunk=2)
    ours, theirs = (batch_sharpness(objective, THETA, 5, batches=10) for objective in (QUADRATICS, chunked))
    assert ours.mean == pytest.approx(theirs.mean, rel=1e-12)


def test_batches_without_a_gradient_are_left_out():
    objective = pf.Objective(lambda theta, c: jnp.mean(c) * theta[0] ** 2 / 2, jnp.ones(1), jnp.array([0.0, 4.0]))
    found = batch_sharpness(objective, [1.0], 1, batches=40)
    assert found.mean == 4
    assert 0 < found.batches < 40


def test_at_a_minimum_of_every_batch_there_is_none():
    flat = pf.Objective(lambda theta, c: jnp.mean(c) * theta[0] ** 2 / 2, jnp.ones(1), jnp.array([1.0, 4.0]))
    found = batch_sharpness(flat, [0.0], 1)
    assert np.isnan([found.mean, found.standard_error]).all()
    assert found.batches == 0


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_gradients_whose_square_is_out_of_range_are_measured(scale):
    found = batch_sharpness(pf.Objective(loss, jnp.zeros(3), (HESSIANS, scale * TERMS)), scale * THETA, 6)
    assert found.mean == pytest.approx(curvature(range(6)), rel=1e-9)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(objective=pf.functions.banana(), theta=[1.0, 2.0]), "^objective must have data"),
        (dict(batch_size=0), "^batch_size must be"),
        (dict(batch_size=7), "^batch_size must be a whole number of at most 6, got 7"),
        (dict(batches=1), "^batches must be"),
        (dict(seed=-1), "^seed must be"),
        (dict(theta=THETA * 1j), "^theta must be real"),
        (dict(theta=[np.nan] * 3), "^theta"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        batch_sharpness(**dict(objective=QUADRATICS, theta=THETA, batch_size=2) | arguments)


def test_derivatives_that_are_not_finite_are_told():
    steep = pf.Objective(lambda theta, c: jnp.mean(c) * jnp.exp(theta[0]), jnp.ones(1), jnp.array([1.0, 2.0]))
    with pytest.raises(ValueError, match="must be finite on all batches"):
        batch_sharpness(steep, [1e4], 1)


def test_thresholds_of_momentum_are_those_of_small_and_of_large_batches():
    assert batch_thresholds(0.1) == pytest.approx((20, 20))
    assert batch_thresholds(0.1, momentum=0.9) == pytest.approx((2, 38))


@pytest.mark.parametrize(("arguments", "name"), [(dict(h=0), "h"), (dict(h=0.1, momentum=1), "momentum")])
def test_what_is_no_rate_or_momentum_is_refused(arguments, name):
    with pytest.raises(ValueError, match=f"^{name} must be"):
        batch_thresholds(**arguments)
