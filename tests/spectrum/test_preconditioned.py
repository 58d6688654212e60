"""Eigenpairs of the Hessian in an optimiser's metric, P^-1/2 (H + W) P^-1/2, against the dense matrix."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import compilations, regression

from principalflow.spectrum import eigenpairs_and_gradient, top_eigenpairs

NETWORK = regression(samples=40, sizes=(8, 30, 20, 3))  # 953 parameters
CHUNKED = regression(samples=40, sizes=(8, 30, 20, 3), chunk=16)
SMALL = regression()
WHOLE = NETWORK.theta.size


def metric(size, seed=0):
    return np.exp(np.random.default_rng(seed).normal(0, 1, size))


def dense(objective, P, W=0.0):
    scale = 1 / np.sqrt(P)
    H = np.asarray(objective.hessian(objective.theta)) + np.diag(np.broadcast_to(W, scale.shape))
    return scale[:, None] * H * scale


@pytest.mark.parametrize("objective", [NETWORK, CHUNKED, SMALL], ids=["block", "chunks", "dense"])
@pytest.mark.parametrize("decay", ["none", "number", "vector"])
def test_eigenpairs_are_those_of_the_dense_matrix(objective, decay):
    size = objective.theta.size
    P = metric(size)
    W = {"none": 0.0, "number": 0.3, "vector": metric(size, 1)}[decay]
    eig = top_eigenpairs(objective, objective.theta, k=3, tol=1e-8, preconditioner=P, decay=W)
    values, vectors = np.linalg.eigh(dense(objective, P, W))
    assert eig.converged
    np.testing.assert_allclose(eig.values, values[::-1][:3], rtol=1e-12)
    np.testing.assert_allclose(np.abs(np.sum(vectors[:, ::-1][:, :3] * eig.vectors, axis=0)), 1, atol=1e-9)
    np.testing.assert_allclose(eig.vectors.T @ eig.vectors, np.eye(3), atol=1e-10)


def test_decay_alone_shifts_all_eigenvalues():
    plain, shifted = (top_eigenpairs(SMALL, SMALL.theta, k=3, decay=decay).values for decay in (0, 0.25))
    np.testing.assert_allclose(shifted, plain + 0.25, rtol=1e-12)


def test_parameters_that_rest_have_no_part():
    rest = np.random.default_rng(2).random(WHOLE) < 0.3
    P = np.where(rest, np.inf, metric(WHOLE))
    eig = top_eigenpairs(NETWORK, NETWORK.theta, k=2, tol=1e-8, preconditioner=P)
    moving = dense(NETWORK, P)[np.ix_(~rest, ~rest)]
    np.testing.assert_allclose(eig.values, np.linalg.eigvalsh(moving)[::-1][:2], rtol=1e-12)
    np.testing.assert_allclose(np.asarray(eig.vectors)[rest], 0, atol=1e-8)  # the residual


def test_where_all_rest_the_eigenvalues_are_zero():
    eig = top_eigenpairs(NETWORK, NETWORK.theta, k=2, preconditioner=np.full(WHOLE, np.inf))
    np.testing.assert_array_equal(eig.values, 0)


def test_a_selection_has_its_part_of_the_metric():
    index = NETWORK.entries(lambda path: path.startswith("[1]"))
    P = metric(WHOLE)
    block = dense(NETWORK, P, 0.1)[np.ix_(index, index)]
    select = lambda path: path.startswith("[1]")  # noqa: E731
    eig = top_eigenpairs(NETWORK, NETWORK.theta, k=2, tol=1e-8, select=select, preconditioner=P, decay=0.1)
    np.testing.assert_allclose(eig.values, np.linalg.eigvalsh(block)[::-1][:2], rtol=1e-12)


def test_a_metric_may_have_the_structure_of_the_parameters():
    P, params = metric(WHOLE), NETWORK.unravel(NETWORK.theta)
    tree = NETWORK.unravel(jnp.asarray(P))
    flat, structured = (
        top_eigenpairs(NETWORK, NETWORK.theta, k=2, preconditioner=form, decay=W)
        for form, W in ((P, np.asarray(NETWORK.theta)), (tree, params))
    )
    np.testing.assert_array_equal(flat.values, structured.values)


def test_a_slowly_changing_metric_costs_what_a_slowly_changing_hessian_does():
    random = np.random.default_rng(3)
    logs, drift = random.normal(0, 1, WHOLE), random.normal(0, 1, WHOLE)
    eig, products = None, []
    for step in range(20):
        P = np.exp(logs + 1e-3 * step * drift)
        theta = NETWORK.theta + 1e-4 * step
        eig = top_eigenpairs(NETWORK, theta, k=4, tol=1e-2, guess=eig, preconditioner=P)
        assert eig.converged
        scale = 1 / np.sqrt(P)
        true = np.linalg.eigvalsh(scale[:, None] * np.asarray(NETWORK.hessian(theta)) * scale)[::-1][:4]
        np.testing.assert_allclose(eig.values, true, atol=1e-2 * true[0])
        products.append(eig.products)
    assert np.mean(products[1:]) <= 8


def test_another_metric_compiles_nothing_anew():
    P = metric(WHOLE)
    eig, *_ = eigenpairs_and_gradient(NETWORK, NETWORK.theta, 2, preconditioner=P, decay=0.1)
    with compilations() as compiled:
        eigenpairs_and_gradient(NETWORK, NETWORK.theta, 2, guess=eig, preconditioner=1.01 * P, decay=0.2)
    assert compiled == []


@pytest.mark.parametrize("W", [0.0, 0.3])
def test_gradient_and_its_product_are_those_of_the_metrics_coordinates(W):
    P = np.where(np.arange(WHOLE) % 5 == 0, np.inf, metric(WHOLE))
    eig, gradient, product = eigenpairs_and_gradient(NETWORK, NETWORK.theta, 2, tol=1e-6, preconditioner=P, decay=W)
    wanted = (NETWORK.gradient(NETWORK.theta) + W * NETWORK.theta) / np.sqrt(P)
    np.testing.assert_allclose(gradient, wanted, rtol=1e-12)
    np.testing.assert_allclose(product, dense(NETWORK, P, W) @ wanted, atol=1e-10)
    np.testing.assert_allclose(eig.values, np.linalg.eigvalsh(dense(NETWORK, P, W))[::-1][:2], rtol=1e-8)


def test_single_precision_stays_single():
    with jax.enable_x64(False):
        small = regression()
        eig, gradient, _ = eigenpairs_and_gradient(
            small, small.theta, 1, preconditioner=metric(small.theta.size).astype(np.float32), decay=0.1
        )
    assert eig.vectors.dtype == gradient.dtype == jnp.float32


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(preconditioner=np.zeros(WHOLE)), f"preconditioner must hold numbers above 0, .* but {WHOLE} of its"),
        (dict(preconditioner=-np.ones(WHOLE)), "preconditioner must hold numbers above 0, infinite where"),
        (dict(preconditioner=np.full(WHOLE, np.nan)), "preconditioner must hold numbers above 0"),
        (dict(preconditioner=np.ones(WHOLE) * 1j), "preconditioner must be real"),
        (dict(preconditioner=np.ones(7)), rf"preconditioner must be flat with shape \({WHOLE},\), got shape \(7,\)"),
        (dict(preconditioner=[np.ones(2)]), "preconditioner must have the objective's structure"),
        (dict(preconditioner=2.0), "preconditioner must be flat"),
        (dict(preconditioner="adam"), "preconditioner must be"),
        (dict(decay=np.ones(7)), "decay must be flat with shape"),
        (dict(decay=np.nan), "decay must be a finite number"),
        (dict(decay=np.full(WHOLE, np.inf)), "decay must be finite"),
        (dict(decay=1j), "decay must be"),
        (dict(decay=None), "decay must be"),
        (dict(decay="much"), "decay must be"),
    ],
)
def test_bad_input_is_refused(changes, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        top_eigenpairs(NETWORK, NETWORK.theta, k=1, **changes)
    with pytest.raises(ValueError, match=f"^{message}"):
        eigenpairs_and_gradient(NETWORK, NETWORK.theta, 1, **changes)
