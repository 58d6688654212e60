"""Eigenpairs along operators that change: what a former result can't have seen is found, or it isn't converged.

A solve is wrong where a value called converged is off by more than ten residuals and by more than the tolerance.
"""

import jax.numpy as jnp
import numpy as np
import pytest
from cases import network, square_loss

import principalflow as pf
from principalflow.spectrum import block_eigenpairs
from principalflow.spectrum._trail import probe

TOL, EIGHTHS, FAMILIES = 1e-3, np.arange(1, 9) / 8, 10  # in a group: 80 warm solves
KINDS = ("normal", "positive", "uniform", "outliers", "low rank")


def spectrum(kind, size, random):
    values = random.standard_normal(size)
    return {
        "normal": values,
        "positive": np.abs(values),
        "uniform": random.uniform(0, 1, size),
        "outliers": np.concatenate([random.uniform(2, 20, 12), 0.1 * values[12:]]),
        "low rank": np.concatenate([random.uniform(-1, 10, 20), 1e-6 * values[20:]]),
    }[kind]


def crossing(kind, size, random):
    """A + tB that commute, so that eigenvalues cross, and an eigenvector sees nothing of any other."""
    a, b = spectrum(kind, size, random), random.permutation(spectrum(kind, size, random))
    return lambda t: ((lambda V: (a + t * b)[:, None] * V), a + t * b)


def rotated(kind, size, random):
    """The same, of random eigenvectors."""
    Q, at = np.linalg.qr(random.standard_normal((size, size)))[0], crossing(kind, size, random)

    def turned(t):
        product, true = at(t)
        return (lambda V: Q @ product(Q.T @ V)), true

    return turned


def generic(kind, size, random):
    """A + tB, B of random eigenvectors, so that eigenvalues repel each other."""
    a, b = spectrum(kind, size, random), spectrum(kind, size, random)
    Q = np.linalg.qr(random.standard_normal((size, size)))[0]
    B = (Q * b) @ Q.T

    def at(t):
        H = np.diag(a) + t * B
        return (lambda V: H @ V), np.linalg.eigvalsh(H)

    return at


def wrong_solves(family, seeds, times=EIGHTHS):
    """Returns the solves that are wrong and called converged, by seed and t, and each solve's products beyond k."""
    wrong, products = [], []
    for seed in seeds:
        random = np.random.default_rng(seed)
        size, k = 500, int(random.integers(1, 5))
        at = family(KINDS[seed % 5], size, random)
        eig = block_eigenpairs(at(0)[0], random.standard_normal((size, k)), k, tol=TOL)
        for t in times:
            product, true = at(t)
            eig = block_eigenpairs(product, eig, k, tol=TOL)
            products.append(eig.products - k)
            off, scale = np.abs(eig.values - np.sort(true)[::-1][:k]), np.max(np.abs(true))
            if eig.converged and np.any((off > 10 * eig.residuals) & (off > TOL * scale)):
                wrong.append((seed, t))
    return wrong, products


@pytest.mark.parametrize(
    ("family", "group"),
    [
        *((family, 0) for family in (crossing, rotated, generic)),
        *(pytest.param(f, i, marks=pytest.mark.slow) for f in (crossing, rotated, generic) for i in range(1, 10)),
    ],
)
def test_no_warm_start_on_a_family_of_operators_is_wrong_and_called_converged(family, group):
    wrong, _ = wrong_solves(family, range(group * FAMILIES, (group + 1) * FAMILIES))
    assert wrong == []


@pytest.mark.slow
@pytest.mark.parametrize("family", [crossing, generic])
def test_in_small_steps_nothing_is_overlooked_either_though_most_need_no_search(family):
    wrong, products = wrong_solves(family, range(5), np.linspace(0.001, 0.05, 50))
    assert wrong == []
    assert np.mean(np.asarray(products) <= 2) > 0.3


