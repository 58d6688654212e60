from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from cases import regression
from hypothesis import given
from hypothesis import strategies as st

import principalflow as pf
from principalflow.flows._logarithm import phi, phi_times
from principalflow.spectrum import krylov

RANDOM = np.random.default_rng(0)


@pytest.fixture(scope="module")
def objective():
    return regression(samples=20, sizes=(3, 8, 2))


@pytest.mark.parametrize("f", [jnp.exp, jnp.sin, lambda x: x**2 + 1, lambda x: 1 / (x + 10)])
def test_it_equals_the_dense_function_of_the_hessian(objective, f):
    v = jnp.asarray(RANDOM.standard_normal(objective.theta.size))
    values, vectors = jnp.linalg.eigh(objective.hessian(objective.theta))
    expected = vectors @ (f(values) * (vectors.T @ v))
    result = pf.spectrum.apply(objective, objective.theta, f, v, rtol=1e-10)
    assert result.converged
    assert jnp.linalg.norm(result.vector - expected) <= 1e-10 * jnp.linalg.norm(expected)


def test_at_complex_theta_it_equals_the_dense_matrix_function(objective):
    theta = objective.theta + 0.1j * jnp.cos(jnp.arange(objective.theta.size))
    v = jnp.asarray(RANDOM.standard_normal(theta.size))
    expected = scipy.linalg.expm(np.asarray(objective.hessian(theta))) @ v
    result = pf.spectrum.apply(objective, theta, jnp.exp, v, rtol=1e-10)
    assert result.converged
    np.testing.assert_allclose(result.vector, expected, atol=1e-9 * np.linalg.norm(expected))


def test_the_estimate_is_above_the_error_on_a_network(objective):
    v = jnp.asarray(RANDOM.standard_normal(objective.theta.size))
    values, vectors = jnp.linalg.eigh(objective.hessian(objective.theta))
    expected = vectors @ (jnp.exp(values) * (vectors.T @ v))
    for rtol in (1e-2, 1e-5, 1e-8):
        result = pf.spectrum.apply(objective, objective.theta, jnp.exp, v, rtol=rtol)
        assert jnp.linalg.norm(result.vector - expected) <= result.error * jnp.linalg.norm(expected) + 1e-13


def test_the_basis_stays_orthogonal_where_the_spectrum_is_on_one_side_of_zero():
    values = jnp.linspace(0.2, 1, 60)
    f = lambda x: jnp.log(jnp.abs(1 - 1.5 * x)) / x  # noqa: E731
    result = pf.spectrum.apply(pf.functions.quadratic(jnp.diag(values)), jnp.zeros(60), f, jnp.ones(60))
    assert jnp.linalg.norm(result.vector - f(values)) <= 1e-7 * jnp.linalg.norm(f(values))


def test_a_looser_tolerance_costs_fewer_products(objective):
    v = jnp.asarray(RANDOM.standard_normal(objective.theta.size))
    products = [
        int(pf.spectrum.apply(objective, objective.theta, jnp.exp, v, rtol=rtol).products) for rtol in (1e-2, 1e-10)
    ]
    assert products[0] < products[1] < objective.theta.size


def test_too_few_products_are_not_called_converged(objective):
    v = jnp.asarray(RANDOM.standard_normal(objective.theta.size))
    result = pf.spectrum.apply(objective, objective.theta, jnp.exp, v, rtol=1e-10, max_products=5)
    assert not result.converged
    assert int(result.products) == 5
    assert result.error > 1e-10


@pytest.mark.parametrize("f", [jnp.sqrt, jnp.log, lambda x: 1 / x])
@pytest.mark.parametrize("offset", [0.0, 0.0j])
def test_an_exhausted_space_gives_the_exact_result_even_where_f_is_not_defined_at_zero(f, offset):
    values = jnp.array([2.0, 2, 2, 5, 5, 5, 5])
    bowl = pf.functions.quadratic(jnp.diag(values))
    result = pf.spectrum.apply(bowl, bowl.theta + offset, f, bowl.theta)
    np.testing.assert_allclose(result.vector, f(values), rtol=1e-12)
    assert result.converged


