"""Truncated flows of backward error analysis: real, and as accurate as their order."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Inexact

from principalflow import _checks
from principalflow.flows._flow import Field, RateFlow, compiled_at_theta
from principalflow.objective import Objective, Vector


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


def _series(z: _checks.Numbers, order: int) -> Inexact[Array, "..."]:
    r"""Returns the series of the principal flow's coefficient up to its order, $-\sum_{p=0}^n z^p/(p+1)$."""
    z = _checks.finite_numbers("z", z)
    return -jnp.polyval(jnp.asarray(1 / np.arange(order + 1, 0, -1), z.dtype), z)