def test_with_a_smaller_k_than_before_the_vectors_left_out_are_not_forgotten():
    d = np.concatenate([np.arange(10.0, 0, -1), np.linspace(0, 0.5, 590)])[:, None]
    eig = block_eigenpairs(lambda V: d * V, np.random.default_rng(0).standard_normal((600, 8)), k=8)
    eig = block_eigenpairs(lambda V: d * V, eig, k=2)
    d[4] = 9.5
    np.testing.assert_allclose(block_eigenpairs(lambda V: d * V, eig, k=2).values, [10, 9.5], rtol=1e-3)


@pytest.mark.parametrize("fewer", [2, 1])
def test_with_one_k_less_or_two_the_guard_is_not_forgotten(fewer):
    d = np.concatenate([[10, 9, 8, 7.9], np.linspace(0, 0.5, 596)])[:, None]
    eig = block_eigenpairs(lambda V: d * V, np.random.default_rng(0).standard_normal((600, 3)), k=3)
    for _ in range(2):  # the guard is left out without being multiplied
        eig = block_eigenpairs(lambda V: d * V, eig, k=3 if eig.trail.calls == 1 else fewer)
    d[3] = 9.5
    wanted = np.sort(d[:, 0])[::-1][:fewer]
    np.testing.assert_allclose(block_eigenpairs(lambda V: d * V, eig, k=fewer).values, wanted, rtol=1e-3)


def test_with_a_cover_the_vectors_left_out_are_not_forgotten():
    d = np.concatenate([[10, 9.8, 9.6, 9.4, 9.2, 8, 7.9, 7, 7], np.linspace(0, 0.5, 591)])[:, None]
    eig = block_eigenpairs(lambda V: d * V, np.random.default_rng(0).standard_normal((600, 1)), k=1, cover=9)
    d[8] = 9.5
    eig = block_eigenpairs(lambda V: d * V, eig, k=1, cover=9)
    np.testing.assert_allclose(eig.values, [10, 9.8, 9.6, 9.5, 9.4, 9.2, 8], rtol=1e-3)


def test_an_eigenvalue_that_rises_out_of_sight_is_found_at_once():
    d = np.linspace(0, 1, 600)[:, None]
    eig = block_eigenpairs(lambda V: d * V, np.random.default_rng(0).standard_normal((600, 1)), k=1)
    d[100] = 10.0
    again = block_eigenpairs(lambda V: d * V, eig, k=1)
    assert again.converged
    np.testing.assert_allclose(again.values, 10, rtol=1e-3)
    assert again.products <= 10


@pytest.mark.parametrize("axes", [1, 2, 4, 6])
def test_a_rise_along_sums_and_differences_of_axes_is_found_as_often_as_any_other(axes):
    random, found = np.random.default_rng(0), []
    d = np.concatenate([[50, 40, 30, 20], random.uniform(0, 5, 796)])[:, None]
    before = block_eigenpairs(lambda V: d * V, random.standard_normal((800, 4)), k=4, tol=1e-2)
    for _ in range(200):
        u = np.zeros((800, 1))
        u[random.choice(np.arange(4, 800), axes, replace=False), 0] = random.choice([-1, 1], axes) / axes**0.5
        eig = block_eigenpairs(lambda V, u=u: d * V + 100 * u * (u.T @ V), before, k=4, tol=1e-2)
        found.append(eig.values[0] > 100)
    assert np.mean(found) > 0.8


def test_a_rise_that_the_probe_does_not_meet_is_found_by_the_next_probe():
    d = np.concatenate([[50, 40, 30, 20], np.random.default_rng(0).uniform(0, 5, 796)])[:, None]
    eig = block_eigenpairs(lambda V: d * V, np.eye(800, 4), k=2)
    unmet = np.zeros((800, 1))
    p = probe(np, np.zeros((800, 1)), calls=0)
    unmet[100:102, 0] = [p[101], -p[100]] / np.linalg.norm(p[100:102])
    values = []
    for _ in range(60):
        eig = block_eigenpairs(lambda V: d * V + 100 * unmet * (unmet.T @ V), eig, k=2)
        values.append(eig.values[0])
    assert values[0] < 51
    assert values[-1] > 99


