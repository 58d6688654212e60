"""The eigenpairs at one end of a symmetric operator's spectrum, warm-started and certified by residuals.

A block Rayleigh-Ritz method. A basis S is kept with H S beside it, so nothing is multiplied twice. The
eigenpairs of the small matrix S^T H S give approximate eigenpairs of H, whose residuals cost no product; the
worst residuals extend S until all are small enough. Started at the block of the previous training step, it is
mostly done after the products that certify that block.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from array_api_compat import array_namespace, device, is_array_api_obj, is_torch_array

from principalflow import _checks

Which = Literal["largest", "smallest"]

# Below this size all eigenpairs of the dense matrix cost less than the iteration.
DENSE_SIZE = 500
# Columns of the dense matrix that are computed at once.
_DENSE_COLUMNS = 64
# Vectors beyond the k that are asked for: they meet a cluster or a swap of order before it matters. One costs one
# product at each training step; a start that must find everything takes more.
_GUARDS = 1
_COLD_GUARDS = 3
# How well a guard must be known, relative to the largest |value|. It only has to show that nothing larger
# hides in its direction, for which the leading digit is enough.
_GUARD_TOLERANCE = 0.1


@dataclass(frozen=True)
class Eigenpairs:
    """Eigenpairs and how well they are known.

    Attributes:
        values: The eigenvalues in float64, largest first (smallest first for `which="smallest"`).
        vectors: Their unit eigenvectors, (D, k), in the same order.
        residuals: ||H v - value v|| of each: an eigenvalue lies within this distance of the value.
        products: Products spent, counted by columns.
        converged: Whether all residuals are within the tolerance, and the guard saw nothing further out.
        which: Which end of the spectrum they are of.
        method: "dense" if all eigenpairs were computed, "block" for the iteration.
        block: The vectors with the guard beside them, where the next call starts when it gets this as its guess.
    """

    values: np.ndarray
    vectors: Any = field(repr=False)
    residuals: np.ndarray
    products: int
    converged: bool
    which: Which
    method: Literal["dense", "block"]
    block: Any = field(repr=False)


def block_eigenpairs(
    product: Callable[[Any], Any],
    guess: Any,
    k: int,
    tol: float = 1e-3,
    which: Which = "largest",
    cover: float | None = None,
    max_products: int = 1000,
) -> Eigenpairs:
    r"""Returns the eigenpairs at one end of the spectrum of a symmetric operator, from products with blocks.

    For JAX, NumPy and PyTorch arrays alike: the large arrays stay what they are, the small matrices are NumPy's in
    float64. Below D = 500 all eigenpairs are computed instead, and `method` says so.

    A residual $\|Hv - \lambda v\|$ proves that an eigenvalue lies within it of $\lambda$. That none further out was
    overlooked is made likely by the guards, not proved: no method can from a few products.

    Args:
        product: The operator times a block, (D, m) -> (D, m).
        guess: The `Eigenpairs` of a similar operator, which are taken for what to look for; or a block (D, m), to which
            random vectors are added, since it may lack a direction.
        k: How many pairs.
        tol: The residual to reach, relative to the largest |eigenvalue| seen.
        which: Which end of the spectrum.
        cover: If given, k grows until all eigenvalues beyond `cover` are held, and one on its other side as the proof.
        max_products: Give up, unconverged, once so many are spent.

    Returns:
        The `Eigenpairs`.

    Raises:
        ValueError: For a k that isn't in 1 to D, a tol not above 0, an unknown which, a cover that isn't finite,
            max_products below k; a guess that isn't a finite block of float32 or float64 with independent columns; a
            product that changes the block's shape or dtype, isn't finite, or isn't symmetric.

    Example:
        >>> import numpy as np
        >>> import principalflow as pf
        >>> diagonal = np.arange(1000.0)[:, None]
        >>> eig = pf.spectrum.block_eigenpairs(lambda V: diagonal * V, np.eye(1000)[:, -3:], k=2)
        >>> eig.values
        array([999., 998.])
    """
    return solve(product, guess, k, tol, which, cover, max_products)[0]


def solve(
    product: Callable[[Any], Any],
    guess: Any,
    k: int,
    tol: float,
    which: Which = "largest",
    cover: float | None = None,
    max_products: int = 1000,
    also: Any = None,
) -> tuple[Eigenpairs, Any]:
    """Returns what `block_eigenpairs` does, and the operator times the vector `also`.

    That vector joins the basis, so its product serves the eigenpairs too.
    """
    k, tol = _checks.whole("k", k, least=1), _checks.positive("tol", tol)
    max_products = _checks.whole("max_products", max_products, least=k)
    _checks.one_of("which", which, ("largest", "smallest"))
    cover = None if cover is None else _checks.real("cover", cover)
    if not callable(product):
        raise ValueError(f"product must be a function from blocks to blocks, got a {type(product).__name__}.")
    known = isinstance(guess, Eigenpairs) and guess.which == which
    guess = guess.block if isinstance(guess, Eigenpairs) else guess
    _check_guess(guess, k)
    guess = guess.detach() if is_torch_array(guess) else guess
    tol = _checks.resolvable("tol", tol, str(guess.dtype).removeprefix("torch."))
    request = _Request(k, tol, 1 if which == "largest" else -1, cover)
    counted = _Counted(product, array_namespace(guess))
    size = guess.shape[0]
    if size < DENSE_SIZE and size <= max_products:
        ritz, along = _dense(counted, guess, request, also)
        return ritz.eigenpairs(request, counted.products, "dense"), along

    basis = _Basis(counted, guess, max(k + _GUARDS, guess.shape[1]) if known else max(k, guess.shape[1]) + _COLD_GUARDS)
    along = None
    if also is not None:
        basis.extend(counted.xp.reshape(also, (1, -1)))
        along = basis.times(also)
    ritz = _refine(basis, k, request, max_products)
    wanted = k
    while ritz.converged and wanted < size and request.is_beyond_cover(ritz.values[wanted - 1]):
        wanted = min(2 * wanted, size)
        basis.widen(max(wanted + _GUARDS, basis.width))
        ritz = _refine(basis, wanted, request, max_products)
    return ritz.eigenpairs(request, counted.products, "block"), along


@dataclass(frozen=True)
class _Request:
    """What is asked for: how many pairs, how well known, of which end, and how far."""

    k: int
    tol: float
    sign: int
    cover: float | None

    def is_beyond_cover(self, values: Any) -> Any:
        return self.cover is not None and self.sign * values > self.sign * self.cover


@dataclass(frozen=True)
class _Ritz:
    """Approximate eigenpairs, guards included."""

    values: np.ndarray
    vectors: Any
    residuals: np.ndarray
    converged: bool

    def eigenpairs(self, request: _Request, products: int, method: Literal["dense", "block"]) -> Eigenpairs:
        """Returns the k first, or with `cover` all beyond it and one more."""
        beyond = int(np.sum(request.is_beyond_cover(self.values)))
        k = min(max(request.k, beyond + 1), len(self.values)) if request.cover is not None else request.k
        X, which = self.vectors[:, : k + _GUARDS], "largest" if request.sign > 0 else "smallest"
        return Eigenpairs(self.values[:k], X[:, :k], self.residuals[:k], products, self.converged, which, method, X)


def _refine(basis: "_Basis", k: int, request: _Request, max_products: int) -> _Ritz:
    """Extends the basis until its first k Ritz pairs, and the guards behind them, are known well enough."""
    tolerances = np.where(np.arange(basis.width) < k, request.tol, max(request.tol, _GUARD_TOLERANCE))
    former, size = np.full(k, np.inf), basis.S.shape[1]
    while True:
        values, Y = _eigh(basis.T, request.sign, basis.eps)
        # Relative to the largest |value| of the whole basis: the wanted end of the spectrum may be near zero.
        scale = max(float(np.max(np.abs(values))), np.finfo(float).tiny)
        values, block = values[: basis.width], Y[:, : basis.width]
        R = basis.combine(block, basis.HS) - basis.combine(block * values, basis.S)
        residuals = _to_numpy(basis.xp.linalg.vector_norm(R, axis=1))
        excess = residuals / (tolerances * scale)
        # Random vectors have small residuals too where the Hessian has low rank: they must also have come to rest.
        moved = np.max(np.abs(values[:k] - former)) > request.tol * scale
        at_rest = not basis.is_random or (len(basis.T) >= min(2 * basis.width, size) and not moved)
        converged, former = bool(np.all(excess <= 1)) and at_rest, values[:k]
        if converged or basis.product.products >= max_products:
            break
        worst = np.argsort(-excess)[: basis.extension]
        worst = worst[(excess[worst] > 1) | (not at_rest)]
        if basis.is_full:
            basis.restart(Y)
            block = np.eye(len(basis.T), basis.width)  # the first vectors of the basis now
        if not basis.extend(_rows(basis.xp, R, worst)):
            converged = bool(np.all(excess <= 1))  # nothing lies outside
            break
    return _Ritz(values, basis.xp.matrix_transpose(basis.combine(block, basis.S)), residuals, converged)


class _Basis:
    """An orthonormal basis S with H S, one vector a row, and T = S H S^T.

    The arrays have room for more rows, zero until they are used, so that JAX compiles once.
    """

    def __init__(self, product: "_Counted", guess: Any, width: int):
        self.xp, self.product = product.xp, product
        self.eps = float(self.xp.finfo(guess.dtype).eps)
        self.S = self.HS = self.xp.matrix_transpose(guess)[:0]
        self.T = np.zeros((0, 0))
        self.is_random = False
        self._make_room(width)
        _check_rank(guess, self.extend(self.xp.matrix_transpose(guess)))
        self._fill()

    def widen(self, width: int) -> None:
        """Makes room for blocks of `width`, and has at least that many vectors."""
        self._make_room(width)
        self._fill()

    def extend(self, W: Any) -> int:
        """Adds what the rows of W have beyond the basis; returns how many directions that were."""
        W = _orthonormal(self.xp, W, self.S if len(self.T) else None)
        old, added = len(self.T), W.shape[0]
        if added:
            HW = self.xp.matrix_transpose(self.product(self.xp.matrix_transpose(W)))
            place = self.like(np.eye(self.S.shape[0])[:, old : old + added])
            self.S, self.HS = self.S + place @ W, self.HS + place @ HW
            T = np.zeros((old + added, old + added))
            T[:old, :old] = self.T
            # Both sides of the new rows and columns are measured, so that a product that isn't symmetric shows.
            T[:, old:] = _to_numpy(self.S @ self.xp.matrix_transpose(HW))[: old + added]
            T[old:, :old] = _to_numpy(W @ self.xp.matrix_transpose(self.HS))[:, :old]
            self.T = T
        return added

    def combine(self, Y: np.ndarray, rows: Any) -> Any:
        """Returns the combinations of `rows`, S or HS, whose coefficients are the columns of Y."""
        padded = np.zeros((Y.shape[1], rows.shape[0]))
        padded[:, : len(Y)] = Y.T
        return self.like(padded) @ rows

    @property
    def is_full(self) -> bool:
        return len(self.T) + self.extension > self.S.shape[0]

    @property
    def extension(self) -> int:
        """Residuals that extend the basis at a time: one is as thrifty in products, more use the machine better."""
        return max(2, self.width // 4)

    def restart(self, Y: np.ndarray) -> None:
        """Keeps the best Ritz vectors, twice the block: with the block alone, what was learnt is forgotten."""
        kept = np.zeros((len(Y), self.S.shape[0]))
        columns = min(2 * self.width, len(Y))
        kept[:, :columns] = Y[:, :columns]
        self.S, self.HS = self.combine(kept, self.S), self.combine(kept, self.HS)
        self.T = Y[:, :columns].T @ self.T @ Y[:, :columns]

    def times(self, v: Any) -> Any:
        """Returns H v for a vector within the basis."""
        return (self.S @ v) @ self.HS

    def like(self, x: np.ndarray) -> Any:
        """Returns `x` as an array of the basis's kind."""
        return _like(self.xp, x, self.S)

    def _make_room(self, width: int) -> None:
        size = self.S.shape[1]
        self.width = min(width, size)
        more = self.like(np.zeros((3 * self.width + self.extension - self.S.shape[0], size)))
        self.S, self.HS = self.xp.concat([self.S, more], axis=0), self.xp.concat([self.HS, more], axis=0)

    def _fill(self) -> None:
        random = np.random.default_rng(2023)  # not 0, with which many a guess is made
        while len(self.T) < self.width:
            self.is_random = True
            self.extend(self.like(random.standard_normal((self.width - len(self.T), self.S.shape[1]))))


