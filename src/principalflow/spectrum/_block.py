"""The eigenpairs at one end of a symmetric operator's spectrum, warm-started and certified by residuals.

A block Rayleigh-Ritz method. A basis S is kept with H S beside it, so nothing is multiplied twice. The
eigenpairs of the small matrix S^T H S give approximate eigenpairs of H, whose residuals cost no product; the
worst residuals extend S until all are small enough.

Along a training run each call leaves a trail for the next, `_trail.py`: where to start, so that mostly the products
that certify the start are all, and what the operator did to a random vector, the probe, so that a change elsewhere
shows. Where it does, that change and its residuals extend the basis, and find what lies there.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from array_api_compat import array_namespace, is_torch_array

from principalflow import _checks
from principalflow._derivatives import COLUMNS
from principalflow.spectrum._basis import Basis, Counted, is_array, like, norms, rank, rows, to_numpy
from principalflow.spectrum._memory import COLD_GUARDS, GUARDS, SEARCH_GUARDS, check_memory, room
from principalflow.spectrum._trail import Outside, Trail, probe
from principalflow.status import Status

Which = Literal["largest", "smallest"]

# Below this size all eigenpairs of the dense matrix cost less than the iteration.
DENSE_SIZE = 500
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
        converged: Whether all residuals are within the tolerance, and neither guards nor probe saw anything further
            out.
        which: Which end of the spectrum they are of.
        method: "dense" if all eigenpairs were computed, "block" for the iteration.
        trail: What the next call starts from when it gets this as its guess; None where there is nothing to start from
            but the vectors.
    """

    values: np.ndarray
    vectors: Any = field(repr=False)
    residuals: np.ndarray
    products: int
    converged: bool
    which: Which
    method: Literal["dense", "block"]
    trail: Trail | None = field(repr=False, default=None)

    @property
    def status(self) -> Status:
        """How the search ended: completed, or inexact if it gave up before all was known well enough."""
        return Status.COMPLETED if self.converged else Status.INEXACT

    @property
    def message(self) -> str:
        """The status in a sentence, with what to try."""
        known = f"{len(self.values)} eigenpairs, residuals up to {np.max(self.residuals, initial=0):.1e}"
        words = f"{known}, in {self.products} products"
        return words if self.converged else f"{words}: less exact than was asked; raise max_products or tol"


def block_eigenpairs(
    product: Callable[[Any], Any],
    guess: Any,
    k: int,
    *,
    tol: float = 1e-3,
    which: Which = "largest",
    cover: float | None = None,
    max_products: int = 1000,
) -> Eigenpairs:
    r"""Returns the eigenpairs at one end of the spectrum of a symmetric operator, from products with blocks.

    For JAX, NumPy and PyTorch arrays alike: the large arrays stay what they are, the small matrices are NumPy's in
    float64. Below D = 500 all eigenpairs are computed instead, and `method` says so.

    A residual $\|Hv - \lambda v\|$ proves that an eigenvalue lies within it of $\lambda$. That none further out was
    overlooked is made likely by guards and a random probe, not proved: no method can from a few products.

    Args:
        product: The operator times a block, (D, m) -> (D, m).
        guess: The `Eigenpairs` of a similar operator; or a block (D, m) to start from.
        k: How many pairs.
        tol: The residual to reach, relative to the largest |eigenvalue| seen.
        which: Which end of the spectrum.
        cover: If given, k grows until all eigenvalues beyond `cover` are held, and one on its other side as the proof.
        max_products: Give up, unconverged, once this many are spent.

    Returns:
        The `Eigenpairs`.

    Raises:
        ValueError: For a k that isn't in 1 to D or asks for more memory than is free, a tol not between 0 and 1, an
            unknown which, a cover that isn't finite, max_products below k; a guess that isn't a finite block of float32
            or float64 with independent columns; a product that changes the block's shape or dtype, isn't finite, or
            isn't symmetric.

    Example:
        >>> import numpy as np
        >>> import principalflow as pf
        >>> diagonal = np.arange(1000.0)[:, None]
        >>> eig = pf.spectrum.block_eigenpairs(lambda V: diagonal * V, np.eye(1000)[:, -3:], k=2)
        >>> eig.values
        array([999., 998.])
    """
    return block_eigenpairs_and_product(
        product, guess, k, tol=tol, which=which, cover=cover, max_products=max_products
    )[0]