def test_a_direction_that_was_lost_is_found_again_after_a_search_that_had_to_give_up():
    d = np.linspace(0, 1, 600)[:, None]
    eig = block_eigenpairs(lambda V: d * V, np.random.default_rng(0).standard_normal((600, 1)), k=1)
    d[100:103] = [[10.0], [9.99], [9.98]]
    given_up = block_eigenpairs(lambda V: d * V, eig, k=1, tol=1e-6, max_products=4)
    assert not given_up.converged
    np.testing.assert_allclose(block_eigenpairs(lambda V: d * V, given_up, k=1).values, 10, rtol=1e-3)


@pytest.mark.slow
def test_of_two_independent_networks_the_monitor_sees_the_sharper_one():
    random = np.random.default_rng(0)
    nets = {name: network((6, 20, 15, 2), seed) for seed, name in enumerate("ab")}  # 487 parameters each
    data = jnp.asarray(random.standard_normal((20, 6))), jnp.asarray(random.standard_normal((20, 2)))
    alone = pf.Objective(square_loss, nets["a"], data)
    both = pf.Objective(lambda p: square_loss(p["a"], data) + square_loss(p["b"], data), nets)
    monitor, sharper, wrong = pf.Monitor(both, k=1, every=1), [], []
    start = {name: pf.Objective(square_loss, net, data).theta for name, net in nets.items()}
    for step, s in enumerate(np.linspace(0, 1, 30)):
        # One grows flatter while the other grows sharper.
        thetas = {"a": (1.5 - s) * start["a"], "b": (0.5 + s) * start["b"]}
        row = monitor.observe(step, {name: alone.unravel(theta) for name, theta in thetas.items()}, 0.01)
        true = {name: np.linalg.eigvalsh(alone.hessian(theta))[-1] for name, theta in thetas.items()}
        sharper.append(max(true, key=true.get))
        off = abs(row["eigenvalue_0"] - max(true.values()))
        if row["converged"] and off > max(10 * row["residual_0"], 0.01 * max(true.values())):
            wrong.append(step)
    assert sharper[0] == "a"
    assert sharper[-1] == "b"
    assert wrong == []


def test_along_a_smooth_path_a_start_that_moves_on_needs_its_certificate_and_the_probe():
    random = np.random.default_rng(1)
    values = np.concatenate([[100, 80, 60, 40, 20], random.uniform(0, 1, 795)])
    turn = random.standard_normal((2, 800)) / 30

    def product(t):
        normal = np.eye(800, 2) @ [1, 0] + t * turn[0] + t * t * turn[1]
        normal /= np.linalg.norm(normal)
        reflect = lambda V: V - 2 * np.outer(normal, normal @ V)  # noqa: E731
        return lambda V: reflect(values[:, None] * reflect(V))

    eig, products = random.standard_normal((800, 3)), []
    for t in np.linspace(0, 0.2, 30):
        eig = block_eigenpairs(product(t), eig, k=3, tol=1e-2)
        products.append(eig.products)
    assert np.median(products) == 3 + 1


@pytest.mark.parametrize("which", ["largest", "smallest"])
def test_a_warm_start_at_either_end_of_a_lopsided_spectrum_stays_cheap(which):
    random = np.random.default_rng(2)
    values = np.concatenate([[-100, -90, -80, 3, 2, 1.5], random.uniform(-0.1, 0.1, 794)])
    eig = random.standard_normal((800, 2))
    for _ in range(10):
        drifted = values * (1 + 1e-4 * random.standard_normal(800))
        eig = block_eigenpairs(lambda V, d=drifted: d[:, None] * V, eig, k=2, which=which, tol=1e-3)
        assert eig.converged
    assert eig.products <= 8


@pytest.mark.parametrize("scale", [1e20, 1e37])
def test_a_warm_start_near_the_end_of_float32_is_as_good_as_any(scale):
    random = np.random.default_rng(0)
    values = random.uniform(-1, 1, (600, 1)).astype(np.float32)
    eig = random.standard_normal((600, 2)).astype(np.float32)
    for step in range(4):
        d = np.roll(values, step) * np.float32(scale)
        eig = block_eigenpairs(lambda V, d=d: d * V, eig, k=2, tol=1e-2)
        assert eig.converged
        np.testing.assert_allclose(eig.values, np.sort(d, axis=0)[:-3:-1, 0], rtol=1e-2)
