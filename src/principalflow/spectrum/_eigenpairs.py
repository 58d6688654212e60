"""The Hessian's largest or smallest eigenpairs."""

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import replace
from functools import cached_property
from threading import Lock
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Inexact, PyTree
from threadpoolctl import ThreadpoolController

from principalflow import _checks
from principalflow.objective import Objective, Vector
from principalflow.spectrum._block import Eigenpairs, Which, block_eigenpairs_and_product
from principalflow.spectrum._hessian import Hessian, Select


def top_eigenpairs(
    objective: Objective,
    theta: _checks.Numbers,
    k: int,
    *,
    guess: Eigenpairs | Inexact[Array, "D m"] | None = None,
    tol: float = 1e-3,
    which: Which = "largest",
    cover: float | None = None,
    select: Select | None = None,
    max_products: int = 1000,
    preconditioner: _checks.Numbers | PyTree | None = None,
    decay: _checks.Numbers | PyTree = 0.0,
    on_host: bool = False,
) -> Eigenpairs:
    r"""Returns the Hessian's largest (or smallest) eigenpairs $(\lambda_i, u_i)$ at `theta`, each with its residual.

    Along a training run, give each call the result of the one before as its `guess`: then most calls spend little
    more than the products that certify it.

    A residual $\|Hu - \lambda u\|$ proves that an eigenvalue lies within it of $\lambda$. That none further out was
    overlooked is made likely by guards and a random probe, not proved: no method can from a few products.

    With a preconditioner P the eigenpairs are those of $P^{-1/2} (H + W) P^{-1/2}$, whose largest decides on the
    stability of $\theta \leftarrow \theta - h P^{-1} g$ (Cohen et al. 2022). Its vectors are orthonormal in
    the coordinates $P^{1/2} \theta$.

    Args:
        objective: The loss.
        theta: Where to take the Hessian; real.
        k: How many pairs.
        guess: The result of a similar Hessian, with the same `which` and `select`; or a block (D, m) to start from;
            None for a random start.
        tol: The residual to reach, relative to the largest |eigenvalue| seen.
        which: `"largest"` or `"smallest"`, by sign and not by modulus.
        cover: If given, k grows until all eigenvalues beyond `cover` are held, and one on its other side as the proof;
            with `cover=2/h`, all directions that are unstable.
        select: If given, a function of a leaf's path in the parameters, like `"['layers'][0]['weight']"`: the Hessian
            is the diagonal block of the leaves for which it is true, and the vectors are zero elsewhere.
        max_products: Give up, unconverged, once this many are spent.
        preconditioner: P, diagonal: a flat vector or a tree like the parameters, of numbers above 0, infinite where a
            parameter rests; None for the identity. It may change from one call to the next.
        decay: W, L2 weight decay that the loss lacks: a number, or one for each parameter in the form of P.
        on_host: Whether the vectors of the search are kept in the machine's memory, where JAX's device has little; on
            CPUs they always are. `basis_memory` says how much they take.

    Returns:
        The `Eigenpairs`: `values`, `vectors`, `residuals`, `products`, `converged`, `method`. Below 500 parameters all
        eigenpairs are computed, and `method` is "dense".

    Raises:
        ValueError: For a k that isn't in 1 to D or asks for more memory than is free, a tol not between 0 and 1, a
            guess of the wrong shape or with dependent columns, a theta that isn't real and finite, a select that
            selects nothing, a preconditioner that isn't positive or doesn't fit the parameters, a decay that isn't
            finite or doesn't fit, or a Hessian that isn't finite or, by a loss with wrong derivatives of its own, not
            symmetric.

    Example:
        >>> import jax.numpy as jnp
        >>> import principalflow as pf
        >>> bowl = pf.functions.quadratic(jnp.diag(jnp.arange(1.0, 6.0)))
        >>> eig = pf.spectrum.top_eigenpairs(bowl, bowl.theta, k=2)
        >>> eig.values, eig.method
        (array([5., 4.]), 'dense')
        >>> pf.spectrum.top_eigenpairs(bowl, bowl.theta, k=2, preconditioner=[1.0, 0.5, 1.0, 1.0, jnp.inf]).values
        array([4., 4.])
    """
    hessian = Hessian(objective, theta, select, preconditioner, decay)
    options = dict(which=which, cover=cover, max_products=max_products)
    return _solved(hessian, k, guess, tol, on_host, **options)[0]


def eigenpairs_and_gradient(
    objective: Objective,
    theta: _checks.Numbers,
    k: int,
    *,
    guess: Eigenpairs | Inexact[Array, "D m"] | None = None,
    tol: float = 1e-3,
    preconditioner: _checks.Numbers | PyTree | None = None,
    decay: _checks.Numbers | PyTree = 0.0,
    on_host: bool = False,
) -> tuple[Eigenpairs, Vector, Vector]:
    r"""Returns the largest eigenpairs, the gradient g and the product Hg, which costs no product of its own.

    The gradient joins the basis in which the eigenpairs are sought.
    With a preconditioner P and decay W all three are those of the coordinates $P^{1/2} \theta$: the gradient is
    $P^{-1/2} (g + W \theta)$, and its product that with $P^{-1/2} (H + W) P^{-1/2}$.

    Args:
        objective: The loss.
        theta: Where; real.
        k: How many pairs.
        guess: As for `top_eigenpairs`.
        tol: As for `top_eigenpairs`.
        preconditioner: As for `top_eigenpairs`.
        decay: As for `top_eigenpairs`.
        on_host: As for `top_eigenpairs`.

    Returns:
        The `Eigenpairs`, g and Hg.

    Raises:
        ValueError: As `top_eigenpairs` does, and where the gradient isn't finite.

    Example:
        >>> import principalflow as pf
        >>> bowl = pf.functions.quadratic([[3.0, 0.0], [0.0, 1.0]])
        >>> eig, gradient, product = pf.spectrum.eigenpairs_and_gradient(bowl, [1.0, 1.0], k=1)
        >>> eig.values, gradient, product
        (array([3.]), Array([3., 1.], dtype=float64), Array([9., 1.], dtype=float64))
    """
    hessian = Hessian(objective, theta, None, preconditioner, decay)
    gradient = hessian.gradient()
    _checks.finite("the gradient at theta", gradient)
    eigenpairs, product = _solved(hessian, k, guess, tol, on_host, also=gradient)
    return eigenpairs, gradient, product