class _Counted:
    """A product that counts its columns and refuses what can't be right."""

    def __init__(self, product: Callable[[Any], Any], xp: Any):
        self.product, self.xp, self.products = product, xp, 0

    def __call__(self, block: Any) -> Any:
        result = self.product(block)
        if not _is_array(result) or array_namespace(result) != self.xp or result.dtype != block.dtype:
            got = f"{type(result).__name__} of {getattr(result, 'dtype', 'no dtype')}"
            raise ValueError(f"product must return a {type(block).__name__} of {block.dtype}, as it gets, got a {got}.")
        result = result.detach() if is_torch_array(result) else result
        if tuple(result.shape) != tuple(block.shape):
            raise ValueError(f"product must keep the block's shape {tuple(block.shape)}, got {tuple(result.shape)}.")
        if not bool(self.xp.all(self.xp.isfinite(result))):
            raise _checks.NonFiniteError("product must be finite, but it returned entries that are not.")
        self.products += block.shape[1]
        return result


def _dense(product: _Counted, guess: Any, request: _Request, also: Any) -> tuple[_Ritz, Any]:
    """Returns all eigenpairs, and the matrix times `also`."""
    xp, size = product.xp, guess.shape[0]
    _check_rank(guess, _orthonormal(xp, xp.matrix_transpose(guess), None).shape[0])
    identity = np.eye(size)
    slabs = [product(_like(xp, identity[:, i : i + _DENSE_COLUMNS], guess)) for i in range(0, size, _DENSE_COLUMNS)]
    H = xp.concat(slabs, axis=1)
    matrix = _to_numpy(H)
    values, vectors = _eigh(matrix, request.sign, float(xp.finfo(guess.dtype).eps))
    residuals = np.linalg.norm(matrix @ vectors - vectors * values, axis=0)
    converged = bool(np.all(residuals <= request.tol * np.max(np.abs(values))))
    return _Ritz(values, _like(xp, vectors, guess), residuals, converged), None if also is None else H @ also