def test_an_indefinite_hessian_has_an_inverse_too():
    values = jnp.array([-4.0, -3, -2, -1, 1, 2, 3, 4])
    bowl = pf.functions.quadratic(jnp.diag(values))
    result = pf.spectrum.apply(bowl, bowl.theta, lambda x: 1 / x, bowl.theta)
    np.testing.assert_allclose(result.vector, 1 / values, rtol=1e-10)


def test_a_zero_vector_gives_zero():
    bowl = pf.functions.quadratic(jnp.eye(3))
    result = pf.spectrum.apply(bowl, bowl.theta, jnp.exp, jnp.zeros(3))
    np.testing.assert_array_equal(result.vector, 0)
    assert result.converged


INDEFINITE = jnp.array([-4.0, -3, 1, 2])


@pytest.mark.parametrize("size", [4, 40])
@pytest.mark.parametrize("f", [jnp.sqrt, jnp.log, lambda x: jnp.exp(1000 * x)])
def test_where_f_has_no_finite_value_on_the_spectrum_it_is_not_converged(f, size):
    bowl = pf.functions.quadratic(jnp.diag(jnp.resize(INDEFINITE, size)))
    result = pf.spectrum.apply(bowl, bowl.theta, f, jnp.ones(size))
    assert not result.converged
    assert result.error == jnp.inf


def test_overflow_at_complex_theta_is_not_converged():
    bowl = pf.functions.quadratic(jnp.diag(INDEFINITE))
    result = pf.spectrum.apply(bowl, bowl.theta + 0j, lambda x: jnp.exp(1000 * x), jnp.ones(4))
    assert not result.converged
    assert result.error == jnp.inf


@pytest.mark.parametrize("v", [jnp.ones(4), jnp.zeros(4)])
@pytest.mark.parametrize("offset", [0.0, 0.0j])
def test_a_hessian_that_is_not_finite_is_not_converged(v, offset):
    roots = pf.Objective(lambda theta: jnp.sum(jnp.sqrt(theta)), jnp.ones(4))
    result = pf.spectrum.apply(roots, jnp.zeros(4) + offset, jnp.exp, v)
    assert not result.converged
    assert result.error == jnp.inf


@pytest.mark.parametrize("offset", [0.0, 0.0j])
def test_an_eigenvalue_on_a_pole_of_f_is_not_converged(offset):
    bowl = pf.functions.quadratic(jnp.diag(INDEFINITE))
    assert not pf.spectrum.apply(bowl, bowl.theta + offset, lambda x: 1 / (x - 1), jnp.ones(4)).converged


def test_f_may_be_complex_at_real_theta():
    bowl = pf.functions.quadratic(jnp.diag(INDEFINITE))
    result = pf.spectrum.apply(bowl, bowl.theta, lambda x: jnp.sqrt(x + 0j), jnp.ones(4))
    np.testing.assert_allclose(result.vector, np.sqrt(np.asarray(INDEFINITE) + 0j), atol=1e-14)
    assert result.converged


@pytest.mark.parametrize("f", [jnp.sign, lambda x: x > 0, lambda x: jnp.sign(x).astype(int)])
def test_f_may_return_whole_numbers_and_truth_values(f):
    bowl = pf.functions.quadratic(jnp.diag(INDEFINITE))
    result = pf.spectrum.apply(bowl, bowl.theta, f, jnp.ones(4))
    np.testing.assert_allclose(result.vector, f(INDEFINITE), atol=1e-14)


