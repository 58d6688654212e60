"""Discretisation drift: how far a step of descent, or a run, is from a flow."""

import warnings
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from principalflow import _checks
from principalflow._curvature import FINITE_DIFFERENCE_STEP, Curvature, checked_curvature
from principalflow.flows import Flow, NegativeGradient, as_flow, compare
from principalflow.objective import Objective, Vector, checked_theta
from principalflow.status import Status

__all__ = ["DriftWarning", "MomentumDrift", "estimate", "global_drift", "momentum", "per_iteration"]


class DriftWarning(UserWarning):
    """A flow or descent ended early, so that a drift is not known and is given as NaN.

    Attributes:
        status: How it ended.
    """

    def __init__(self, text: str, status: Status):
        super().__init__(text)
        self.status = status


def per_iteration(
    objective: Objective, theta: _checks.Numbers, h: float, *, flow: Flow | None = None, rtol: float = 1e-5
) -> float:
    r"""Returns the drift of one step of descent, $\|\theta - h g - \theta(h)\|$ with the flow started at $\theta$.

    For the negative gradient flow it is close to $\frac{h^2}2\|Hg\|$, which `estimate` gives at the price of one
    Hessian product (paper, theorem 6.1).

    Args:
        objective: The loss.
        theta: Where the step starts.
        h: Descent's learning rate.
        flow: The flow to measure against; the negative gradient flow if left out.
        rtol: Tolerance of the integration, relative to the length of the step.

    Returns:
        The distance; NaN, with a `DriftWarning` that says why, where the step or the flow ended early.

    Raises:
        ValueError: As `compare` does.

    Example:
        >>> import principalflow as pf
        >>> round(pf.drift.per_iteration(pf.functions.quadratic([[1.0]]), [1.0], h=0.1), 5)  # exp(-0.1) - 0.9
        0.00484
    """
    return float(_accumulated(objective, theta, h, 1, flow, rtol)[0])


def global_drift(
    objective: Objective,
    theta: _checks.Numbers,
    h: float,
    steps: int,
    *,
    flow: Flow | None = None,
    rtol: float = 1e-5,
) -> np.ndarray:
    r"""Returns the drift accumulated over a run, $\|\theta_n - \theta(nh)\|$ after each step n, both from one start.

    Args:
        objective: The loss.
        theta: The start of the run.
        h: Descent's learning rate.
        steps: How many steps of descent.
        flow: The flow to measure against; the negative gradient flow if left out.
        rtol: Tolerance of the integration, relative to the length of a step.

    Returns:
        The distances after steps 1 to `steps`; NaN, with a `DriftWarning` that says why, from where descent or the
        flow ended early. `compare` gives more: several flows at once, costs and statuses.

    Raises:
        ValueError: As `compare` does.

    Example:
        >>> import principalflow as pf
        >>> pf.drift.global_drift(pf.functions.quadratic([[1.0]]), [1.0], h=0.1, steps=3).round(4)
        array([0.0048, 0.0087, 0.0118])
    """
    return _accumulated(objective, theta, h, steps, flow, rtol)


def _accumulated(
    objective: Objective, theta: _checks.Numbers, h: float, steps: int, flow: Flow | None, rtol: float
) -> np.ndarray:
    followed = NegativeGradient() if flow is None else as_flow(flow)
    table = compare(objective, theta, h, steps, [followed], rtol=rtol, kinds=["global"])
    if len(table) < steps:  # what `compare` has after Ctrl-C
        raise KeyboardInterrupt
    drift = np.asarray(table["error"])
    if np.any(np.isnan(drift)):
        first = int(np.argmax(np.isnan(drift)))
        status, why = table[["status", "message"]].iloc[first]
        text = f"the drift from step {first + 1} on is not known: {why}."
        warnings.warn(DriftWarning(text, Status(status)), stacklevel=3)
    return drift


