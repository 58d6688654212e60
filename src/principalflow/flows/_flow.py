"""What a flow is: a vector field over an objective, and a coefficient for every Hessian eigenvalue."""

import abc
from collections.abc import Callable
from functools import wraps
from typing import Any

import equinox as eqx
from jaxtyping import Array, Inexact, PyTree

from principalflow import _checks, _loss
from principalflow._compiled import compiled
from principalflow.objective import Objective, Vector, checked_theta


class Flow(eqx.Module):
    """A continuous-time model of gradient descent.

    A flow may carry more state than the parameters: `start` makes the state, `field` gives its
    derivative, `parameters` reads the modelled parameters off it. Here the state is theta.

    Attributes:
        is_complex: Whether the flow leaves the real numbers, so that it needs a holomorphic loss.
        remedy: What to try where `field_error` is too large.
    """

    is_complex = False
    remedy = "tighten the flow's rtol or raise its max_products"

    def start(self, objective: Objective, theta: Vector) -> PyTree:
        """Returns the state of the flow at the beginning, at parameters `theta`."""
        return theta

    @abc.abstractmethod
    def field(self, objective: Objective, state: PyTree) -> PyTree:
        """Returns the time derivative of `state`."""

    def parameters(self, state: PyTree) -> Vector:
        """Returns the modelled parameters of `state`."""
        return state

    def field_error(self, objective: Objective, state: PyTree) -> Array | None:
        """Returns the relative error estimate of `field` at `state`, or None if it is exact to rounding."""
        return None


def as_flow(value: Any, *kinds: type[Flow], name: str = "flow") -> Any:
    """Returns `value` if it is a flow, and of one of `kinds` if there are any, or raises a ValueError."""
    if isinstance(value, kinds or Flow):
        return value
    if isinstance(value, type) and issubclass(value, Flow):
        raise ValueError(f"{name} must be a flow, not its class: {value.__name__}(...), got {value.__name__}.")
    names = " or ".join(kind.__name__ for kind in kinds) or "flow"
    raise ValueError(f"{name} must be a {names} from principalflow.flows, got {_checks.shown(value)}.")


def compiled_field(field: Callable) -> Callable:
    """Compiles the field of a flow whose state is theta; its arguments are checked before JAX sees them."""
    jitted = _loss.needs("loss", _loss.PRODUCTS)(compiled(field))

    @wraps(field)
    def checked(self: Flow, objective: Objective, state: _checks.Numbers) -> Vector:
        return jitted(self, objective, checked_theta(objective, state))

    return checked


class SpectralFlow(Flow):
    r"""A flow whose part in first and second derivatives is $\sum_i \alpha(h\lambda_i)\,(\nabla E^T u_i)\,u_i$.

    On quadratics that is all of it (paper, table 1); elsewhere it may have terms in higher derivatives.
    """

    @abc.abstractmethod
    def alpha(self, z: _checks.Numbers) -> Inexact[Array, "..."]:
        r"""Returns the coefficient at $z = h\lambda$, elementwise (paper, table 1)."""

    def jacobian_eigenvalues(self, lambdas: _checks.Numbers) -> Inexact[Array, "..."]:
        r"""Returns $\lambda\,\alpha(h\lambda)$: the Jacobian's eigenvalues at a critical point (paper, A.4).

        The point is attractive in the directions where the real part is negative.

        Args:
            lambdas: Eigenvalues of the Hessian at the critical point, real or complex.

        Example:
            >>> import principalflow as pf
            >>> pf.flows.IGR(h=0.1).jacobian_eigenvalues([2.0])
            Array([-2.2], dtype=float64)
        """
        lambdas = _checks.inexact("lambdas", lambdas)
        z = self.learning_rate * lambdas
        _checks.finite("h * lambdas", z)
        return lambdas * self.alpha(z)

    @property
    @abc.abstractmethod
    def learning_rate(self) -> float:
        """The learning rate h that turns an eigenvalue into z; flows that know none take 1."""


class RateFlow(SpectralFlow):
    """A spectral flow that models descent at one learning rate.

    Attributes:
        h: The learning rate of the descent that is modelled.
    """

    h: float = eqx.field(converter=lambda h: _checks.rate("h", h))

    @property
    def learning_rate(self) -> float:
        return self.h