@pytest.mark.parametrize("scale", [1e-200, 1e200])
@pytest.mark.parametrize("offset", [0.0, 0.0j])
def test_vectors_and_hessians_whose_squares_leave_the_range_of_numbers_are_no_special_case(scale, offset):
    large, plain = (pf.functions.quadratic(s * jnp.diag(INDEFINITE)) for s in (scale, 1.0))
    for bowl, v in ((large, jnp.ones(4)), (plain, scale * jnp.ones(4))):
        result = pf.spectrum.apply(bowl, bowl.theta + offset, lambda x: x, v)
        np.testing.assert_allclose(result.vector, scale * INDEFINITE, rtol=1e-13)


def test_a_defective_hessian_shows_in_the_error():
    # E with the constant Hessian [[1 + i, 1], [1, 1 - i]], which has one eigenvector only.
    A = jnp.array([[1 + 1j, 1], [1, 1 - 1j]])
    objective = pf.Objective(lambda theta: 0.5 * theta @ A @ theta, jnp.ones(2) + 0j)
    result = pf.spectrum.apply(objective, objective.theta, jnp.exp, jnp.array([1.0, 0.0]), rtol=1e-12)
    assert not result.converged


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(rtol=0), "rtol must be a number above 0 and below 1"),
        (dict(rtol=1e308), "rtol must be a number above 0 and below 1"),
        (dict(max_products=0), "max_products must be a whole number of at least 1"),
        (dict(v=jnp.ones(3)), r"v must be flat with shape \(2,\)"),
        (dict(v=jnp.array([1.0, jnp.inf])), "v must be finite"),
        (dict(v=jnp.ones(2) + 1j), "v must be real where theta is real"),
        (dict(objective=jnp.sum), "objective must be a principalflow.Objective"),
        (dict(theta=jnp.ones(2, jnp.float16)), "theta must be in single or double precision"),
        (dict(f=3), "f must be a function of a float64 array that returns one of the same shape, got a int"),
        (dict(f=lambda x: 2.0), r"f must be .*; of shape \(3,\) it made \(\)"),
        (dict(f=lambda x: x[:, None]), r"f must be .*; of shape \(3,\) it made \(3, 1\)"),
        (dict(f=lambda x: (x, x)), r"f must be .*; of shape \(3,\) it made no array"),
        (dict(f=np.sqrt), "f must be .* made of JAX operations"),
        (dict(f=lambda x: x if x > 0 else -x), "f must be .* made of JAX operations"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    bowl = pf.functions.quadratic(jnp.eye(2))
    with pytest.raises(ValueError, match=message):
        pf.spectrum.apply(**(dict(objective=bowl, theta=bowl.theta, f=jnp.exp, v=jnp.ones(2)) | arguments))


def test_a_basis_beyond_memory_is_refused_before_it_is_made():
    long = pf.Objective(lambda theta: jnp.sum(theta**2), jnp.zeros(10**6))
    with pytest.raises(ValueError, match="max_products asks for a basis of 1000000 vectors"):
        pf.spectrum.apply(long, long.theta, jnp.exp, long.theta, max_products=10**9)


def test_single_precision_is_warned_of():
    bowl = pf.functions.quadratic(jnp.eye(2, dtype=jnp.float32))
    with pytest.warns(pf.PrecisionWarning, match="rtol=1e-08 is finer than float32 resolves; 1.2e-06 is used"):
        pf.spectrum.apply(bowl, bowl.theta, jnp.exp, jnp.ones(2, jnp.float32))


SIZE = 80
SPECTRA = {
    "a tail and what is above it": lambda r: [tail(r, 70), r.uniform(0.3, 2.2, 10)],
    "a cluster at the singularity": lambda r: [tail(r, 74), 1 + 10 ** r.uniform(-6, -1) * r.standard_normal(6)],
    "at the edge of stability": lambda r: [tail(r, 72), 2 + 0.02 * r.standard_normal(3), r.uniform(0.8, 1.5, 5)],
    "negative curvature": lambda r: [tail(r, 72), r.uniform(-3, 0, 4), r.uniform(0.5, 2, 4)],
    "all over": lambda r: [r.uniform(-1, 2.5, 80)],
    "symmetric about zero": lambda r: [half := r.uniform(0, 2, 40), -half],
}


def tail(random, count):
    return 10 ** random.uniform(-6, -0.3, count)


def first_of_phi(real, T):
    if not real:
        return phi_times(T, jnp.zeros(len(T), T.dtype).at[0].set(1), "continuous"), jnp.zeros(())
    values, vectors = jnp.linalg.eigh(T)
    return (vectors * phi(values, "continuous")) @ vectors[0], jnp.zeros(())


@partial(jax.jit, static_argnames="real")
def by_krylov(H, v, rtol, real):
    return krylov(lambda w: H @ w, v, partial(first_of_phi, real), rtol, SIZE, symmetric=real)


exactly = jax.jit(partial(phi_times, branch="continuous"))


@given(name=st.sampled_from(list(SPECTRA)), seed=st.integers(0, 2**32 - 1), rtol=st.sampled_from([1e-4, 1e-6, 1e-8]))
def test_whatever_the_spectrum_the_error_is_what_was_asked_for_or_little_more(name, seed, rtol):
    random = np.random.default_rng(seed)
    values, v = np.concatenate(SPECTRA[name](random)), random.standard_normal(SIZE)
    expected = v * phi(values, "continuous")
    found = by_krylov(np.diag(values), v, rtol, real=True)
    error = jnp.linalg.norm(found.vector - expected) / jnp.linalg.norm(expected)
    assert found.converged
    assert error <= 10 * rtol


@given(seed=st.integers(0, 2**32 - 1), rtol=st.sampled_from([1e-4, 1e-8]))
def test_next_to_a_defective_hessian_too(seed, rtol):
    # Pairs of eigenvalues with almost one eigenvector: [[z + ia, a], [a, z - ia]] is symmetric, and a Jordan block.
    random = np.random.default_rng(seed)
    z, a = tail(random, SIZE) + 0.01j * random.standard_normal(SIZE), 0.1 * random.standard_normal(SIZE // 2)
    z[-8:] += random.uniform(0.5, 2, 8)
    z[1::2] = z[::2] + 1e-9
    H = np.diag(z + 1j * np.stack([a, -a], axis=1).ravel())
    for first in range(0, SIZE, 2):
        H[first, first + 1] = H[first + 1, first] = a[first // 2]
    v = random.standard_normal(SIZE) + 0j
    found, expected = by_krylov(H, v, rtol, real=False), exactly(jnp.asarray(H), jnp.asarray(v))
    assert found.converged
    assert jnp.linalg.norm(found.vector - expected) <= 10 * rtol * jnp.linalg.norm(expected)


def test_it_stops_within_a_few_products_of_the_fewest_with_which_any_method_of_this_space_could():
    spent = []
    for seed in range(40):
        random = np.random.default_rng(seed)
        values, v = np.concatenate(SPECTRA["at the edge of stability"](random)), random.standard_normal(SIZE)
        expected = v * phi(values, "continuous")
        spent.append(int(by_krylov(np.diag(values), v, 1e-8, real=True).products) - fewest(values, v, expected, 1e-8))
    assert min(spent) >= 0
    assert np.mean(spent) <= 4
    assert max(spent) <= 6


def fewest(values, v, expected, rtol):
    """Of the spaces spanned by v, Hv, H²v, ... the size of the first that comes so near to `expected`."""
    basis, w, rest = [], v, np.array(expected)
    while np.linalg.norm(rest) > rtol * np.linalg.norm(expected):
        for _ in range(2):
            w = w - sum((q * (q @ w) for q in basis), np.zeros(SIZE))
        basis.append(w / np.linalg.norm(w))
        rest = rest - basis[-1] * (basis[-1] @ rest)
        w = values * basis[-1]
    return len(basis)