def sharpness(objective: Objective, thetas: Iterable[_checks.Numbers], *, tol: float = 1e-2) -> np.ndarray:
    r"""Returns the sharpness, the Hessian's largest eigenvalue $\lambda_0$, at each of some points, as along a path.

    Each search starts from the eigenvector of the one before.

    Args:
        objective: The loss.
        thetas: The points; real.
        tol: As for `top_eigenpairs`.

    Returns:
        A number for each; NaN where the Hessian isn't finite, or its eigenvalue wasn't found within the tolerance.

    Raises:
        ValueError: As `top_eigenpairs` does.

    Example:
        >>> import principalflow as pf
        >>> banana = pf.functions.banana()
        >>> path = pf.descend(banana, [1.0, 0.7], h=0.0017, steps=3)
        >>> pf.spectrum.sharpness(banana, path.thetas).round()
        array([1100.,  661.,  845.,  791.])
    """
    if not isinstance(thetas, Iterable) or isinstance(thetas, str | bytes):
        raise ValueError(f"thetas must be points one below the other, got {_checks.shown(thetas)}.")
    found, guess = [], None
    for theta in thetas:
        try:
            guess = top_eigenpairs(objective, theta, 1, guess=guess, tol=tol)
            found.append(float(guess.values[0]) if guess.converged else np.nan)
        except _checks.NonFiniteError:
            found.append(np.nan)
    return np.array(found)


def _solved(
    hessian: Hessian, k: int, guess: Any, tol: float, on_host: bool, also: Any = None, **options: Any
) -> tuple[Eigenpairs, Any]:
    """Returns the eigenpairs, and the Hessian times the vector `also`, whose product serves both."""
    start = _start(hessian, k, guess)
    product, beside = hessian, nullcontext()
    if _checks.flag("on_host", on_host) or hessian.on_cpu:
        # NumPy shares the memory, and unlike JAX it has nothing to compile for the many small operations.
        start, also = _mapped(start, np.asarray), None if also is None else np.asarray(also)
        product = lambda V: np.stack([np.asarray(hessian(jnp.asarray(v))) for v in V.T], axis=1)  # noqa: E731
    if hessian.on_cpu:
        product, beside = lambda V: hessian.times_rows(V.T).T, _QUIET
    with beside, _checks.renamed(product="the Hessian at theta"):
        eig, along = block_eigenpairs_and_product(product, start, k, tol=tol, also=also, **options)
    eig = _mapped(eig, lambda rows: hessian.put(jnp.asarray(rows)))
    return eig, None if along is None else jnp.asarray(along)


class _Quiet:
    """Keeps NumPy's BLAS on one thread while searches run: idle ones spin, and take the cores from JAX's products.

    The last of several searches in threads of their own gives back what the first one found.
    """

    def __init__(self):
        self._lock, self._searches = Lock(), 0

    def __enter__(self) -> None:
        with self._lock:
            if not self._searches:
                self._limited = self._blas.limit(limits=1, user_api="blas")
            self._searches += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._searches -= 1
            if not self._searches:
                self._limited.restore_original_limits()

    @cached_property
    def _blas(self) -> ThreadpoolController:
        """What sets the threads; looking for it takes milliseconds."""
        return ThreadpoolController()


_QUIET = _Quiet()


def _start(hessian: Hessian, k: int, guess: Any) -> Any:
    """Returns the former result or the block to start from, for the selected parameters."""
    dtype, size = hessian.theta.dtype, hessian.theta.size
    if guess is None:
        columns = min(_checks.whole("k", k, least=1), hessian.size)
        # NumPy's, since JAX would compile a second for them.
        return jnp.asarray(np.random.default_rng(0).standard_normal((hessian.size, columns)), dtype)
    block = _checks.inexact("guess", guess.vectors if isinstance(guess, Eigenpairs) else guess)
    if block.ndim != 2 or block.shape[0] != size or jnp.iscomplexobj(block):
        given = f"{block.dtype}{block.shape}"
        raise ValueError(f"guess must be real with shape ({size}, m), vectors as columns, got {given}.")
    return _mapped(guess if isinstance(guess, Eigenpairs) else block, lambda rows: hessian.take(rows.astype(dtype)))


def _mapped(start: Any, change: Callable[[Any], Any]) -> Any:
    """Returns a block, or eigenpairs with their trail, with the large arrays changed."""
    if not isinstance(start, Eigenpairs):
        return change(start)
    return replace(start, vectors=change(start.vectors), trail=start.trail and start.trail.map(change))
