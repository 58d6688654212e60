"""What governs the stability of gradient descent: stability coefficients, predictions, critical points."""

import math
from dataclasses import dataclass, field
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Inexact

from principalflow import _checks
from principalflow._batch_sharpness import BatchSharpness, BatchThresholds, batch_sharpness, batch_thresholds
from principalflow.flows import FlippedDirection, SpectralFlow, as_flow, phi
from principalflow.objective import Objective, Vector, checked_theta
from principalflow.spectrum import Eigenpairs, eigenpairs_and_gradient

__all__ = [
    "BatchSharpness",
    "BatchThresholds",
    "CriticalPoint",
    "LossChange",
    "Measured",
    "Stability",
    "analyse",
    "batch_sharpness",
    "batch_thresholds",
    "critical_point",
    "formulas",
    "measure",
    "overlaps",
    "predict_projection",
    "progress_ratio",
    "relative_progress",
]

Regime = Literal["real stable", "complex stable", "unstable"]


@dataclass(frozen=True)
class LossChange:
    r"""How one step of descent should change the loss, by the Hessian and gradient before it.

    `continuous` is the rate of the real part of the loss under the principal flow times h, $h\,\mathrm{Re}\,
    \alpha_{PF}(h\lambda_i)\,(\nabla E^T u_i)^2$ (paper, eq. changes_in_e); `discrete` is descent's change to second
    order, $-h(1 - \frac{h\lambda_i}2)(\nabla E^T u_i)^2$ (section A.8.1, erratum 3).

    Attributes:
        continuous: For each direction.
        discrete: For each direction.
        total_continuous: Over all directions; what the gradient has beyond the k ones is taken at its mean curvature.
        total_discrete: Over all directions, exactly $-h\|g\|^2 + \frac{h^2}2 g^T H g$.

    Where a square or product in them is beyond the largest number, as in a run that diverges, they are infinite or NaN.
    """

    continuous: np.ndarray
    discrete: np.ndarray
    total_continuous: float
    total_discrete: float


@dataclass(frozen=True)
class Stability:
    r"""Where descent stands at one point of training, in the directions of largest curvature.

    Attributes:
        loss: $E$.
        gradient: $g$.
        eigenvalues: The largest eigenvalues $\lambda_i$ of the Hessian.
        vectors: Their eigenvectors $u_i$ (D, k), with signs such that $g^T u_i \ge 0$.
        projections: $g^T u_i$, not negative.
        coefficients: The stability coefficients $sc_i = \frac{\log(1-h\lambda_i)}{h\lambda_i} g^T u_i$, complex.
        regimes: For each direction "real stable" ($h\lambda < 1$), "complex stable" (up to 2) or "unstable".
        loss_change: The predicted change of the loss in one step.
        drift: $\frac{h^2}2 \|Hg\|$, the estimated distance of one step from the negative gradient flow.
        eigenpairs: The eigenpairs as they were found, with their residuals and the Hessian products spent.
    """

    loss: float
    gradient: Vector = field(repr=False)
    eigenvalues: np.ndarray
    vectors: Inexact[Array, "D k"] = field(repr=False)
    projections: np.ndarray
    coefficients: np.ndarray
    regimes: tuple[Regime, ...]
    loss_change: LossChange
    drift: float
    eigenpairs: Eigenpairs = field(repr=False)


def analyse(
    objective: Objective,
    theta: _checks.Numbers,
    h: float,
    *,
    k: int = 4,
    guess: "Stability | Eigenpairs | Array | None" = None,
    tol: float = 1e-3,
) -> Stability:
    r"""Returns what the principal flow says of descent's stability at `theta` (paper, sections 3.1 and 5).

    The gradient joins the basis of the eigensolver, so the drift's product $Hg$ costs nothing beyond it.

    Args:
        objective: The loss.
        theta: Where; real.
        h: Descent's learning rate.
        k: How many directions; all, where there are fewer.
        guess: A nearby analysis, its eigenpairs, or a block of vectors (D, m) to start from.
        tol: The eigenpairs' residual, relative to the largest |eigenvalue|.

    Returns:
        A `Stability`.

    Raises:
        ValueError: For an h not above 0, a k below 1, or as `spectrum.top_eigenpairs` does.

    Example:
        >>> import jax.numpy as jnp
        >>> import principalflow as pf
        >>> bowl = pf.functions.quadratic(jnp.diag(jnp.array([1.0, 3.0, 5.0])))
        >>> s = pf.stability.analyse(bowl, jnp.ones(3), h=0.5)
        >>> s.regimes
        ('unstable', 'complex stable', 'real stable')
        >>> s.projections
        array([5., 3., 1.])
        >>> s.coefficients.round(2)
        array([ 0.81+6.28j, -1.39+6.28j, -1.39+0.j  ])
    """
    h, k = _checks.rate("h", h), _checks.whole("k", k, least=1)
    guess = guess.eigenpairs if isinstance(guess, Stability) else guess
    m = measure(objective, theta, k, guess=guess, tol=tol)
    vectors = m.eigenpairs.vectors
    return Stability(
        loss=m.loss,
        gradient=m.gradient,
        eigenvalues=m.eigenpairs.values,
        vectors=vectors * jnp.asarray(m.signs, vectors.dtype),
        projections=m.projections,
        eigenpairs=m.eigenpairs,
        **formulas(h, m),
    )