def block_eigenpairs_and_product(
    product: Callable[[Any], Any],
    guess: Any,
    k: int,
    *,
    tol: float,
    which: Which = "largest",
    cover: float | None = None,
    max_products: int = 1000,
    also: Any = None,
    error: float = 0.0,
) -> tuple[Eigenpairs, Any]:
    """Returns what `block_eigenpairs` does, and the operator times the vector `also`.

    That vector joins the basis, so its product serves the eigenpairs too. Products may be off, and not symmetric, by a
    relative `error`.
    """
    k, tol = _checks.whole("k", k, least=1), _checks.tolerance("tol", tol)
    _checks.one_of("which", which, ("largest", "smallest"))
    cover = None if cover is None else _checks.real("cover", cover)
    _checks.function("product", product, "block")
    trail = guess.trail if isinstance(guess, Eigenpairs) and guess.which == which else None
    if isinstance(guess, Eigenpairs):
        guess = guess.vectors if trail is None else trail.start
    _check_guess(guess, k, known=trail is not None)
    max_products = _checks.whole("max_products", max_products, least=k)
    guess = guess.detach() if is_torch_array(guess) else guess
    tol = _checks.resolvable("tol", tol, str(guess.dtype).removeprefix("torch."))
    request = _Request(k, tol, 1 if which == "largest" else -1, cover, max_products, error)
    counted = Counted(product, array_namespace(guess))
    size = guess.shape[0]
    if size < DENSE_SIZE and size <= max_products:
        ritz, along = _dense(counted, guess, request, also)
        return ritz.eigenpairs(request, counted.products, "dense", None), along

    if trail is not None and guess.shape[1] < k + GUARDS:  # fewer were asked for then
        trail = None
    guards = COLD_GUARDS if trail is None else GUARDS
    wanted = max(k, guess.shape[1]) if trail is None else guess.shape[1] - GUARDS
    check_memory("k", wanted, guess)
    random = probe(counted.xp, guess, 0 if trail is None else trail.calls)
    beside = [random] if also is None else [also, random]
    former = guess if trail is None else guess[:, :wanted]
    block = counted.xp.concat([former, counted.xp.stack(beside, axis=1)], axis=1)
    basis = Basis(counted, block, room(wanted, guards))
    with np.errstate(over="ignore", invalid="ignore"):
        along, outside = None if also is None else basis.times(also), Outside(basis, random, trail)
    if along is not None and not bool(counted.xp.all(counted.xp.isfinite(along))):
        raise _checks.NonFiniteError("product must be finite, but that with the vector `also` is not.")
    if trail is None:
        basis.fill(wanted + guards)
        wanted = k
    elif outside.references is not None:
        guards = 0
    else:
        basis.extend(counted.xp.matrix_transpose(guess)[wanted:])
    ritz, improved, Y, searched = _refine(basis, wanted, guards, request, outside)
    while ritz.converged and wanted < size and request.is_beyond_cover(ritz.values[wanted - 1]):
        wanted = min(2 * wanted, size)
        check_memory("cover", wanted, guess)
        basis.make_room(room(wanted, COLD_GUARDS))
        basis.fill(wanted + COLD_GUARDS)
        outside.forget()
        ritz, improved, Y, searched = _refine(basis, wanted, COLD_GUARDS, request, outside)
    held = request.held(ritz.values)
    bounds = _bounds(request.sign * ritz.values, ritz.residuals, held)
    trail = outside.trail(trail, improved[: held + GUARDS], Y[:, :held], bounds, searched)
    return ritz.eigenpairs(request, counted.products, "block", trail), along


@dataclass(frozen=True)
class _Request:
    """What is asked for: how many pairs, how well known, of which end, how far, and at what price."""

    k: int
    tol: float
    sign: int
    cover: float | None
    max_products: int
    error: float

    def is_beyond_cover(self, values: Any) -> Any:
        return self.cover is not None and self.sign * values > self.sign * self.cover

    def held(self, values: np.ndarray) -> int:
        """How many of the values to return: k, or with `cover` all beyond it and one more."""
        beyond = int(np.sum(self.is_beyond_cover(values)))
        return self.k if self.cover is None else min(max(self.k, beyond + 1), len(values))


@dataclass(frozen=True)
class _Ritz:
    """Approximate eigenpairs, guards included."""

    values: np.ndarray
    vectors: Any
    residuals: np.ndarray
    converged: bool

    def eigenpairs(
        self, request: _Request, products: int, method: Literal["dense", "block"], trail: Trail | None
    ) -> Eigenpairs:
        k, which = request.held(self.values), "largest" if request.sign > 0 else "smallest"
        values, vectors, residuals = self.values[:k], self.vectors[:, :k], self.residuals[:k]
        return Eigenpairs(values, vectors, residuals, products, self.converged, which, method, trail)


