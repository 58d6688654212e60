"""The block eigensolver against operators whose eigenvalues are known."""

import jax
import jax.monitoring
import jax.numpy as jnp
import numpy as np
import pytest

import principalflow as pf
from principalflow.spectrum import Eigenpairs, block_eigenpairs


def operator(values, random):
    """A product with the symmetric matrix Q diag(values) Q, Q a product of reflections: dense, but quick to apply."""
    normals = np.linalg.qr(random.standard_normal((len(values), 4)))[0].T

    def reflect(V, normals):
        for normal in normals:
            V = V - 2 * np.outer(normal, normal @ V)
        return V

    return lambda V: reflect(values[:, None] * reflect(V, normals), normals[::-1])


def spectrum(kind, size, random):
    values = random.standard_normal(size)
    if kind == "cluster":
        values[:6] = 10 * (1 - 1e-4 * np.arange(6))
    elif kind == "repeated":
        values[:5] = 8
    elif kind == "negative":
        values = -np.abs(values)
    elif kind == "outliers":
        values = np.concatenate([[100, 50, 25, 12, 6, 3], 1e-3 * values[6:]])
    elif kind == "low rank":  # of both signs and many sizes
        values[:12] = 10 ** random.uniform(-3, 1, 12) * random.choice([1, -1], 12)
        values[12:] *= 1e-6
    return values


KINDS = ("bulk", "cluster", "repeated", "negative", "outliers", "low rank")


