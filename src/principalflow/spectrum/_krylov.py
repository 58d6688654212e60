"""f(H) v from Hessian products alone, by Krylov projection with an error estimate."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Inexact, Int

from principalflow import _checks, _loss
from principalflow._compiled import compiled
from principalflow.objective import Objective, Vector, checked_theta

Projected = Inexact[Array, "m m"]

# The error is judged by the slowest of so many falls in a row. Fewer are more often taken in by the quiet before an
# eigenvalue is found: `benchmarks/flows.py` counts how often (`stops`).
_FALLS = 6
# A small matrix takes its function after each product, in the smallest of several rooms, of which each is compiled.
_ROOM, _MOST_ROOMS = 20, 3
# Vectors of the basis that a new one is made orthogonal to at once, while they are in the cache; only those that are
# there take part. Where more is taken away than is left, what the basis lacks in orthogonality would grow from vector
# to vector, so it is made orthogonal again ("twice is enough").
_ROWS, _CANCELLED = 16, 0.5**0.5


class Applied(eqx.Module):
    """A matrix function times a vector, and how well it is known.

    Attributes:
        vector: f(H) v.
        error: Estimated error of `vector`, relative to its norm, from the changes over the last products and how they
            fall. It can be too small where f is steep at an eigenvalue that v hardly meets. Infinite where `vector` is
            not finite.
        products: Hessian products spent.
        converged: Whether `error` is within the tolerance that was asked for.
    """

    vector: Vector
    error: Float[Array, ""]
    products: Int[Array, ""]
    converged: Bool[Array, ""]

    @classmethod
    def exact(cls, vector: Vector, products: int) -> "Applied":
        """Returns a result that is exact to rounding, if it is finite."""
        finite = jnp.all(jnp.isfinite(vector))
        error = jnp.where(finite, 0, jnp.inf).astype(vector.real.dtype)
        return cls(vector, error, jnp.asarray(products), finite)


def apply(
    objective: Objective,
    theta: _checks.Numbers,
    f: Callable[[Array], Array],
    v: _checks.Numbers,
    *,
    rtol: float = 1e-8,
    max_products: int = 100,
) -> Applied:
    r"""Returns $f(H) v$ for the Hessian $H$ at `theta`, without forming $H$.

    $f(H) v \approx \|v\| V_m f(T_m) e_1$, where $V_m$ is an orthonormal basis of the Krylov space of
    $(H, v)$ and $T_m$ is $H$ projected on it: Lanczos at real theta, Arnoldi at complex theta, where $H$
    is complex-symmetric and not Hermitian; both fully reorthogonalised.

    Args:
        objective: The loss.
        theta: Where to take the Hessian, real or complex.
        f: A function of arrays of eigenvalues, elementwise and made of JAX operations. Its values may be complex: at
            negative eigenvalues `lambda x: jnp.sqrt(x + 0j)` has values where `jnp.sqrt` has none. At complex theta it
            is applied through the eigenvectors of $T_m$, whose conditioning goes into the error.
        v: The vector (D,).
        rtol: Stop when the estimated error is below `rtol` relative to the result.
        max_products: Stop after this many products in any case.

    Returns:
        An `Applied` with `vector`, `error`, `products` and `converged`; not converged, with an infinite error, where f
        or the Hessian is not finite.

    Raises:
        ValueError: For an f that isn't such a function, rtol not above 0 and below 1, max_products below 1 or beyond
            memory, a theta or v that is wrong, not finite or of half precision, or a loss without Hessian products.

    Example:
        >>> import jax.numpy as jnp
        >>> import principalflow as pf
        >>> bowl = pf.functions.quadratic(jnp.diag(jnp.array([1.0, 4.0, 9.0])))
        >>> result = pf.spectrum.apply(bowl, bowl.theta, jnp.sqrt, jnp.ones(3))
        >>> result.vector.round(6)
        Array([1., 2., 3.], dtype=float64)
        >>> int(result.products)
        3
    """
    rtol, max_products = _checks.tolerance("rtol", rtol), _checks.whole("max_products", max_products, least=1)
    theta, v = checked_theta(objective, theta, half=False), objective.flat("v", v)
    _checks.finite("v", v)
    size = min(max_products, theta.size)
    _checks.fits("max_products", size * theta.nbytes, f"a basis of {size} vectors as long as theta")
    if jnp.iscomplexobj(v) and not jnp.iscomplexobj(theta):
        raise ValueError(f"v must be real where theta is real, got dtype {v.dtype}.")
    _check_elementwise(f, theta.dtype)
    rtol = _checks.resolvable("rtol", rtol, theta.dtype)
    return _apply(objective, theta, f, v, jnp.asarray(rtol), max_products)


def krylov(
    product: Callable[[Vector], Vector],
    v: Vector,
    coefficients: Callable[[Projected], tuple[Inexact[Array, " m"], Float[Array, ""]]],
    rtol: Float[Array, ""] | float,
    max_products: int,
    symmetric: bool,
) -> Applied:
    """Returns f(H) v from `product` and a function of the projected matrix.

    Args:
        product: v -> H v, linear.
        v: The vector; its dtype is the dtype of the basis.
        coefficients: T -> f(T) e_1 and its relative rounding error.
        rtol: The relative tolerance; no finer than the dtype resolves.
        max_products: The largest size of the basis.
        symmetric: Whether H is real and symmetric, so that T is tridiagonal up to rounding.
    """
    return krylov_and_space(product, v, coefficients, rtol, max_products, symmetric)[0]


def krylov_and_space(
    product: Callable[[Vector], Vector],
    v: Vector,
    coefficients: Callable[[Projected], tuple[Inexact[Array, " m"], Float[Array, ""]]],
    rtol: Float[Array, ""] | float,
    max_products: int,
    symmetric: bool,
) -> tuple[Applied, Inexact[Array, "m D"], Projected]:
    """Returns what `krylov` does, the basis, one vector a row, and H projected on it; what wasn't needed is zero."""
    rtol = jnp.maximum(rtol, _checks.resolution(v.dtype))
    size = min(max_products, v.size)
    length = _length(v)
    basis, T = _start(v, size)
    # The cost of a matrix function grows with the cube of the size, so small bases get small matrices.
    parts = min(-(-size // _ROOM), _MOST_ROOMS)
    rooms = [-(-size * part // parts) for part in range(1, parts + 1)]

    def within(room):
        def first_column(T, k):
            inside = jnp.arange(room) < k
            projected = jnp.where(inside[:, None] & inside[None, :], T[:room, :room], 0)
            column, rounding = coefficients((projected + projected.T) / 2 if symmetric else projected)
            return jnp.pad(column, (0, size - room)), rounding

        return first_column

    def unfinished(state):
        k, _, T, _, _, error = state
        exhausted = (k > 0) & ~(jnp.abs(T[k, k - 1]) > 0)  # also where the product was not finite
        return (k < size) & (error > rtol) & ~exhausted

    def more(state):
        k, basis, T, previous, changes, _ = state
        basis, T = _extend(product, k, k + 1, basis, T)
        room = jnp.searchsorted(jnp.asarray(rooms), k + 1)
        current, rounding = lax.switch(room, [within(room) for room in rooms], T, k + 1)
        scale = _length(current)
        change = _length(current - previous) / jnp.where(scale > 0, scale, 1)
        # f may have had no value at an approximate eigenvalue that more products will move.
        changes = jnp.append(changes[1:], jnp.where(jnp.isfinite(change), change, jnp.inf).astype(changes.dtype))
        exact = (k + 1 == v.size) | (T[k + 1, k] == 0)
        error = jnp.where(exact, 0, _error_after(changes)) + rounding
        error = jnp.where(jnp.isfinite(scale + error), error, jnp.inf).astype(changes.dtype)
        return k + 1, basis, T, current, changes, error

    nothing = jnp.zeros(size, jax.eval_shape(coefficients, T[:size])[0].dtype)
    changes = jnp.ones(_FALLS + 1, v.real.dtype)
    state = jnp.asarray(0), basis, T, nothing, changes, jnp.asarray(jnp.inf, changes.dtype)
    k, basis, T, current, _, error = lax.while_loop(unfinished, more, state)
    vector = jnp.where(length == 0, 0, length * (current @ basis[:size]))
    finite = jnp.all(jnp.isfinite(vector)) & jnp.all(jnp.isfinite(T))
    error = jnp.where(finite, jnp.where(length == 0, 0, error), jnp.inf)
    inside = jnp.arange(size) < k
    projected = jnp.where(inside[:, None] & inside, T[:size], 0)
    return Applied(vector, error, k, error <= rtol), jnp.where(inside[:, None], basis[:size], 0), projected


def _error_after(changes: Float[Array, " n"]) -> Float[Array, ""]:
    """Returns the error after the last of some products, from the change that each of them made.

    A change is about as large as the error before it. The last of them may be small by chance, so it is taken to have
    come of the first by steady falls at the slowest rate among them; where one of them rose it is the largest.
    """
    before, after = changes[:-1], changes[1:]
    falls = jnp.where(before > 0, after / jnp.where(before > 0, before, 1), 1)
    # What is left at the end is rounding, which neither falls nor rises.
    falls = jnp.where(after <= _checks.resolution(changes.dtype), 0, falls)
    rate = jnp.minimum(jnp.max(falls), 1)
    return jnp.max(after * rate ** jnp.arange(after.size - 1, -1, -1))


def lanczos(product: Callable[[Vector], Vector], v: Vector, size: int) -> Projected:
    """Returns H, real and symmetric, projected on the first `size` vectors of the Krylov space of (H, v).

    Where the space is exhausted sooner, the rest of the matrix is zero.
    """
    T = _extend(product, 0, size, *_start(v, size))[1][:size]
    return (T + T.T) / 2


def _start(v: Vector, size: int) -> tuple[Array, Array]:
    """Returns room for a basis, one vector a row with the first in place, and for H projected on it."""
    length = _length(v)
    rows = -(-(size + 1) // _ROWS) * _ROWS
    basis = jnp.zeros((rows, v.size), v.dtype).at[0].set(v / jnp.where(length > 0, length, 1))
    return basis, jnp.zeros((rows, size), v.dtype)


def _extend(product: Callable[[Vector], Vector], start, until, basis: Array, T: Array) -> tuple[Array, Array]:
    """Returns the basis and the projected matrix with columns `start` to `until` filled."""
    eps = jnp.finfo(basis.dtype).eps

    def extend(k, basis_and_T):
        basis, T = basis_and_T
        w = product(basis[k])
        once, column = _orthogonal(basis, k, w, jnp.zeros(len(T), T.dtype))
        cancelled = _length(once) < _CANCELLED * _length(w)
        w, column = lax.cond(cancelled, lambda: _orthogonal(basis, k, once, column), lambda: (once, column))
        below = _length(w)
        # The Krylov space is exhausted: what is left is rounding, and the result is exact.
        below = jnp.where(below <= 100 * eps * _length(column), 0, below)  # NaN stays
        basis = basis.at[k + 1].set(w / jnp.where(below > 0, below, 1) * (below > 0))
        return basis, T.at[:, k].set(column.at[k + 1].add(below))

    return lax.fori_loop(start, until, extend, (basis, T))


def _orthogonal(basis: Array, k, w: Vector, column: Array) -> tuple[Vector, Array]:
    """Returns w less its part along the first k + 1 vectors of the basis, and `column` with the overlaps added."""

    def subtract(block, w_and_column):
        w, column = w_and_column
        rows = lax.dynamic_slice_in_dim(basis, block * _ROWS, _ROWS)
        overlap = (rows @ w.conj()).conj()
        here = lax.dynamic_slice_in_dim(column, block * _ROWS, _ROWS)
        return w - overlap @ rows, lax.dynamic_update_slice_in_dim(column, here + overlap, block * _ROWS, 0)

    return lax.fori_loop(0, k // _ROWS + 1, subtract, (w, column))


def _length(v: Inexact[Array, "..."]) -> Float[Array, ""]:
    """Returns the norm of v, also where the squares of its entries are beyond the largest or smallest number."""
    largest = jnp.max(jnp.abs(v))
    return largest * jnp.linalg.norm(v / jnp.where(largest > 0, largest, 1))


def _check_elementwise(f: Callable[[Array], Array], dtype) -> None:
    needed = f"f must be a function of a {jnp.dtype(dtype).name} array that returns one of the same shape"
    if not callable(f):
        raise ValueError(f"{needed}, got a {type(f).__name__}.")
    try:
        found = jax.eval_shape(lambda values: f(values), jax.ShapeDtypeStruct((3,), dtype))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{needed}, made of JAX operations; it can't be traced: {error}") from error
    shape = getattr(found, "shape", None)
    if shape != (3,):
        raise ValueError(f"{needed}; of shape (3,) it made {'no array' if shape is None else shape}.")


@_loss.needs("loss", _loss.PRODUCTS)
@compiled
def _apply(objective: Objective, theta: Vector, f: Callable, v: Vector, rtol: Array, max_products: int):
    eps = jnp.asarray(jnp.finfo(theta.dtype).eps)

    def combine(values, vectors, weights):
        # Rows of T that aren't filled have no weight; f need not be defined at their value, zero.
        heaviest = values[jnp.argmax(jnp.abs(weights))]
        values = jnp.where(jnp.abs(weights) < eps, heaviest, values)
        column = (vectors * f(values)) @ weights
        # The eigenvalues are known to rounding; beside a pole or a jump of f that is not enough.
        moved = (vectors * f(values + eps * jnp.max(jnp.abs(values)))) @ weights
        scale = _length(column)
        return column, _length(moved - column) / jnp.where(scale > 0, scale, 1) + eps

    def from_eigh(T):
        values, vectors = jnp.linalg.eigh(T)
        return combine(values, vectors, vectors[0])

    def from_eig(T):
        largest = jnp.max(jnp.abs(T))
        size = jnp.where(largest > 0, largest, 1)
        values, vectors = jnp.linalg.eig(T / size)  # else tiny and huge ones come back as LAPACK scaled them
        weights = jnp.linalg.solve(vectors, jnp.eye(1, T.shape[0], dtype=T.dtype)[0])
        column, rounding = combine(size * values, vectors, weights)
        return column, rounding * jnp.linalg.cond(vectors)

    product = objective.linearize(theta)[1]
    if jnp.iscomplexobj(theta):
        return krylov(product, v.astype(theta.dtype), from_eig, rtol, max_products, symmetric=False)
    return krylov(product, v.astype(theta.dtype), from_eigh, rtol, max_products, symmetric=True)