def _refine(
    basis: Basis, k: int, guards: int, request: _Request, outside: Outside
) -> tuple[_Ritz, Any, np.ndarray, bool]:
    """Extends the basis until its first k Ritz pairs, and the guards behind them, are known well enough.

    Once the k pairs are, the guard is multiplied if it may have come beyond the k-th value since it last was. Where
    something behind it may have, that is searched for: by so many more products with the residual of the outermost
    guard, and until nothing moves any more. A search that found something may have missed its neighbour, so another
    follows, from elsewhere, until one finds nothing.

    Returns:
        The Ritz pairs, their vectors improved without a product, one a row, how they are combined from the basis, and
        whether it was searched to the end.
    """
    former, taken, known, fewest = np.zeros(0), 0, 0, 0
    searching, compared = outside.references is None, False
    if searching:
        guards = max(guards, SEARCH_GUARDS)
    while True:
        values, Y = _eigh(basis.T, request.sign, basis.eps, request.error)
        # Relative to the largest |value| of the whole basis: the wanted end of the spectrum may be near zero.
        scale = max(float(np.max(np.abs(values))), float(np.finfo(float).tiny))
        upwards = (request.sign * values).tolist()
        furthest, reach = upwards[-1], upwards[k - 1] + request.tol * scale
        width = min(k + guards, len(values))
        values, block = values[:width], Y[:, :width]
        tolerances = _tolerances(values, k, request.tol * scale, scale)
        R = basis.combine(block, basis.HS) - basis.combine(block * values, basis.S)
        residuals = norms(basis.xp, R)
        excess = residuals / tolerances
        # Random vectors have small residuals too where the Hessian has low rank: they must also have come to rest.
        # Where a spectrum has no gap, a Ritz value that rose by d in the m-th product will rise by some m d / 2 more.
        moved = len(former) != width or bool(np.any(np.abs(values - former) * max(taken, 1) > tolerances))
        former, settled, more, may_hide = values, bool(np.all(excess <= 1)), [], False
        if settled and not compared and not searching:
            outside.compare(block[:, :k])
            compared = True
            if outside.known.level + outside.stirred > reach:
                searching, guards, known = True, max(guards, SEARCH_GUARDS), len(basis.T)
                more = [outside.multiplied_guard()] + ([] if outside.change is None else [outside.change[None]])
                taken = -1
            elif outside.known.guard > reach:
                guards, more = GUARDS, [outside.multiplied_guard()]
        elif may_hide := searching and outside.known.level + outside.stirred > reach:
            found = upwards[k + GUARDS] if len(upwards) > k + GUARDS else -math.inf
            steps = outside.steps_to_search(upwards[k - 1], request.tol * scale, found)
            if taken < max(steps, fewest) or moved:
                settled = False
        # Whether one of the k lies mostly outside of what was known before the search.
        again = settled and may_hide and known > 0 and bool(np.any(np.sum(Y[:known, :k] ** 2, axis=0) < 0.5))
        converged = settled and not again and not more
        if converged or basis.product.products >= request.max_products:
            break
        extension = max(2, width // 4)  # one is as thrifty in products, more use the machine better
        worst = np.argsort(-excess)[:extension]
        chosen = np.union1d(worst[excess[worst] > 1], [width - 1] if may_hide else []).astype(int)
        W = [rows(basis.xp, R, chosen), *more] if len(chosen) else more
        if again:
            known, taken, fewest = len(basis.T), 0, outside.whole_search
            random = np.random.default_rng(basis.product.products)
            W.append(basis.like(random.standard_normal((1, basis.size))))
        W = basis.xp.concat(W, axis=0)
        if basis.room < len(W):
            basis.restart(Y[:, : 2 * width])  # with the block alone, what was learnt would be forgotten
            block = np.eye(len(basis.T), width)  # the first vectors of the basis now
            known = min(known, width)
        if not basis.extend(W):
            converged = bool(np.all(excess <= 1))  # nothing lies outside
            break
        taken += 1
    X = basis.combine(block, basis.S)
    searched = converged and may_hide
    if searched:
        behind = _bounds(request.sign * values, residuals, k)[k + GUARDS :]
        outside.after_search(float(np.max(behind[:1], initial=-math.inf)), taken)
    elif not converged:  # a search that gave up may have missed anything
        outside.known = replace(outside.known, level=math.inf)
    outside.known = replace(outside.known, other_end=min(outside.known.other_end, furthest))
    improved = X + basis.like(_steps_to_improve(values, request.sign * outside.known.other_end))[:, None] * R
    ritz = _Ritz(values, basis.xp.matrix_transpose(X), residuals, converged)
    return ritz, improved, block, searched


def _bounds(upwards: np.ndarray, residuals: np.ndarray, k: int) -> np.ndarray:
    """Returns about how large the eigenvalues behind the k-th are: what Ritz values may lack (Kato, Temple)."""
    gaps = np.maximum(np.maximum(upwards[k - 1] - upwards, residuals), np.finfo(float).tiny)
    return upwards + residuals * (residuals / gaps)


def _tolerances(values: np.ndarray, k: int, wanted: float, scale: float) -> np.ndarray:
    """Returns the residuals to reach: `wanted` for the first k, and for guards what tells them from the k-th value."""
    distance = np.abs(values - values[k - 1])
    guards = np.clip(distance, wanted, max(wanted, _GUARD_TOLERANCE * scale))
    return np.where(np.arange(len(values)) < k, wanted, guards)


def _steps_to_improve(values: np.ndarray, other_end: float) -> np.ndarray:
    """How far to go along each residual r = Hx - value x, so that x + step r is nearer to its eigenvector.

    To 1 / (value - other end), which multiplies the part of x along any other eigenvector, whose value lies between, by
    less than one: a step of the power method, and since Hx is known it costs no product.
    """
    distance = values - other_end
    return np.divide(1, distance, out=np.zeros_like(distance), where=distance != 0)


def _dense(product: Counted, guess: Any, request: _Request, also: Any) -> tuple[_Ritz, Any]:
    """Returns all eigenpairs, and the matrix times `also`."""
    xp, size = product.xp, guess.shape[0]
    identity = np.eye(size)
    slabs = [product(like(xp, identity[:, i : i + COLUMNS], guess)) for i in range(0, size, COLUMNS)]
    H = xp.concat(slabs, axis=1)
    matrix = to_numpy(H)
    values, vectors = _eigh(matrix, request.sign, float(xp.finfo(guess.dtype).eps), request.error)
    residuals = np.linalg.norm(matrix @ vectors - vectors * values, axis=0)
    converged = bool(np.all(residuals <= request.tol * np.max(np.abs(values))))
    return _Ritz(values, like(xp, vectors, guess), residuals, converged), None if also is None else H @ also


def _eigh(T: np.ndarray, sign: int, eps: float, error: float) -> tuple[np.ndarray, np.ndarray]:
    """Returns the eigenpairs of a matrix that must be symmetric to rounding, the wanted end first."""
    asymmetry, scale = np.max(np.abs(T - T.T)), np.max(np.abs(T))
    if asymmetry > (10 * eps**0.5 + error) * scale:
        raise ValueError(f"product must be symmetric, but u.Hv and v.Hu differ by {asymmetry:.1e} (of {scale:.1e}).")
    values, vectors = np.linalg.eigh((T + T.T) / 2)
    order = np.argsort(-sign * values)
    return values[order], vectors[:, order]


def _check_guess(guess: Any, k: int, known: bool) -> None:
    """Raises unless it is a block to start from; what is `known` to be independent is not looked at again."""
    if not is_array(guess):
        raise ValueError(f"guess must be an array (D, m) of NumPy, JAX or PyTorch, got a {type(guess).__name__}.")
    xp = array_namespace(guess)
    if guess.ndim != 2 or not guess.shape[1] or guess.dtype not in (xp.float32, xp.float64):
        given = f"{guess.dtype}{tuple(guess.shape)}"
        raise ValueError(f"guess must be a block (D, m) of float32 or float64, vectors as its columns, got {given}.")
    if not bool(xp.all(xp.isfinite(guess))):
        raise _checks.NonFiniteError("guess must be finite, but it has entries that are not.")
    if k > guess.shape[0]:
        raise ValueError(f"k must be at most the number of parameters, {guess.shape[0]}, got {k}.")
    independent = guess.shape[1] if known else rank(xp, xp.matrix_transpose(guess))
    if independent < guess.shape[1]:
        raise ValueError(f"guess must have independent columns, got rank {independent} of {guess.shape[1]}.")
