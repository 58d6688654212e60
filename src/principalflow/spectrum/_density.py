"""The whole spectrum at a glance: its density and its sum, estimated from random vectors."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float
from matfree import stochtrace

from principalflow import _checks, _loss
from principalflow._compiled import compiled
from principalflow._derivatives import COLUMNS
from principalflow.objective import Objective
from principalflow.spectrum._block import DENSE_SIZE
from principalflow.spectrum._hessian import Hessian, Select
from principalflow.spectrum._krylov import lanczos

# A Gaussian has 1e-12 of its mass beyond so many standard deviations.
_REACH = 7
# Bounds on what a density is made of: beyond them it takes hours, or more memory than it is worth.
_MOST_PROBES, _MOST_STEPS, _MOST_POINTS = 10_000, 1000, 100_000


@dataclass(frozen=True)
class Density:
    """How the eigenvalues of a Hessian are spread.

    Attributes:
        grid: Where the density is given, evenly spaced.
        values: Its mean over the cell around each point of the grid, one spacing wide: times the spacing they sum to 1
            (within 1e-9), also where the cells are wider than `width`.
        standard_errors: Its standard error over the random vectors; 0 where all eigenvalues were computed.
        nodes: The eigenvalues that each random vector saw, (probes, steps); all eigenvalues, (1, D), if exact.
        weights: The part of the spectrum that each of them stands for; they sum to 1 for each vector.
        width: The standard deviation of the Gaussian that each node was smoothed with.
        products: Hessian products spent.
    """

    grid: np.ndarray
    values: np.ndarray
    standard_errors: np.ndarray
    nodes: np.ndarray
    weights: np.ndarray
    width: float
    products: int


@dataclass(frozen=True)
class Trace:
    """The sum of a Hessian's eigenvalues.

    Attributes:
        value: The estimate.
        standard_error: Its standard error; 0 where the trace is exact. Too small where the Hessian's rank is just above
            half of the products, since the samples then hardly see what is left.
        products: Hessian products spent.
    """

    value: float
    standard_error: float
    products: int


def density(
    objective: Objective,
    theta: _checks.Numbers,
    *,
    probes: int = 10,
    steps: int = 40,
    points: int = 400,
    width: float | None = None,
    select: Select | None = None,
    seed: int = 0,
) -> Density:
    r"""Returns the density of the Hessian's eigenvalues, $\frac1D\sum_i \delta(x - \lambda_i)$, smoothed.

    Stochastic Lanczos quadrature: `steps` products from each of `probes` random vectors give nodes and weights whose
    moments are those of the spectrum as that vector sees it (Ghorbani et al. 2019). Below 500 parameters all
    eigenvalues are computed.

    Args:
        objective: The loss.
        theta: Where to take the Hessian; real.
        probes: Random vectors, 2 to 10,000; the standard errors fall with their square root.
        steps: Products for each, 1 to 1,000 (no more than parameters are made): nodes of the quadrature, so the finest
            detail to be seen.
        points: Points of the grid, 2 to 100,000.
        width: Standard deviation of the smoothing; 1/100 of the spectrum's extent if left out. Details below a spacing
            of the grid are averaged over its cells.
        select: A function of a leaf's path, as for `top_eigenpairs`.
        seed: Of the random vectors.

    Returns:
        The `Density`.

    Raises:
        ValueError: For probes, steps or points out of bounds, a width that isn't above 0 or makes a grid beyond the
            range of numbers, a bad theta, select or seed, or a Hessian that isn't finite.

    Example:
        >>> import jax.numpy as jnp
        >>> import principalflow as pf
        >>> bowl = pf.functions.quadratic(jnp.diag(jnp.array([1.0, 1.0, 3.0])))
        >>> spectrum = pf.spectrum.density(bowl, bowl.theta, width=0.1)
        >>> mass = spectrum.values * (spectrum.grid[1] - spectrum.grid[0])
        >>> round(float(mass[spectrum.grid < 2].sum()), 3)  # two of three eigenvalues
        0.667
    """
    from scipy.special import ndtr  # here, since importing it takes half a second

    probes = _checks.whole("probes", probes, least=2, most=_MOST_PROBES)
    steps = _checks.whole("steps", steps, least=1, most=_MOST_STEPS)
    points = _checks.whole("points", points, least=2, most=_MOST_POINTS)
    seed = _checks.whole("seed", seed, least=0)
    width = None if width is None else _checks.positive("width", width)
    hessian = Hessian(objective, theta, select)
    if hessian.size < DENSE_SIZE:
        matrix = _finite(np.asarray(hessian.dense(), dtype=np.float64))
        nodes, weights = np.linalg.eigvalsh(matrix)[None], np.full((1, hessian.size), 1 / hessian.size)
        products = hessian.size
    else:
        steps = min(steps, hessian.size)
        _checks.fits("steps", steps * hessian.size * hessian.theta.dtype.itemsize, f"a basis of {steps} vectors")
        found = _nodes(hessian, jax.random.key(seed), probes, steps)
        nodes, weights = (_finite(np.asarray(x, dtype=np.float64)) for x in found)
        products = probes * steps
    width = width or _default_width(nodes[weights > 0])
    grid, spacing = _grid(nodes[weights > 0], width, points)
    edges = np.append(grid, grid[-1] + spacing) - spacing / 2
    of_each = zip(nodes, weights, strict=True)
    each = np.array([weight @ np.diff(ndtr((edges - seen[:, None]) / width)) for seen, weight in of_each]) / spacing
    errors = np.std(each, axis=0, ddof=1) / np.sqrt(len(each)) if len(each) > 1 else np.zeros(points)
    return Density(grid, np.mean(each, axis=0), errors, nodes, weights, width, products)


def _default_width(seen: np.ndarray) -> float:
    return float(np.ptp(seen)) / 100 or 0.01 * abs(float(seen[0])) or 1.0


def _grid(seen: np.ndarray, width: float, points: int) -> tuple[np.ndarray, float]:
    """Returns a grid that holds all of every bell, and its spacing."""
    # No finer than its own numbers resolve to ten digits, or the spacing would be rounding.
    finest = 1e10 * np.finfo(float).eps * float(np.max(np.abs(seen)))
    margin = max(_REACH * width, points * finest / 2)
    start, end = float(seen.min()) - margin, float(seen.max()) + margin
    spacing = (end - start) / (points - 1)
    if not (np.isfinite(spacing) and 1 / spacing < np.inf):
        raise ValueError(f"width must make a grid within the range of numbers, got {width:g}.")
    return np.linspace(start, end, points), spacing


def trace(
    objective: Objective,
    theta: _checks.Numbers,
    *,
    products: int = 60,
    select: Select | None = None,
    seed: int = 0,
) -> Trace:
    r"""Returns the trace of the Hessian, $\sum_i \lambda_i$, with its standard error.

    XTrace (Epperly, Tropp and Webber 2024), from matfree: half of the products find the directions of large
    curvature, whose part is exact; the other half sample the rest. Exact where `products` reach the size.

    Args:
        objective: The loss.
        theta: Where to take the Hessian; real.
        products: Hessian products to spend.
        select: A function of a leaf's path, as for `top_eigenpairs`.
        seed: Of the random vectors.

    Returns:
        The `Trace`.

    Raises:
        ValueError: For products below 4 or beyond memory, a bad theta, select or seed, or a Hessian that isn't finite.

    Example:
        >>> import jax.numpy as jnp
        >>> import principalflow as pf
        >>> bowl = pf.functions.quadratic(jnp.diag(jnp.array([1.0, 2.0, 3.0])))
        >>> pf.spectrum.trace(bowl, bowl.theta)
        Trace(value=6.0, standard_error=0.0, products=3)
    """
    products, seed = _checks.whole("products", products, least=4), _checks.whole("seed", seed, least=0)
    hessian = Hessian(objective, theta, select)
    if hessian.size <= products:
        value, error, products = float(_sum_of_diagonal(hessian)), 0.0, hessian.size
    else:
        size = products * hessian.size * hessian.theta.dtype.itemsize
        _checks.fits("products", size, f"{products} vectors as long as theta")
        value, error = (float(x) for x in _xtrace(hessian, jax.random.key(seed), products // 2))
        products = 2 * (products // 2)
    return Trace(_finite(value), error, products)


def _finite(found):
    if not np.all(np.isfinite(found)):
        raise _checks.NonFiniteError("the Hessian at theta must be finite, but its products are not.")
    return found


@_loss.needs("loss", _loss.PRODUCTS)
@compiled
def _nodes(hessian: Hessian, key: Array, probes: int, steps: int) -> tuple[Float[Array, "p s"], Float[Array, "p s"]]:
    """Returns the nodes and weights of the spectrum that each random vector sees."""

    def of_probe(key):
        v = jax.random.normal(key, (hessian.size,), hessian.theta.dtype)
        values, vectors = jnp.linalg.eigh(lanczos(hessian, v, steps))
        return values, vectors[0] ** 2

    return lax.map(of_probe, jax.random.split(key, probes))


@_loss.needs("loss", _loss.PRODUCTS)
@compiled
def _sum_of_diagonal(hessian: Hessian) -> Float[Array, ""]:
    def entry(index):
        return hessian(jnp.zeros(hessian.size, hessian.theta.dtype).at[index].set(1))[index]

    return jnp.sum(lax.map(entry, jnp.arange(hessian.size), batch_size=min(hessian.size, COLUMNS)))


@_loss.needs("loss", _loss.PRODUCTS)
@compiled
def _xtrace(hessian: Hessian, key: Array, samples: int) -> tuple[Float[Array, ""], Float[Array, ""]]:
    like = jnp.zeros(hessian.size, hessian.theta.dtype)
    sampler = stochtrace.sampler_normal(like, num=samples)
    estimate = stochtrace.estimator_leave_one_out_mean_and_sem(stochtrace.leave_one_out_xtrace(), sampler)
    return estimate(hessian, key)
