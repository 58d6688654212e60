import jax
import jax.numpy as jnp
import numpy as np
import pytest

import principalflow as pf
from principalflow import landscape

A = np.diag([1.0, 2.0, 3.0])
BOWL = pf.functions.quadratic(A)
RANDOM = np.random.default_rng(0)


@pytest.fixture(scope="module")
def network():
    model = pf.models.VGG((8, 8, 1), 10, jax.random.key(0), width=0.03, normalization="group")
    images, labels = RANDOM.standard_normal((6, 8, 8, 1)), RANDOM.integers(0, 10, 6)
    return pf.Objective(pf.models.loss(), model, (images, labels))


def leaves(objective, vector):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(objective._unravel(vector))]


def test_each_filter_of_a_random_direction_has_the_norm_of_the_networks(network):
    direction = landscape.random(network, dimensions=1).directions[:, 0]
    for params, drawn in zip(leaves(network, network.theta), leaves(network, direction), strict=True):
        if params.ndim > 1:
            for f in range(params.shape[-1]):
                assert np.linalg.norm(drawn[..., f]) == pytest.approx(np.linalg.norm(params[..., f]))


def test_biases_and_scales_are_left_as_they_are(network):
    direction = landscape.random(network, dimensions=1).directions[:, 0]
    assert all(not leaf.any() for leaf in leaves(network, direction) if leaf.ndim < 2)


def test_of_a_function_the_whole_vector_is_one_filter():
    theta = jnp.array([1.0, -2.0, 2.0])
    directions = landscape.random(BOWL, theta).directions
    np.testing.assert_allclose(np.linalg.norm(directions, axis=0), 3.0)


def test_a_landscape_does_not_depend_on_the_scale_of_weights_that_a_normalisation_takes_out(network):
    scaled = pf.Objective(network._loss, _rescaled(network), network._data)
    here, there = (landscape.evaluate(o, landscape.random(o), points=3).losses for o in (network, scaled))
    np.testing.assert_allclose(here, there, rtol=1e-3)


def _rescaled(network):
    """The same network with ten times the weights before each normalisation, up to its epsilon."""
    return jax.tree.map(lambda leaf: 10 * leaf if leaf.ndim == 4 else leaf, network.unravel(network.theta))


def test_another_seed_gives_other_directions():
    first, second = (landscape.random(BOWL, [1.0, 1.0, 1.0], seed=seed).directions for seed in (0, 1))
    assert not np.allclose(first, second)


def test_three_solutions_lie_in_their_plane():
    thetas = RANDOM.standard_normal((3, 7))
    plane = landscape.through(thetas)
    np.testing.assert_allclose(plane.origin + plane.points @ np.asarray(plane.directions).T, thetas, atol=1e-12)
    assert plane.explained == pytest.approx(1)


def test_two_solutions_lie_on_their_line():
    thetas = RANDOM.standard_normal((2, 7))
    plane = landscape.through(thetas, dimensions=1)
    np.testing.assert_allclose(plane.origin + plane.points @ np.asarray(plane.directions).T, thetas, atol=1e-12)


def test_two_solutions_in_single_precision_span_no_plane():
    with pytest.raises(ValueError, match="they span 1"):
        landscape.through(RANDOM.standard_normal((2, 1000)).astype(np.float32))


def test_a_plane_has_the_dtype_of_its_parameters():
    plane = landscape.through(RANDOM.standard_normal((3, 7)).astype(np.float32))
    assert plane.origin.dtype == plane.directions.dtype == np.float32


def test_directions_through_points_are_orthonormal():
    directions = np.asarray(landscape.through(RANDOM.standard_normal((5, 7))).directions)
    np.testing.assert_allclose(directions.T @ directions, np.eye(2), atol=1e-12)


def test_a_path_in_a_plane_is_explained_by_it_and_another_is_not():
    flat = np.outer(np.arange(5.0), [1, 2, 3]) + np.outer(np.arange(5.0) ** 2, [0, 1, -1])
    assert landscape.through(flat, origin=flat[-1]).explained == pytest.approx(1)
    assert landscape.through(flat + RANDOM.standard_normal((5, 3)), origin=flat[-1]).explained < 0.999


def test_the_plane_is_the_one_of_most_variance():
    thetas = RANDOM.standard_normal((30, 3)) * [1, 5, 3]
    values = np.linalg.eigvalsh(np.cov(thetas.T))
    assert landscape.through(thetas).explained == pytest.approx(values[1:].sum() / values.sum())


def test_losses_are_those_of_the_points_of_the_grid():
    plane = landscape.random(BOWL, [1.0, 2.0, 3.0])
    found = landscape.evaluate(BOWL, plane, reach=0.5, points=4, at_once=3)
    for i, j in np.ndindex(4, 4):
        theta = plane.origin + plane.directions @ np.array([found.axes[0][i], found.axes[1][j]])
        assert found.losses[i, j] == pytest.approx(float(theta @ A @ theta / 2))


