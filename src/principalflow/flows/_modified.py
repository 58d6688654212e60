"""Truncated flows of backward error analysis: real, and as accurate as their order."""

from itertools import count
from math import comb
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Inexact

from principalflow import _checks, _loss
from principalflow._compiled import compiled
from principalflow.flows._flow import Field, RateFlow, compiled_at_theta
from principalflow.objective import Objective, Vector, checked_theta


class ImplicitGradientRegularization(RateFlow):
    r"""The IGR flow, $\dot\theta = -\nabla E - \frac h2 \nabla^2 E\,\nabla E$ (paper, eq. 3): one-step error $O(h^3)$.

    Args:
        h: The learning rate of the descent that is modelled.

    Raises:
        ValueError: For an h that isn't finite and above 0.

    Example:
        >>> import principalflow as pf
        >>> pf.flows.IGR(h=0.1).field(pf.functions.quadratic([[2.0]]), [1.0])
        Array([-2.2], dtype=float64)
    """

    def alpha(self, z: _checks.Numbers) -> Inexact[Array, "..."]:
        return _series(z, order=1)

    @compiled_at_theta
    def evaluate(self, objective: Objective, state: Vector) -> Field:
        gradient, product = objective.linearize(state)
        return Field.exact(-gradient - self.h / 2 * product(gradient), products=1)


class ThirdOrder(RateFlow):
    r"""The third-order flow (paper, eq. third_order_modified_vector_field): one-step error $O(h^4)$.

    $$\dot\theta = -g - \tfrac h2 H g - h^2\left(\tfrac13 H^2 g + \tfrac1{12}\, g^T (\nabla^3 E)\, g\right)$$

    The contraction is the whole vector $\nabla^3 E[g, g]$, cross terms included (erratum 6).

    Args:
        h: The learning rate of the descent that is modelled.

    Raises:
        ValueError: For an h that isn't finite and above 0.

    Example:
        >>> import principalflow as pf
        >>> pf.flows.ThirdOrder(h=0.3).field(pf.functions.quadratic([[1.0]]), [1.0])
        Array([-1.18], dtype=float64)
    """

    def alpha(self, z: _checks.Numbers) -> Inexact[Array, "..."]:
        return _series(z, order=2)

    @compiled_at_theta
    def evaluate(self, objective: Objective, state: Vector) -> Field:
        gradient, product = objective.linearize(state)
        once = product(gradient)
        third = objective.third(state, gradient, gradient)
        vector = -gradient - self.h / 2 * once - self.h**2 * (product(once) / 3 + third / 12)
        return Field.exact(vector, products=2, contractions=1)


class BackwardError(RateFlow):
    r"""The modified flow of any order n, every non-principal term included: one-step error $O(h^{n+2})$.

    The step of descent is $e^{h\,d/dt} = 1 + \Delta$, with $\Delta$ the forward difference along descent, so
    $h\,d/dt = \log(1+\Delta)$ and, with $\Delta\theta = -h g$,

    $$\dot\theta = \frac1h\sum_{k=1}^{n+1} \frac{(-1)^{k+1}}k \Delta^k\theta = -\sum_{j=0}^{n} w_j\, g(\theta_j),$$

    where $\theta_0 = \theta, \dots, \theta_n$ are iterates of descent from $\theta$: n + 1 gradients and no Hessian.
    Order 0 is the negative gradient flow; orders 1 and 2 differ from the IGR and third-order flows by terms
    beyond their order.

    The k-th difference doubles the rounding of the gradients k times over. The `error` of `evaluate` estimates what is
    left of it in the field, and the order ends where fewer than three digits would be known: 46 in double precision, 16
    in single.

    Args:
        h: The learning rate of the descent that is modelled.
        order: The power of h that the field is exact to, from 0 to 46.

    Raises:
        ValueError: For an h that isn't finite and above 0, an order that isn't a whole number from 0 to 46, or, at
            evaluation, an order above 16 in single precision.

    Example:
        >>> import principalflow as pf
        >>> bowl = pf.functions.quadratic([[1.0]])
        >>> pf.flows.BackwardError(h=0.3, order=2).field(bowl, [1.0]).round(12)
        Array([-1.18], dtype=float64)
    """

    order: int = eqx.field(
        static=True, converter=lambda order: _checks.whole("order", order, least=0, most=_most_order(np.float64))
    )

    remedy = "take a lower order, or double precision"

    def alpha(self, z: _checks.Numbers) -> Inexact[Array, "..."]:
        r"""Returns $-\sum_{p=0}^n z^p/(p+1)$ (paper, theorem 3.1)."""
        return _series(z, self.order)

    def evaluate(self, objective: Objective, state: Vector) -> Field:
        """Returns the field; its error is what rounding leaves: that of the largest gradient, amplified."""
        return self._evaluate(objective, checked_theta(objective, state))

    @_loss.needs("loss", "a gradient")
    @compiled
    def _evaluate(self, objective: Objective, theta: Vector) -> Field:
        most = _most_order(theta.dtype)
        if self.order > most:
            raise ValueError(
                f"order must be at most {most} in {theta.dtype}, got {self.order}: rounding would leave fewer than "
                "three digits of the field. Give float64 parameters, or take a lower order."
            )
        terms = range(self.order + 1)
        # w_j collects g(theta_j) over all differences: sum over k >= j of (-1)^j C(k, j) / (k + 1).
        weights = [(-1) ** j * sum(comb(k, j) / (k + 1) for k in terms[j:]) for j in terms]

        def add(sums, weight):
            theta, total, largest = sums
            gradient = objective.gradient(theta)
            largest = jnp.maximum(largest, jnp.max(jnp.abs(gradient)))
            return (theta - self.h * gradient, total - weight * gradient, largest), None

        start = theta, jnp.zeros_like(theta), jnp.zeros((), theta.real.dtype)
        (_, total, largest), _ = lax.scan(add, start, jnp.asarray(weights, theta.dtype))
        # Gradients further down are smaller, but their rounding is not: it is that of theta.
        lost = _rounding(self.order, theta.dtype) * largest / jnp.max(jnp.abs(total))
        error = jnp.where(largest == 0, 0, jnp.where(jnp.isnan(lost), jnp.inf, lost))
        return Field(total, 0, error, error <= _LARGEST_ROUNDING, gradients=self.order + 1)


# Where rounding alone leaves fewer than three digits.
_LARGEST_ROUNDING = 1e-3


def _series(z: _checks.Numbers, order: int) -> Inexact[Array, "..."]:
    r"""Returns the series of the principal flow's coefficient up to its order, $-\sum_{p=0}^n z^p/(p+1)$."""
    z = _checks.finite_numbers("z", z)
    return -jnp.polyval(jnp.asarray(1 / np.arange(order + 1, 0, -1), z.dtype), z)


def _rounding(order: int, dtype: Any) -> float:
    """Returns the rounding unit times the sum of |w_j|, by which the sum of gradients amplifies it."""
    return float(jnp.finfo(dtype).eps) * sum(2**k / (k + 1) for k in range(order + 1))


def _most_order(dtype: Any) -> int:
    return next(order for order in count() if _rounding(order + 1, dtype) > _LARGEST_ROUNDING)
