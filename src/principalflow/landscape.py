r"""The loss on lines and planes through parameter space: $E(\theta + Dc)$ over coordinates $c$.

Directions are random and scaled like the network's filters (Li et al. 2018, "Visualizing the loss landscape of neural
nets"), or lead through given solutions, or along a run.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Inexact

from principalflow import _checks
from principalflow._compiled import compiled
from principalflow.objective import Block, Objective, Vector, as_objective, checked_theta

__all__ = ["Landscape", "Plane", "evaluate", "random", "through"]

_MARGIN = 0.2  # beyond the outermost points, of their extent
_AT_ONCE = 8  # points of the grid that are evaluated at once


class Plane(NamedTuple):
    r"""A line or a plane, $\theta + Dc$.

    Attributes:
        origin: Where its coordinates are zero, (D,).
        directions: One a column, (D, 1) or (D, 2).
        points: The coordinates of what it was led through, (n, 1) or (n, 2); none for random directions.
        explained: Of the points' squared distances from the origin the share that lies in the plane; 1 if all do.
    """

    origin: Vector
    directions: Block
    points: Float[np.ndarray, "n d"]
    explained: float

    @property
    def dimensions(self) -> int:
        """1 for a line, 2 for a plane."""
        return self.directions.shape[1]


class Landscape(NamedTuple):
    """The loss over the coordinates of a line or plane.

    Attributes:
        plane: The line or plane.
        axes: The coordinates along each direction.
        losses: The loss, (len(axes[0]),) or (len(axes[0]), len(axes[1])).
    """

    plane: Plane
    axes: tuple[Float[np.ndarray, " n"], ...]
    losses: np.ndarray


def random(objective: Objective, theta: _checks.Numbers | None = None, *, dimensions: int = 2, seed: int = 0) -> Plane:
    r"""Returns a plane of random directions, each scaled filter by filter as the parameters are (Li et al. 2018).

    A direction is normal, and then $d_f \leftarrow d_f \|\theta_f\| / \|d_f\|$ for every filter $f$: what leads to one
    output, the last axis of an array (the first of PyTorch's). Biases and the scales of normalisations, which are
    vectors, stay as they are. If the parameters are nothing but vectors, each is a filter. So the picture doesn't
    depend on the scale of the weights where the network doesn't either.

    Args:
        objective: The loss.
        theta: The parameters in the middle; those of the objective if left out.
        dimensions: 1 or 2.
        seed: For the directions.

    Returns:
        The `Plane`; its coordinates from -1 to 1 are as far as the parameters are large.

    Raises:
        ValueError: For dimensions other than 1 or 2, a negative seed, or a theta that isn't real and finite or is of
            another length.

    Example:
        >>> import jax, principalflow as pf
        >>> model = pf.models.MLP(4, [8], 3, key=jax.random.key(0))
        >>> objective = pf.Objective(pf.models.loss(), model, (jax.numpy.ones((5, 4)), jax.numpy.zeros(5, int)))
        >>> plane = pf.landscape.random(objective)
        >>> bool(jax.numpy.isclose(*map(jax.numpy.linalg.norm, (plane.directions[:, 0], objective.theta))))
        True
    """
    as_objective(objective)
    dimensions = _checks.whole("dimensions", dimensions, least=1, most=2)
    theta = checked_theta(objective, objective.theta if theta is None else theta)
    _check_real("theta", theta)
    key = jax.random.key(_checks.whole("seed", seed, least=0))
    drawn = jax.random.normal(key, (dimensions, theta.size), theta.dtype)
    directions = jnp.stack([_scaled(objective, direction, theta) for direction in drawn], axis=1)
    _checks.finite("the squares of theta", directions)
    return Plane(theta, directions, np.zeros((0, dimensions)), 1.0)


def through(thetas: _checks.Numbers, *, origin: _checks.Numbers | None = None, dimensions: int = 2) -> Plane:
    r"""Returns the plane nearest to several parameters, such as solutions or the iterates of a run.

    Its directions are the first right singular vectors of $\theta_i - \theta$, so orthonormal, and the first is the
    one along which the parameters lie furthest apart. Through two parameters leads a line, and through three a plane,
    in which all lie.

    Args:
        thetas: The parameters, (n, D), such as `path.thetas`.
        origin: Where the coordinates are zero; the mean if left out. Li et al. (2018) take the last iterate of a run.
        dimensions: 1 or 2.

    Returns:
        The `Plane`, with the parameters' `points` in it, and how much of their distances it `explained`.

    Raises:
        ValueError: For dimensions other than 1 or 2, or thetas that aren't real or finite, too few, or all the same.

    Example:
        >>> import principalflow as pf
        >>> pf.landscape.through([[0.0, 0.0, 0.0], [3.0, 4.0, 0.0]], dimensions=1).points.round(6).tolist()
        [[-2.5], [2.5]]
    """
    dimensions = _checks.whole("dimensions", dimensions, least=1, most=2)
    thetas, dtype = _in_double_precision("thetas", thetas)
    if thetas.ndim != 2 or len(thetas) < 2 or not thetas.size:
        raise ValueError(f"thetas must be at least two vectors of parameters, (n, D); got the shape {thetas.shape}.")
    middle = thetas.mean(0) if origin is None else _in_double_precision("origin", origin)[0]
    if middle.shape != thetas[0].shape:
        raise ValueError(f"origin must be a vector of {thetas.shape[1]} parameters, got the shape {middle.shape}.")
    with np.errstate(over="ignore"):
        offsets = thetas - middle
    extent = float(np.max(np.abs(offsets)))
    if not np.isfinite(extent):
        raise ValueError("thetas must lie within the range of numbers from the origin; their distances do not.")
    # Relative to their extent, so that no square overflows or vanishes.
    left, sizes, right = np.linalg.svd(offsets / (extent or 1.0), full_matrices=False)
    rank = int(np.sum(sizes > max(thetas.shape) * np.finfo(np.float64).eps * sizes[0]))
    if rank < dimensions:
        raise ValueError(f"thetas must span {dimensions} dimensions around the origin, they span {rank}.")
    points = extent * (left * sizes)[:, :dimensions]
    signs = np.where(points[-1] < 0, -1, 1)  # singular vectors have none of their own; the last point lies at the right
    explained = float(np.sum(sizes[:dimensions] ** 2) / np.sum(sizes**2))
    directions = jnp.asarray(right[:dimensions].T * signs, dtype)
    return Plane(jnp.asarray(middle, dtype), directions, points * signs, explained)


def evaluate(
    objective: Objective, plane: Plane, *, reach: float | None = None, points: int = 41, at_once: int = _AT_ONCE
) -> Landscape:
    """Returns the loss over a grid of a line or plane.

    Args:
        objective: The loss; with `chunk` its samples are evaluated in pieces.
        plane: From `random` or `through`.
        reach: The coordinates go from -reach to reach. If left out, to 1 for random directions, and otherwise as far as
            the points and a fifth beyond.
        points: How many coordinates along each direction; from -reach to reach, an odd number has the origin among
            them.
        at_once: How many points of the grid are evaluated at once; more take more memory.

    Returns:
        The `Landscape`; `principalflow.plot.landscape` draws it.

    Raises:
        ValueError: For a plane of other parameters or one that isn't finite, a reach not above 0, points below 2 or
            more than there is memory for, or at_once below 1.

    Example:
        >>> import principalflow as pf
        >>> bowl = pf.functions.quadratic([[2.0, 0.0], [0.0, 8.0]])
        >>> line = pf.landscape.through([[0.0, -1.0], [0.0, 1.0]], dimensions=1)
        >>> pf.landscape.evaluate(bowl, line, reach=1.0, points=3).losses.round(6).tolist()
        [4.0, 0.0, 4.0]
    """
    as_objective(objective)
    if not isinstance(plane, Plane):
        given = _checks.shown(plane)
        raise ValueError(f"plane must be one of principalflow.landscape.random or through, got {given}.")
    plane = _checked(plane, objective)
    origin = plane.origin
    points, at_once = _checks.whole("points", points, least=2), _checks.whole("at_once", at_once, least=1)
    count = points**plane.dimensions
    # The grid is held twice, with the losses.
    _checks.fits("points", count * (2 * plane.dimensions + 1) * 8, f"a grid of {count} points", on_host=True)
    axes = tuple(np.linspace(*ends, points) for ends in _ends(plane, reach))
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)
    losses = _losses(
        objective, origin, plane.directions, jnp.asarray(grid.reshape(-1, len(axes)), origin.dtype), at_once
    )
    return Landscape(plane, axes, np.asarray(losses).reshape(grid.shape[:-1]))


def _checked(plane: Plane, objective: Objective) -> Plane:
    """Returns a plane with arrays that fit the objective and each other, or raises."""
    origin = objective.flat("plane.origin", plane.origin)
    directions = _checks.inexact("plane.directions", plane.directions, origin.dtype)
    if directions.ndim != 2 or directions.shape[0] != origin.size or directions.shape[1] not in (1, 2):
        size, given = origin.size, directions.shape
        raise ValueError(f"plane.directions must have shape ({size}, 1) or ({size}, 2), got {given}.")
    points, _ = _in_double_precision("plane.points", plane.points)
    if points.ndim != 2 or points.shape[1] != directions.shape[1]:
        raise ValueError(f"plane.points must have shape (n, {directions.shape[1]}), got {points.shape}.")
    _checks.finite("plane.origin", origin)
    _checks.finite("plane.directions", directions)
    return plane._replace(origin=origin, directions=directions, points=points)


def _check_real(name: str, array: Array | np.ndarray) -> None:
    if jnp.iscomplexobj(array):
        raise ValueError(f"{name} must be real; the parameters of a complex flow have a real part that can be drawn.")


def _in_double_precision(name: str, value: _checks.Numbers) -> tuple[np.ndarray, Any]:
    """Returns real, finite numbers as NumPy's, and the dtype that they have in JAX.

    In single precision, what rounding adds to a line would count as its second dimension.
    """
    array = _checks.finite_numbers(name, value)
    _check_real(name, array)
    return np.asarray(value, np.float64), array.dtype


def _ends(plane: Plane, reach: float | None) -> list[tuple[float, float]]:
    if reach is not None:
        reach = _checks.positive("reach", reach)
        return plane.dimensions * [(-reach, reach)]
    if not len(plane.points):
        return plane.dimensions * [(-1.0, 1.0)]
    low, high = np.minimum(plane.points.min(0), 0), np.maximum(plane.points.max(0), 0)
    margin = _MARGIN * (high - low)
    return list(zip(low - margin, high + margin, strict=True))


@compiled
def _losses(
    objective: Objective, origin: Vector, directions: Block, grid: Inexact[Array, "n d"], at_once: int
) -> Inexact[Array, " n"]:
    return lax.map(lambda c: objective.value(origin + directions @ c), grid, batch_size=at_once)


def _scaled(objective: Objective, direction: Vector, theta: Vector) -> Vector:
    """Returns a direction with the norms that the parameters have, filter by filter."""
    theirs, ours = (eqx.filter(objective.unravel(vector), eqx.is_inexact_array) for vector in (theta, direction))
    only_vectors = all(leaf.ndim < 2 for leaf in jax.tree.leaves(theirs))

    def scaled(params: Array, drawn: Array) -> Array:
        if params.ndim < 2 and not only_vectors:
            return jnp.zeros_like(drawn)
        axes = None if only_vectors else tuple({*range(params.ndim)} - {objective.output_axis % params.ndim})
        norm = lambda array: jnp.sqrt(jnp.sum(array**2, axes, keepdims=True))  # noqa: E731
        return drawn * norm(params) / norm(drawn)

    return ravel_pytree(jax.tree.map(scaled, theirs, ours))[0]
