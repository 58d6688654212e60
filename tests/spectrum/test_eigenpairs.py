"""Eigenpairs of a network's Hessian against the dense one."""

import jax.numpy as jnp
import numpy as np
import pytest
from cases import regression
from threadpoolctl import threadpool_info, threadpool_limits

import principalflow as pf
from principalflow.spectrum import top_eigenpairs
from principalflow.spectrum._eigenpairs import _QUIET
from principalflow.spectrum._hessian import Hessian

NETWORK = regression(samples=40, sizes=(8, 30, 20, 3), chunk=16)  # 953 parameters


@pytest.fixture(scope="module")
def dense():
    return np.linalg.eigh(NETWORK.hessian(NETWORK.theta))


@pytest.mark.parametrize("which", ["largest", "smallest"])
def test_eigenpairs_are_those_of_the_dense_hessian(dense, which):
    values, vectors = dense
    ends = slice(None, None, -1) if which == "largest" else slice(None)
    eig = top_eigenpairs(NETWORK, NETWORK.theta, k=3, tol=1e-8, which=which)
    assert eig.converged
    assert eig.method == "block"
    np.testing.assert_allclose(eig.values, values[ends][:3], rtol=1e-12)
    np.testing.assert_allclose(np.abs(np.sum(vectors[:, ends][:, :3] * eig.vectors, axis=0)), 1, atol=1e-10)


def test_cover_holds_all_unstable_directions(dense):
    c = float(np.mean(dense[0][-6:-4]))  # between the fifth and the sixth
    eig = top_eigenpairs(NETWORK, NETWORK.theta, k=1, tol=1e-6, cover=c)
    np.testing.assert_allclose(eig.values, dense[0][::-1][:6], rtol=1e-6)


def test_a_former_result_as_guess_costs_its_certificate_and_the_probe():
    first = top_eigenpairs(NETWORK, NETWORK.theta, k=3, tol=1e-4)
    again = top_eigenpairs(NETWORK, NETWORK.theta + 1e-3, k=3, tol=1e-2, guess=first)
    assert again.converged
    assert again.products == 4


def test_a_block_as_guess_is_not_taken_for_the_whole_truth():
    lacking = top_eigenpairs(NETWORK, NETWORK.theta, k=5, tol=1e-6).vectors[:, 1:]
    eig = top_eigenpairs(NETWORK, NETWORK.theta, k=3, guess=lacking)
    np.testing.assert_allclose(eig.values, top_eigenpairs(NETWORK, NETWORK.theta, k=3).values, rtol=1e-3)


def test_fewer_than_500_parameters_take_the_dense_route():
    small = regression()
    eig = top_eigenpairs(small, small.theta, k=2)
    assert eig.method == "dense"
    assert eig.products == small.theta.size
    np.testing.assert_allclose(eig.values, np.linalg.eigvalsh(small.hessian(small.theta))[::-1][:2], rtol=1e-12)


def test_select_takes_the_diagonal_block_of_a_layer():
    index = NETWORK.entries(lambda path: path.startswith("[1]"))
    block = np.asarray(NETWORK.hessian(NETWORK.theta))[np.ix_(index, index)]
    eig = top_eigenpairs(NETWORK, NETWORK.theta, k=3, tol=1e-8, select=lambda path: path.startswith("[1]"))
    assert index.size == 620  # so this is the block method's
    assert eig.method == "block"
    np.testing.assert_allclose(eig.values, np.linalg.eigvalsh(block)[::-1][:3], rtol=1e-12)
    assert eig.vectors.shape == (NETWORK.theta.size, 3)
    outside = np.setdiff1d(np.arange(NETWORK.theta.size), index)
    np.testing.assert_array_equal(eig.vectors[outside], 0)


def test_select_that_selects_nothing_is_refused_with_the_paths():
    message = r"select must be true for at least one path, but it is for none of \[0\]\[0\], "
    with pytest.raises(ValueError, match=message):
        top_eigenpairs(NETWORK, NETWORK.theta, k=1, select=lambda path: "convolution" in path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(k=0), "k must be"),
        (dict(k=954), "k must be at most the number of parameters, 953"),
        (dict(tol=0), "tol must be"),
        (dict(guess=jnp.ones((7, 3))), r"guess must be real with shape \(953, m\), vectors as columns, got float64\(7"),
        (dict(guess=jnp.ones(953)), "guess must be real with shape"),
        (dict(guess=jnp.ones((953, 2)) * 1j), "guess must be real"),
        (dict(select="[0]"), "select must be a function"),
        (dict(objective=jnp.sum), "objective must be a principalflow.Objective"),
        (dict(guess=jnp.ones((953, 2))), "independent columns"),
        (dict(theta=NETWORK.theta + 1j), "theta must be real"),
        (dict(theta=NETWORK.theta * jnp.nan), "theta must be finite"),
        (dict(theta=NETWORK.theta.astype(jnp.float16)), "theta must be in single or double precision, .* got float16"),
        (
            dict(theta=NETWORK.theta.astype(jnp.bfloat16)),
            "theta must be in single or double precision, .* got bfloat16",
        ),
        (dict(guess=[["a"]]), "guess must be an array of numbers"),
        (dict(select=lambda: True), "select must be a function of path"),
    ],
)
def test_bad_input_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        top_eigenpairs(**(dict(objective=NETWORK, theta=NETWORK.theta, k=2) | changes))