@dataclass(frozen=True)
class Measured:
    """What stability follows from at one point: arrays of JAX or of PyTorch, and plain numbers of them."""

    loss: float
    gradient: Any
    eigenpairs: Eigenpairs
    projections: np.ndarray
    signs: np.ndarray
    gradient_norm: float  # of the gradient itself; the others are those of the metric in which it was measured
    gradient_square: float  # g.g
    gradient_curvature: float  # g.Hg
    product_norm: float  # |Hg|
    eps: float  # the rounding unit that it was measured in

    @classmethod
    def of(
        cls, loss: float, gradient: Any, Hg: Any, eigenpairs: Eigenpairs, eps: float, norm: float | None = None
    ) -> "Measured":
        """Takes the numbers, with signs for the eigenvectors such that no projection is negative.

        In an optimiser's metric P the gradient is $P^{-1/2} g$, and `norm` is that of g.
        """
        signed = overlaps(eigenpairs.vectors, gradient)
        projections, signs = np.abs(signed), np.where(signed < 0, -1.0, 1.0)
        g_g, g_Hg, Hg_Hg = float(gradient @ gradient), float(gradient @ Hg), float(Hg @ Hg)
        norm = math.sqrt(g_g) if norm is None else norm
        return cls(loss, gradient, eigenpairs, projections, signs, norm, g_g, g_Hg, math.sqrt(Hg_Hg), eps)


def overlaps(vectors: Any, v: Any) -> np.ndarray:
    """Returns the inner product of v with each column, as NumPy's numbers whatever made them."""
    return np.array((vectors.T @ v).tolist())


def measure(objective: Objective, theta: _checks.Numbers, k: int, **options: Any) -> Measured:
    """Returns what the stability at `theta` follows from, at whatever learning rate.

    The options are those of `spectrum.eigenpairs_and_gradient`.
    """
    theta = checked_theta(objective, theta, half=False)
    in_metric = "preconditioner" in options
    loss, plain = objective.value_and_gradient(theta) if in_metric else (objective.value(theta), None)
    _checks.finite("the loss at theta", loss)
    k = min(k, theta.size)
    eigenpairs, gradient, Hg = eigenpairs_and_gradient(objective, theta, k, **options)
    norm = None if plain is None else float(jnp.linalg.norm(plain))
    return Measured.of(float(loss), gradient, Hg, eigenpairs, float(jnp.finfo(gradient.dtype).eps), norm)


def formulas(h: float, m: Measured) -> dict[str, Any]:
    """Returns those attributes of a `Stability` that are formulas in h and the numbers that were measured."""
    eigenvalues, rest, mean = m.eigenpairs.values, *_rest(m)
    alpha = np.asarray(phi(h * np.append(eigenvalues, mean), "continuous"))
    return dict(
        coefficients=alpha[:-1] * m.projections,
        regimes=tuple(_regime(h * value) for value in eigenvalues),
        loss_change=_loss_change(h, m, rest, np.real(alpha)),
        drift=h * h / 2 * m.product_norm,
    )