def estimate(objective: Objective, theta: _checks.Numbers, h: float, *, curvature: Curvature = "hvp") -> float:
    r"""Returns the estimate $\frac{h^2}2 \|Hg\|$ of the drift of one step against the negative gradient flow.

    It is the leading term of the drift: the error is $O(h^3)$ (paper, theorem 6.1; erratum 12).

    Args:
        objective: The loss.
        theta: Where the step starts.
        h: Descent's learning rate.
        curvature: `"hvp"` for the exact Hessian product; `"finite_difference"` for
            $(\nabla E(\theta + \epsilon g) - g)/\epsilon$ with $\epsilon = 0.01/\|g\|$, one more gradient.

    Returns:
        The estimate.

    Raises:
        ValueError: For an h not above 0, an unknown curvature, or a bad theta.

    Example:
        >>> import principalflow as pf
        >>> round(pf.drift.estimate(pf.functions.quadratic([[2.0]]), [1.0], h=0.1), 12)
        0.02
    """
    h, theta = _checks.rate("h", h), checked_theta(objective, theta)
    gradient = _gradient(objective, theta)
    return h**2 / 2 * float(jnp.linalg.norm(_curvature_times_gradient(objective, theta, gradient, curvature)))


@dataclass(frozen=True)
class MomentumDrift:
    r"""The drift of one step with momentum, as vectors that add up to `total`.

    Attributes:
        curvature: $\frac{h^2}{2(1-m)^2} H g$, the part that descent without momentum has too.
        alignment: $-m v - \frac{hm}{1-m} g$: how far the velocity is from the one that a constant gradient settles at.
    """

    curvature: Vector
    alignment: Vector

    @property
    def total(self) -> Vector:
        """The drift."""
        return self.curvature + self.alignment


def momentum(
    objective: Objective,
    theta: _checks.Numbers,
    velocity: _checks.Numbers,
    h: float,
    momentum: float,
    *,
    curvature: Curvature = "hvp",
) -> MomentumDrift:
    r"""Returns the drift of one step with momentum against the flow $\dot\theta = -\frac1{1-m}\nabla E$ (section A.10).

    The step is $v_t = m v_{t-1} - h g$, $\theta_t = \theta_{t-1} + v_t$, and the drift is the flow's end minus
    $\theta_t$, to second order in h. The paper prints $+m v$ where it must be $-m v$ (erratum 19).

    Args:
        objective: The loss.
        theta: $\theta_{t-1}$.
        velocity: $v_{t-1}$, zero at the start of a run.
        h: The learning rate.
        momentum: The momentum m, from 0 up to 1.
        curvature: As for `estimate`.

    Returns:
        A `MomentumDrift`.

    Raises:
        ValueError: For an h not above 0, a momentum outside [0, 1), or a bad theta or velocity.

    Example:
        >>> import principalflow as pf
        >>> bowl = pf.functions.quadratic([[2.0]])
        >>> drift = pf.drift.momentum(bowl, [1.0], [-2.0], h=0.1, momentum=0.9)  # v has settled at -h g / (1 - m)
        >>> drift.curvature.round(9)
        Array([2.], dtype=float64)
        >>> bool(abs(drift.alignment[0]) < 1e-15)
        True
    """
    h, m, theta = _checks.rate("h", h), _checks.fraction("momentum", momentum), checked_theta(objective, theta)
    gradient = _gradient(objective, theta)
    Hg = _curvature_times_gradient(objective, theta, gradient, curvature)
    velocity = objective.flat("velocity", velocity)
    _checks.finite("velocity", velocity)
    return MomentumDrift(h**2 / (2 * (1 - m) ** 2) * Hg, -m * velocity - h * m / (1 - m) * gradient)


def _gradient(objective: Objective, theta: _checks.Numbers) -> Vector:
    gradient = objective.gradient(theta)
    _checks.finite("the gradient at theta", gradient)
    return gradient


def _curvature_times_gradient(objective: Objective, theta: Vector, gradient: Vector, curvature: Curvature) -> Array:
    if checked_curvature(curvature) == "hvp":
        return objective.hvp(theta, gradient)
    length = jnp.linalg.norm(gradient)
    epsilon = FINITE_DIFFERENCE_STEP / jnp.where(length > 0, length, 1)
    ahead = objective.gradient(theta + epsilon * gradient)
    return (ahead - gradient) / epsilon