def test_a_hessian_that_is_not_finite_is_refused():
    roots = pf.Objective(lambda theta: jnp.sum(jnp.sqrt(theta)), jnp.ones(3))
    with pytest.raises(pf.NonFiniteError, match=r"^the Hessian at theta must be finite"):
        top_eigenpairs(roots, jnp.zeros(3), k=1)


def test_a_basis_beyond_memory_is_refused_beforehand(monkeypatch):
    monkeypatch.setattr("principalflow._checks._available_memory", lambda: 2**28)
    objective = pf.Objective(lambda p: jnp.sum(p**2), jnp.ones(5000))
    with pytest.raises(ValueError, match=r"^k asks for 8540 vectors of 5000 numbers, which take 0.318 GiB .* 0.25 GiB"):
        pf.spectrum.top_eigenpairs(objective, objective.theta, k=1000)


def test_a_selection_of_nothing_from_a_single_array_says_that_its_path_is_empty():
    objective = pf.Objective(lambda p: jnp.sum(p**2), jnp.ones(3))
    with pytest.raises(ValueError, match="none of '' \\(the parameters are one array\\)"):
        objective.entries(lambda path: path == "w")


def test_more_pairs_than_parameters_are_refused_by_name():
    objective = pf.Objective(lambda p: jnp.sum(p**2), jnp.ones(3))
    with pytest.raises(ValueError, match="k must be at most the number of parameters, 3, got 5000"):
        pf.spectrum.top_eigenpairs(objective, objective.theta, k=5000)


def test_the_status_says_whether_all_is_as_exact_as_was_asked():
    values = np.linspace(1, 10, 600)[:, None]
    start = np.random.default_rng(0).standard_normal((600, 3))
    found = pf.spectrum.block_eigenpairs(lambda V: values * V, start, k=3)
    given_up = pf.spectrum.block_eigenpairs(lambda V: values * V, start, k=3, tol=1e-6, max_products=20)
    assert (found.status, given_up.status) == (pf.Status.COMPLETED, pf.Status.INEXACT)
    assert given_up.message.endswith("raise max_products or tol")


def test_the_gradients_product_comes_with_the_eigenpairs():
    objective = pf.functions.banana()
    eigenpairs, gradient, product = pf.spectrum.eigenpairs_and_gradient(objective, [1.3, 1.5], 1)
    np.testing.assert_allclose(product, objective.hessian([1.3, 1.5]) @ gradient, rtol=1e-12)
    np.testing.assert_allclose(eigenpairs.values, np.linalg.eigvalsh(objective.hessian([1.3, 1.5]))[-1:])


def test_the_sharpness_along_a_path_is_that_of_each_point():
    objective = pf.functions.banana()
    thetas = np.array([[1.0, 0.7], [0.5, 0.2], [np.inf, 1.0]])
    found = pf.spectrum.sharpness(objective, thetas)
    np.testing.assert_allclose(found[:2], [np.linalg.eigvalsh(objective.hessian(theta))[-1] for theta in thetas[:2]])
    assert np.isnan(found[2])


def test_the_last_of_several_searches_gives_the_threads_of_numpy_back():
    def count():
        return _QUIET._blas.select(user_api="blas").info()[0]["num_threads"]

    with threadpool_limits(2, user_api="blas"):
        _QUIET.__enter__()
        _QUIET.__enter__()
        _QUIET.__exit__()
        assert count() == 1
        _QUIET.__exit__()
        assert count() == 2


def test_searches_leave_the_threads_of_numpy_as_they_were_also_where_they_fail(monkeypatch):
    def counts():
        return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]

    times_rows, during = Hessian.times_rows, []
    monkeypatch.setattr(Hessian, "times_rows", lambda *a: during.append(counts()) or times_rows(*a))
    with threadpool_limits(2, user_api="blas"):
        before = counts()
        top_eigenpairs(NETWORK, NETWORK.theta, k=1)
        assert 1 in during[0]  # of a BLAS that was there when the first search began
        assert counts() == before
        with pytest.raises(ValueError, match="must be finite"):
            top_eigenpairs(NETWORK, NETWORK.theta, k=1, guess=jnp.full((953, 1), jnp.nan))
        assert counts() == before