def _eigh(T: np.ndarray, sign: int, eps: float) -> tuple[np.ndarray, np.ndarray]:
    """Returns the eigenpairs of a matrix that must be symmetric to rounding, the wanted end first."""
    asymmetry, scale = np.max(np.abs(T - T.T)), np.max(np.abs(T))
    if asymmetry > 10 * eps**0.5 * scale:
        raise ValueError(f"product must be symmetric, but u.Hv and v.Hu differ by {asymmetry:.1e} (of {scale:.1e}).")
    values, vectors = np.linalg.eigh((T + T.T) / 2)
    order = np.argsort(-sign * values)
    return values[order], vectors[:, order]


def _orthonormal(xp: Any, W: Any, S: Any) -> Any:
    """Returns orthonormal rows for what the rows of W have beyond those of S; dependent ones are left out."""
    least = float(xp.finfo(W.dtype).eps) ** 0.5
    for _ in range(1 if S is None else 2):  # once more repairs what cancellation lost
        W = W / _or_one(xp, xp.max(xp.abs(W), axis=1, keepdims=True))  # else the square of a length may overflow
        W = W / _or_one(xp, xp.linalg.vector_norm(W, axis=1, keepdims=True))
        if S is not None:
            W = W - (W @ xp.matrix_transpose(S)) @ S
        Q, R = xp.linalg.qr(xp.matrix_transpose(W))
        W = xp.matrix_transpose(Q)
        independent = np.abs(np.diagonal(_to_numpy(R))) > least
        if not np.all(independent):
            W = _rows(xp, W, np.flatnonzero(independent))
    return W


