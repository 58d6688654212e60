import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from hypothesis import given
from hypothesis import strategies as st

from principalflow.flows._logarithm import BRANCHES, log, phi, phi_times

EPS = np.finfo(float).eps


def phi_derivative(z, branch):
    return (-1 / (1 - z) - phi(z, branch)) / z


@pytest.mark.parametrize("branch", BRANCHES)
@given(z=st.floats(-0.01, 0.01))
def test_phi_equals_its_series_near_zero(branch, z):
    series = -sum(z**p / (p + 1) for p in range(9))
    np.testing.assert_allclose(phi(jnp.asarray(z), branch), series, rtol=4 * EPS)


@given(z=st.floats(-100, 100).filter(lambda z: abs(z - 1) > EPS))
def test_the_branches_agree_on_the_real_axis(z):
    z = jnp.asarray(z)
    np.testing.assert_allclose(phi(z, "continuous"), phi(z, "principal"), rtol=1e-12)


@given(z=st.floats(1.001, 100))
def test_beyond_one_the_logarithm_is_that_of_the_modulus_plus_i_pi(z):
    np.testing.assert_allclose(
        log(jnp.asarray(1 - z), "continuous"), np.log(z - 1) + 1j * np.pi, rtol=1e-12, atol=1e-12
    )


@given(z=st.floats(1.001, 100))
def test_the_continuous_branch_does_not_jump_at_the_real_axis_and_the_principal_one_does(z):
    above, below = jnp.asarray(z + 1e-9j), jnp.asarray(z - 1e-9j)
    assert abs(phi(above, "continuous") - phi(below, "continuous")) < 1e-5
    np.testing.assert_allclose(phi(above, "principal") - phi(below, "principal"), -2j * np.pi / z, rtol=1e-4)


def test_the_continuous_branch_has_its_cut_on_the_negative_imaginary_axis():
    left, right = log(jnp.asarray(-1e-12 - 1j), "continuous"), log(jnp.asarray(1e-12 - 1j), "continuous")
    np.testing.assert_allclose(left - right, 2j * np.pi, atol=1e-10)


@pytest.mark.parametrize("branch", BRANCHES)
def test_the_singularity_is_floored_at_the_machine_epsilon(branch):
    np.testing.assert_allclose(phi(jnp.asarray(1.0), branch), np.log(EPS), rtol=1e-12)


def test_single_precision_stays_single():
    assert phi(jnp.asarray(1.5, jnp.float32), "continuous").dtype == jnp.complex64


@pytest.mark.parametrize("branch", BRANCHES)
def test_the_matrix_function_holds_for_a_defective_matrix(branch):
    # A Jordan block of size 3: the first row of phi(J) is phi, phi', phi''/2.
    z = jnp.asarray(1.7 + 0.3j)
    block = z * jnp.eye(3) + jnp.eye(3, k=1)
    second = (-1 / (1 - z) ** 2 - 2 * phi_derivative(z, branch)) / z
    expected = jnp.array([second / 2, phi_derivative(z, branch), phi(z, branch)])
    np.testing.assert_allclose(phi_times(block, jnp.eye(3)[2] + 0j, branch), expected, rtol=1e-12)


@pytest.mark.parametrize("branch", BRANCHES)
def test_the_matrix_function_holds_for_a_defective_complex_symmetric_matrix(branch):
    # A Hessian at complex theta can be [[z + i, 1], [1, z - i]]: symmetric, with one eigenvector only.
    z = jnp.asarray(1.4 + 0.2j)
    nilpotent = jnp.array([[1j, 1], [1, -1j]])
    v = jnp.array([1.0 + 0j, 2.0])
    expected = phi(z, branch) * v + phi_derivative(z, branch) * (nilpotent @ v)
    np.testing.assert_allclose(phi_times(z * jnp.eye(2) + nilpotent, v, branch), expected, rtol=1e-12)


def test_the_matrix_function_of_zero_is_minus_one():
    v = jnp.array([1.0 + 2j, -3.0])
    np.testing.assert_allclose(phi_times(jnp.zeros((2, 2)) + 0j, v, "continuous"), -v, rtol=1e-14)


@pytest.mark.parametrize("branch", BRANCHES)
def test_the_matrix_function_of_a_symmetric_matrix_is_that_of_its_eigenvalues(branch):
    random = np.random.default_rng(0)
    values = np.array([0, 1e-9, 1 - 1e-3, 1 + 1e-3, 2.99, -0.99, 0.4])
    basis, _ = np.linalg.qr(random.standard_normal((7, 7)))
    v = random.standard_normal(7)
    expected = basis @ (phi(jnp.asarray(values), branch) * (basis.T @ v))
    actual = phi_times(jnp.asarray((basis * values) @ basis.T) + 0j, jnp.asarray(v) + 0j, branch)
    np.testing.assert_allclose(actual, expected, atol=1e-11)


def test_the_matrix_logarithm_agrees_with_scipys():
    random = np.random.default_rng(0)
    Z = random.standard_normal((12, 12)) / 2 + 0.5j * random.standard_normal((12, 12))
    v = random.standard_normal(12) + 0j
    expected = np.linalg.solve(Z, scipy.linalg.logm(np.eye(12) - Z) @ v)
    np.testing.assert_allclose(phi_times(jnp.asarray(Z), jnp.asarray(v), "principal"), expected, rtol=1e-10)


def test_large_eigenvalues_are_known_to_1e_12_and_those_beyond_1e24_are_nan():
    within, beyond = (
        phi_times(z * jnp.eye(1, dtype=complex), jnp.ones(1, complex), "continuous") for z in (9e23, 2e24)
    )
    np.testing.assert_allclose(within, phi(jnp.array([9e23]), "continuous"), rtol=1e-12)
    assert np.isnan(beyond[0])