def predict_projection(
    flow: SpectralFlow, lambdas: _checks.Numbers, projection: _checks.Numbers, time: float
) -> Inexact[Array, "..."]:
    r"""Returns the flow's prediction of $\nabla E^T u$ after `time` (paper, section 4.1).

    Where $\lambda$ and $u$ stay as they are, $\frac{d}{dt}\nabla E^T u = \lambda\,\alpha(h\lambda)\,\nabla E^T u$, so
    $x(t) = x(0)\, e^{\lambda\alpha(h\lambda) t}$. After one learning rate the principal flow gives
    $(1-h\lambda)\,x(0)$, complex in between where $h\lambda > 1$.

    Args:
        flow: A flow with a coefficient for every eigenvalue: `NegativeGradient()`, `IGR(h)`, `Principal(h)` and so on.
        lambdas: The eigenvalue, or several.
        projection: $\nabla E^T u$ at the start, for each.
        time: How long; h for one step of descent.

    Returns:
        The predictions; complex under the principal flow, infinite where they are beyond the largest number.

    Raises:
        ValueError: For a flow that has no such coefficients, numbers that aren't finite, shapes that differ, or a time
            below 0.

    Example:
        >>> import principalflow as pf
        >>> pf.stability.predict_projection(pf.flows.Principal(h=0.5), [5.0], [1.0], time=0.5).real.round(12)
        Array([-1.5], dtype=float64)
        >>> pf.stability.predict_projection(pf.flows.NegativeGradient(), [5.0], [1.0], time=0.5).round(3)
        Array([0.082], dtype=float64)
    """
    as_flow(flow, SpectralFlow)
    lambdas, projection = _checks.finite_numbers("lambdas", lambdas), _checks.finite_numbers("projection", projection)
    if lambdas.shape != projection.shape and lambdas.ndim and projection.ndim:
        raise ValueError(
            f"lambdas and projection must have the same shape, got {lambdas.shape} and {projection.shape}."
        )
    time = _checks.non_negative("time", time)
    predicted = projection * jnp.exp(flow.jacobian_eigenvalues(lambdas) * time)
    predicted = jnp.where(jnp.isnan(predicted), jnp.inf, predicted)  # a complex infinity
    return jnp.where((projection == 0) | (time == 0), projection, predicted)


@dataclass(frozen=True)
class CriticalPoint:
    """How a flow behaves next to a critical point.

    Attributes:
        kind: What the point is to the loss, by the eigenvalues given: "minimum", "maximum", "saddle", or "degenerate"
            if some are zero within the tolerance and the others of one sign.
        jacobian_eigenvalues: The eigenvalues of the flow's Jacobian, one for each eigenvalue of the Hessian.
        attractive: For each direction, whether the flow is drawn to the point along it: a negative real part, for every
            curvature within the tolerance.
        repulsive: For each direction, whether it is driven away (positive real part). Neither, where the curvature is
            not known well enough to tell, as at 0 and under the principal flow at 2/h.
        is_attractive: Whether the flow is drawn to the point along all of them.
    """

    kind: Literal["minimum", "maximum", "saddle", "degenerate"]
    jacobian_eigenvalues: np.ndarray
    attractive: np.ndarray
    repulsive: np.ndarray
    is_attractive: bool


def critical_point(
    flow: SpectralFlow | FlippedDirection, lambdas: _checks.Numbers, *, tol: float | None = None
) -> CriticalPoint:
    r"""Returns whether `flow` is drawn to a critical point, and along which directions (paper, section 3.2).

    The Jacobian's eigenvalues there are $\lambda\,\alpha(h\lambda)$. The principal flow's, $\frac1h\log(1-h\lambda)$,
    have a positive real part where $\lambda < 0$ and where $\lambda > 2/h$: like descent, it leaves sharp minima.

    Args:
        flow: Any flow with `jacobian_eigenvalues`.
        lambdas: The Hessian's eigenvalues at the critical point, real; all of them, or those of interest. The few
            largest alone can't tell a saddle from a minimum: add the smallest (`top_eigenpairs(which="smallest")`).
        tol: How well the eigenvalues are known, relative to the largest |eigenvalue|; up to there one counts as zero.
            Left out, what a dense eigensolver leaves of a zero: as many rounding units as there are eigenvalues, and
            at least ten. For eigenvalues of `top_eigenpairs` give its `tol`.

    Returns:
        The `CriticalPoint`.

    Raises:
        ValueError: For a flow without `jacobian_eigenvalues`, lambdas that aren't a vector of finite real numbers, or a
            tol below 0 or from 1.

    Example:
        >>> import principalflow as pf
        >>> point = pf.stability.critical_point(pf.flows.Principal(h=0.5), [5.0, 1.0])
        >>> point.kind, point.is_attractive, point.attractive
        ('minimum', False, array([False,  True]))
        >>> pf.stability.critical_point(pf.flows.NegativeGradient(), [5.0, 1.0]).is_attractive
        True
        >>> pf.stability.critical_point(pf.flows.NegativeGradient(), [3.0, 0.0, -6e-16]).kind
        'degenerate'
    """
    as_flow(flow, SpectralFlow, FlippedDirection)
    values = _checks.inexact("lambdas", lambdas)
    if jnp.iscomplexobj(values) or values.ndim != 1 or not values.size:
        raise ValueError(f"lambdas must be a vector of one or more real numbers, got {values.dtype}{values.shape}.")
    _checks.finite("lambdas", values)
    eps = float(jnp.finfo(values.dtype).eps)
    tol = eps * max(10, values.size) if tol is None else _checks.fraction("tol", tol)
    zero = tol * jnp.max(jnp.abs(values))
    near = [np.asarray(flow.jacobian_eigenvalues(x)) for x in (values, values - zero, values + zero)]
    attractive, repulsive = np.all(np.real(near) < 0, axis=0), np.all(np.real(near) > 0, axis=0)
    kind = _kind(np.asarray(values), float(zero))
    return CriticalPoint(kind, near[0], attractive, repulsive, bool(np.all(attractive)))