@pytest.mark.parametrize("seed", range(120))
def test_values_lie_within_ten_residuals_of_the_true_ones(seed):
    random = np.random.default_rng(seed)
    size = int(random.choice([50, 200, 500, 700, 1000, 2000]))
    values = spectrum(KINDS[seed % 6], size, random)
    k, which = int(random.integers(1, 6)), ("largest", "smallest")[seed // 6 % 2]
    tol = (1e-2, 1e-3, 1e-5)[seed % 3]
    guess = random.standard_normal((size, k + 3))
    eig = block_eigenpairs(operator(values, random), guess, k, tol=tol, which=which, max_products=5000)
    true = np.sort(values)[::-1][:k] if which == "largest" else np.sort(values)[:k]
    scale = np.max(np.abs(values))
    assert eig.converged
    assert np.all(eig.residuals <= tol * scale)
    np.testing.assert_array_less(np.abs(eig.values - true), 10 * eig.residuals + 1e-5 * tol * scale)
    assert np.all(np.diff(eig.values) <= 0 if which == "largest" else np.diff(eig.values) >= 0)
    assert eig.method == ("dense" if size < 500 else "block")


@pytest.mark.slow
@pytest.mark.parametrize("columns", [3, 5])
def test_eigenvalues_a_little_more_than_the_tolerance_apart_are_not_skipped(columns):
    values = np.arange(600.0)
    starts = (np.random.default_rng(seed).standard_normal((600, columns)) for seed in range(300))
    found = [block_eigenpairs(lambda V: values[:, None] * V, start, k=3, tol=1e-3).values for start in starts]
    off = np.max(np.abs(np.array(found) - [599, 598, 597]), axis=1)
    np.testing.assert_array_less(off, 0.6)  # a residual; `benchmarks/eigenpairs.py --skipped` takes more starts


def test_residuals_are_what_they_say():
    random = np.random.default_rng(0)
    product = operator(random.standard_normal(700), random)
    eig = block_eigenpairs(product, random.standard_normal((700, 6)), k=4, tol=1e-3)
    true = np.linalg.norm(product(eig.vectors) - eig.vectors * eig.values, axis=0)
    np.testing.assert_allclose(eig.residuals, true, rtol=1e-6)


def test_vectors_are_orthonormal():
    random = np.random.default_rng(1)
    eig = block_eigenpairs(operator(random.standard_normal(700), random), random.standard_normal((700, 6)), k=4)
    np.testing.assert_allclose(eig.vectors.T @ eig.vectors, np.eye(4), atol=1e-13)


def test_products_are_counted_by_columns():
    random = np.random.default_rng(2)
    product, columns = operator(random.standard_normal(700), random), []
    counted = lambda V: columns.append(V.shape[1]) or product(V)  # noqa: E731
    assert block_eigenpairs(counted, random.standard_normal((700, 6)), k=4).products == sum(columns)


def test_a_start_at_the_former_result_costs_little_more_than_its_certificate():
    random = np.random.default_rng(3)
    values = spectrum("outliers", 800, random)
    normals = np.random.default_rng(4)
    eig = block_eigenpairs(operator(values, normals), random.standard_normal((800, 7)), k=4, tol=1e-3)
    drifted = operator(values * (1 + 1e-3 * random.standard_normal(800)), np.random.default_rng(4))
    again = block_eigenpairs(drifted, eig, k=4, tol=1e-2)
    assert again.converged
    assert again.products <= 7
    assert eig.products > 2 * again.products


@pytest.mark.parametrize("noise", [0, 1e-6])
def test_eigenvectors_that_lack_the_largest_are_not_believed(noise):
    values = np.linspace(0, 1, 600)
    values[-1] = 3
    guess = np.eye(600)[:, -6:-1] + noise * np.random.default_rng(0).standard_normal((600, 5))
    eig = block_eigenpairs(lambda V: values[:, None] * V, guess, k=4)
    np.testing.assert_allclose(eig.values[0], 3, atol=1e-2)


def test_a_result_of_the_other_end_is_not_believed():
    values = np.linspace(-1, 2, 600)
    smallest = block_eigenpairs(lambda V: values[:, None] * V, np.eye(600, 4), k=3, which="smallest", tol=1e-6)
    eig = block_eigenpairs(lambda V: values[:, None] * V, smallest, k=3)
    np.testing.assert_allclose(eig.values, values[::-1][:3], atol=0.01)


def test_a_swap_of_order_is_seen():
    random = np.random.default_rng(5)
    values = np.concatenate([[10, 9, 8, 7, 6], random.uniform(0, 1, 595)])
    eig = block_eigenpairs(operator(values, np.random.default_rng(6)), random.standard_normal((600, 7)), k=4)
    values[4] = 9.5  # the guard rises to the second place
    again = block_eigenpairs(operator(values, np.random.default_rng(6)), eig, k=4)
    np.testing.assert_allclose(again.values, [10, 9.5, 9, 8], atol=0.01)


def test_cover_holds_all_beyond_it_and_one_more():
    values = np.concatenate([np.arange(20.0, 0, -1), np.zeros(680)])
    start = np.random.default_rng(7).standard_normal((700, 4))
    eig = block_eigenpairs(lambda V: values[:, None] * V, start, k=2, cover=7.5)
    np.testing.assert_allclose(eig.values, np.arange(20, 6, -1), atol=0.02)
    assert eig.converged


def test_cover_from_below():
    values = np.concatenate([-np.arange(9.0, 0, -1), np.ones(691)])
    start = np.random.default_rng(8).standard_normal((700, 4))
    eig = block_eigenpairs(lambda V: values[:, None] * V, start, k=1, which="smallest", cover=-3.5)
    np.testing.assert_allclose(eig.values, [-9, -8, -7, -6, -5, -4, -3], atol=0.01)


def test_cover_that_is_reached_keeps_k():
    values = np.arange(600.0)
    start = np.random.default_rng(9).standard_normal((600, 5))
    assert len(block_eigenpairs(lambda V: values[:, None] * V, start, k=3, cover=1000.0).values) == 3


def test_too_few_products_are_not_called_converged():
    values = np.random.default_rng(10).standard_normal(600)
    start = np.random.default_rng(11).standard_normal((600, 5))
    eig = block_eigenpairs(lambda V: values[:, None] * V, start, k=3, tol=1e-6, max_products=20)
    assert not eig.converged
    assert eig.products <= 22  # it looks between extensions


def test_as_many_pairs_as_there_are_parameters_leave_nothing_behind_them():
    values = np.arange(600.0)
    eig = block_eigenpairs(lambda V: values[:, None] * V, np.eye(600)[:, :1], k=600)
    np.testing.assert_allclose(eig.values, values[::-1], atol=0.6)
    again = block_eigenpairs(lambda V: values[:, None] * V, eig, k=600)
    np.testing.assert_allclose(again.values, values[::-1], atol=0.6)


def test_a_cover_that_is_given_up_is_not_called_converged():
    values = np.arange(1.0, 601.0)
    start = np.random.default_rng(0).standard_normal((600, 1))
    eig = block_eigenpairs(lambda V: values[:, None] * V, start, k=1, cover=-1.0, max_products=5)
    assert not eig.converged
    assert block_eigenpairs(lambda V: values[:, None] * V, eig, k=1).converged


@pytest.mark.parametrize("size", [40, 600])
def test_a_zero_operator_has_zero_eigenvalues(size):
    eig = block_eigenpairs(lambda V: 0 * V, np.random.default_rng(0).standard_normal((size, 3)), k=2)
    assert eig.converged
    np.testing.assert_array_equal(eig.values, [0, 0])


def test_float32_products_reach_a_float32_tolerance():
    random = np.random.default_rng(12)
    values = spectrum("outliers", 1000, random)
    product = operator(values, random)
    guess = random.standard_normal((1000, 6)).astype(np.float32)
    eig = block_eigenpairs(lambda V: product(V).astype(np.float32), guess, k=4, tol=1e-5)
    assert eig.vectors.dtype == np.float32
    assert eig.converged
    np.testing.assert_allclose(eig.values, [100, 50, 25, 12], rtol=1e-5)


# Few extensions reach these, so that JAX compiles few shapes.
OUTLIERS = np.concatenate([[9, 8, 7, 6, 5], np.random.default_rng(13).uniform(0, 1, 595)])


def test_jax_arrays_stay_jax_arrays():
    values = jnp.asarray(OUTLIERS)[:, None]
    eig = block_eigenpairs(lambda V: values * V, jax.random.normal(jax.random.key(0), (600, 4)), k=4)
    assert isinstance(eig.vectors, jax.Array)
    np.testing.assert_allclose(eig.values, [9, 8, 7, 6], atol=0.009)


def test_torch_tensors_stay_torch_tensors():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    values, start = torch.tensor(OUTLIERS)[:, None], np.random.default_rng(0).standard_normal((600, 4))
    eig = block_eigenpairs(lambda V: values * V, torch.tensor(start), k=4)
    assert isinstance(eig.vectors, torch.Tensor)
    np.testing.assert_allclose(eig.values, [9, 8, 7, 6], atol=0.009)


def test_jax_does_not_compile_again_from_step_to_step():
    product = jax.jit(lambda values, V: values[:, None] * V)
    random, values = np.random.default_rng(14), jnp.asarray(OUTLIERS)
    compilations, eig = [], jax.random.normal(jax.random.key(0), (600, 4))

    def listener(event, duration, **_):
        if event.endswith("backend_compile_duration"):
            compilations.append(event)

    jax.monitoring.register_event_duration_secs_listener(listener)
    try:
        for step in range(12):
            if step == 4:  # by then one and two residuals have extended the basis
                compilations.clear()
            now = values * (1 + 0.01 * random.standard_normal(600))
            eig = block_eigenpairs(lambda V, now=now: product(now, V), eig, k=4, tol=(1e-3, 1e-5)[step % 2])
    finally:
        jax.monitoring.unregister_event_duration_listener(listener)
    assert not compilations


def ones(V):
    return V


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(k=0), "k must be"),
        (dict(k=601), "k must be at most the number of parameters, 600, got 601"),
        (dict(tol=0.0), "tol must be"),
        (dict(tol=-1.0), "tol must be"),
        (dict(which="widest"), "which must be one of"),
        (dict(max_products=1), "max_products must be"),
        (dict(cover=np.nan), "cover must be a finite number"),
        (dict(cover="2"), "cover must be a real number"),
        (dict(guess=[[1.0]]), "guess must be an array .* got a list"),
        (dict(guess=np.zeros(600)), "guess must be a block"),
        (dict(guess=np.zeros((600, 0))), "guess must be a block"),
        (dict(guess=np.eye(600, 3, dtype=np.float16)), "guess must be a block .* of float32 or float64"),
        (dict(guess=np.zeros((600, 3))), "guess must have independent columns, got rank 0 of 3"),
        (dict(guess=np.ones((600, 3))), "guess must have independent columns, got rank 1 of 3"),
        (dict(guess=np.full((600, 3), np.nan)), "guess must be finite"),
        (dict(guess=np.eye(600, 3, dtype=int)), "guess must be a block"),
        (dict(product=np.eye(600)), "product must be a function"),
        (dict(product=lambda V: None), "product must return a ndarray of float64, as it gets, got a NoneType"),
        (dict(product=lambda V: 1j * V), "product must return a ndarray of float64, as it gets"),
        (dict(product=lambda V: V * np.nan), "product must be finite"),
        (dict(product=lambda V: V[:-1]), "product must keep the block's shape"),
        (dict(product=lambda V: np.roll(V, 1, axis=0)), "product must be symmetric"),
    ],
)
def test_bad_input_is_refused(changes, message):
    arguments = dict(product=ones, guess=np.random.default_rng(0).standard_normal((600, 3)), k=2) | changes
    with pytest.raises(ValueError, match=message):
        block_eigenpairs(**arguments)


