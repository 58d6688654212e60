"""The gradient flows, which know no learning rate."""

import jax.numpy as jnp
from jaxtyping import Array, Inexact

from principalflow import _checks
from principalflow.flows._flow import Field, SpectralFlow, compiled_at_theta
from principalflow.objective import Objective, Vector


class _GradientFlow(SpectralFlow):
    _sign = -1.0

    def alpha(self, z: _checks.Numbers) -> Inexact[Array, "..."]:
        return jnp.full_like(_checks.finite_numbers("z", z), self._sign)

    def coefficients(self, lambdas: _checks.Numbers) -> Inexact[Array, "..."]:
        lambdas = _checks.inexact("lambdas", lambdas)
        _checks.finite("lambdas", lambdas)
        return jnp.full_like(lambdas, self._sign)

    @compiled_at_theta
    def evaluate(self, objective: Objective, state: Vector) -> Field:
        return Field.exact(self._sign * objective.gradient(state))


class NegativeGradient(_GradientFlow):
    r"""The negative gradient flow, $\dot\theta = -\nabla E$ (paper, eq. 2): order 0, one-step error $O(h^2)$.

    Example:
        >>> import principalflow as pf
        >>> pf.flows.NegativeGradient().field(pf.functions.quadratic([[3.0]]), [1.0])
        Array([-3.], dtype=float64)
    """


class PositiveGradient(_GradientFlow):
    r"""The positive gradient flow, $\dot\theta = +\nabla E$, along which the loss rises (paper, section 5).

    Example:
        >>> import principalflow as pf
        >>> pf.flows.PositiveGradient().field(pf.functions.quadratic([[3.0]]), [1.0])
        Array([3.], dtype=float64)
    """

    _sign = 1.0