def relative_progress(objective: Objective, theta: _checks.Numbers, h: float) -> float:
    r"""Returns the relative progress ratio of Ahn et al. 2022, $\frac{E(\theta - hg) - E(\theta)}{h\|g\|^2}$.

    To second order it is $-1 + \frac h2 \frac{g^T H g}{\|g\|^2}$: close to -1 where descent follows the gradient flow,
    and about 0 at the edge of stability (paper, related work; erratum 18).

    Args:
        objective: The loss.
        theta: Where.
        h: Descent's learning rate.

    Returns:
        The ratio; NaN where the gradient is zero, or so small that the change is within the rounding of the loss, or
        where its square is beyond the largest number; infinite where the loss after the step is not finite.

    Raises:
        ValueError: For an h not above 0, a bad theta, or a loss or gradient that isn't finite there.

    Example:
        >>> import principalflow as pf
        >>> pf.stability.relative_progress(pf.functions.quadratic([[1.0]]), [1.0], h=2.0)
        0.0
    """
    h = _checks.rate("h", h)
    theta = checked_theta(objective, theta)
    if jnp.iscomplexobj(theta):
        raise ValueError(f"theta must be real, got {theta.dtype}.")
    loss, gradient = objective.value_and_gradient(theta)
    _checks.finite("the loss at theta", loss)
    _checks.finite("the gradient at theta", gradient)
    next_loss = float(objective.value(theta - h * gradient))
    return progress_ratio(h, float(loss), next_loss, float(gradient @ gradient), float(jnp.finfo(theta.dtype).eps))


def _regime(z: float) -> Regime:
    if z < 1:
        return "real stable"
    return "complex stable" if z <= 2 else "unstable"


@np.errstate(over="ignore", invalid="ignore")  # a run that diverges passes through the largest numbers
def _rest(m: Measured) -> tuple[float, float]:
    """Returns the square of the gradient beyond the k directions, and its mean curvature there, the k-th at most."""
    squares, eigenvalues = m.projections**2, m.eigenpairs.values
    rest = max(m.gradient_square - squares.sum(), 0.0)
    along = m.gradient_curvature - np.sum(eigenvalues * squares)
    return rest, min(along / rest, eigenvalues[-1]) if rest > 0 else 0.0


@np.errstate(over="ignore", invalid="ignore")
def _loss_change(h: float, m: Measured, rest: float, alpha: np.ndarray) -> LossChange:
    squares, eigenvalues = m.projections**2, m.eigenpairs.values
    g_g, g_Hg = m.gradient_square, m.gradient_curvature
    continuous, discrete = h * alpha[:-1] * squares, -h * (1 - h * eigenvalues / 2) * squares
    total_continuous = float(continuous.sum() + h * alpha[-1] * rest)
    return LossChange(continuous, discrete, total_continuous, -h * g_g + h * h / 2 * g_Hg)


def progress_ratio(h: float, loss: float, next_loss: float, g_g: float, eps: float) -> float:
    """The change of the loss over the gradient flow's to first order; NaN where that is within rounding or infinite."""
    if not eps * abs(loss) < h * g_g < math.inf:
        return math.nan
    change = next_loss - loss
    return (change if math.isfinite(change) else math.inf) / (h * g_g)


def _kind(eigenvalues: np.ndarray, zero: float) -> Literal["minimum", "maximum", "saddle", "degenerate"]:
    up, down = np.any(eigenvalues > zero), np.any(eigenvalues < -zero)
    if up and down:
        return "saddle"
    if np.any(np.abs(eigenvalues) <= zero):
        return "degenerate"
    return "minimum" if up else "maximum"