@pytest.mark.parametrize("guess", [np.zeros((10, 2)), np.ones((10, 2))])
def test_a_guess_without_rank_is_refused_by_the_dense_route_too(guess):
    with pytest.raises(ValueError, match="independent columns"):
        block_eigenpairs(ones, guess, k=1)


def test_a_slightly_skew_matrix_does_not_reach_a_tolerance_that_it_cannot():
    skew = np.triu(1e-7 * np.ones((100, 100)), 1)
    H = np.diag(np.arange(100.0)) + skew - skew.T
    assert not block_eigenpairs(lambda V: H @ V, np.eye(100, 3), k=2, tol=1e-12).converged


def test_a_matrix_that_is_not_symmetric_is_refused_by_the_dense_route():
    with pytest.raises(ValueError, match="product must be symmetric"):
        block_eigenpairs(lambda V: np.roll(V, 1, axis=0), np.eye(10, 3), k=1)


def test_a_tolerance_beyond_the_numbers_is_coarsened_with_a_warning():
    values = np.arange(600, dtype=np.float32)[:, None]
    with pytest.warns(pf.PrecisionWarning, match="float32"):
        eig = block_eigenpairs(lambda V: values * V, np.eye(600, dtype=np.float32)[:, -3:], k=1, tol=1e-12)
    assert isinstance(eig, Eigenpairs)