def test_losses_of_a_network_are_its_values(network):
    plane = landscape.random(network)
    found = landscape.evaluate(network, plane, points=3)
    for i, j in np.ndindex(3, 3):
        theta = plane.origin + plane.directions @ np.array([found.axes[0][i], found.axes[1][j]])
        assert found.losses[i, j] == pytest.approx(float(network.value(theta)))


def test_chunks_of_samples_give_the_same_losses(network):
    chunked = pf.Objective(network._loss, network.unravel(network.theta), network._data, chunk=4)
    here, there = (landscape.evaluate(o, landscape.random(network), points=3).losses for o in (network, chunked))
    np.testing.assert_allclose(here, there)


def test_the_grid_reaches_a_fifth_beyond_the_points():
    plane = landscape.through([[0.0, 0.0, 0.0], [4.0, 0.0, 0.0]], origin=[0.0, 0.0, 0.0], dimensions=1)
    (axis,) = landscape.evaluate(BOWL, plane, points=5).axes
    np.testing.assert_allclose(axis[[0, -1]], [-0.8, 4.8])


LINE = landscape.through([[0.0, 0.0, 0.0], [4.0, 0.0, 0.0]], dimensions=1)


@pytest.mark.parametrize("scale", [1e-320, 1e200])
def test_what_a_plane_explains_does_not_depend_on_the_scale(scale):
    path = np.array([[0.0, 0.0], [3.0, 0.0], [3.0, 1.0]])
    expected = landscape.through(path, dimensions=1).explained
    assert landscape.through(scale * path, dimensions=1).explained == pytest.approx(expected, rel=1e-3)


def test_a_grid_beyond_memory_is_refused_beforehand(monkeypatch):
    monkeypatch.setattr("principalflow._checks._host_memory", lambda: 2**28)
    with pytest.raises(ValueError, match=r"points asks for a grid of 100000000 points, which take 3.73 GiB"):
        landscape.evaluate(BOWL, landscape.random(BOWL), points=10**4)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: landscape.random(BOWL, dimensions=3), "dimensions"),
        (lambda: landscape.random("no"), "objective must be"),
        (lambda: landscape.random(BOWL, [1j, 1, 1]), "theta must be real"),
        (lambda: landscape.through([[1.0, 2.0]]), "at least two vectors"),
        (lambda: landscape.through([[1.0, 2.0], [3.0, 4.0]]), "span 2 dimensions around the origin, they span 1"),
        (lambda: landscape.through([[1.0, 2.0], [3.0, 4.0]], origin=[1.0]), "origin must be a vector of 2"),
        (lambda: landscape.through(1j * np.eye(3)), "thetas must be real"),
        (lambda: landscape.evaluate(BOWL, landscape.random(BOWL, [1.0, 1, 1]), points=1), "points"),
        (lambda: landscape.evaluate(BOWL, "plane"), "plane must be one of"),
        (lambda: landscape.random(BOWL, dimensions=1.0), "dimensions must be a whole number"),
        (lambda: landscape.random(BOWL, seed=2**40), "seed must be a whole number of at most"),
        (lambda: landscape.random(BOWL, [np.nan, 1, 1]), "theta must be finite"),
        (lambda: landscape.random(BOWL, [1e308, 1, 1]), "the squares of theta must be finite"),
        (lambda: landscape.through([[1.0], [2.0, 3.0]]), "thetas must be an array of numbers"),
        (lambda: landscape.through(np.eye(3).astype(str)), "thetas must be an array of numbers"),
        (lambda: landscape.through(np.eye(3), origin=["a"] * 3), "origin must be an array of numbers"),
        (
            lambda: landscape.through([[1e308, 1.0], [-1e308, 1.0]], origin=[1e308, 0.0]),
            "range of numbers from the origin",
        ),
        (
            lambda: landscape.evaluate(BOWL, LINE._replace(directions=np.ones((2, 1)))),
            r"directions must have shape \(3, 1",
        ),
        (
            lambda: landscape.evaluate(BOWL, LINE._replace(directions=np.full((3, 1), np.nan))),
            "directions must be finite",
        ),
        (lambda: landscape.evaluate(BOWL, LINE._replace(origin=np.full(3, np.inf))), "plane.origin must be finite"),
        (
            lambda: landscape.evaluate(BOWL, LINE._replace(points=np.ones((2, 2)))),
            r"plane.points must have shape \(n, 1\)",
        ),
        (lambda: landscape.evaluate(BOWL, LINE, points=10**30), "points must be a whole number of at most"),
        (lambda: landscape.evaluate(BOWL, landscape.random(BOWL, [1.0, 1, 1]), reach=-1.0), "reach"),
    ],
)
def test_errors_name_the_argument(call, message):
    with pytest.raises(ValueError, match=message):
        call()