def _check_guess(guess: Any, k: int) -> None:
    if not _is_array(guess):
        raise ValueError(f"guess must be an array (D, m) of NumPy, JAX or PyTorch, got a {type(guess).__name__}.")
    xp = array_namespace(guess)
    if guess.ndim != 2 or not guess.shape[1] or guess.dtype not in (xp.float32, xp.float64):
        given = f"{guess.dtype}{tuple(guess.shape)}"
        raise ValueError(f"guess must be a block (D, m) of float32 or float64, vectors as its columns, got {given}.")
    if not bool(xp.all(xp.isfinite(guess))):
        raise _checks.NonFiniteError("guess must be finite, but it has entries that are not.")
    if k > guess.shape[0]:
        raise ValueError(f"k must be at most the number of parameters, {guess.shape[0]}, got {k}.")


def _check_rank(guess: Any, rank: int) -> None:
    if rank < guess.shape[1]:
        raise ValueError(f"guess must have independent columns, got rank {rank} of {guess.shape[1]}.")


def _is_array(x: Any) -> bool:
    return is_array_api_obj(x)


def _or_one(xp: Any, x: Any) -> Any:
    return xp.where(x > 0, x, xp.ones_like(x))


def _rows(xp: Any, X: Any, which: np.ndarray) -> Any:
    return xp.take(X, xp.asarray(which, device=device(X)), axis=0)


def _to_numpy(x: Any) -> np.ndarray:
    return np.asarray(x.detach().cpu() if is_torch_array(x) else x, dtype=np.float64)


def _like(xp: Any, x: np.ndarray, like: Any) -> Any:
    return xp.asarray(x, dtype=like.dtype, device=device(like))
