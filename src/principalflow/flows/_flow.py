"""What a flow is: a vector field over an objective, and a coefficient for every Hessian eigenvalue."""

import abc
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Inexact, PyTree

from principalflow import _checks, _loss
from principalflow._compiled import compiled
from principalflow.objective import Objective, Vector, checked_theta

# Prices in gradients, as forward and reverse mode have them: a product is a derivative of the gradient along one
# direction, a contraction of third derivatives one of a product, and a complex multiplication four real ones.
PRODUCT_COST, CONTRACTION_COST, COMPLEX_COST = 2, 4, 4


class Field(NamedTuple):
    """The vector field of a flow at one state, how well it is known, and what it took.

    Attributes:
        vector: The time derivative of the state.
        products: Hessian products spent.
        error: Estimated error of `vector`, relative to its norm; 0 where it is exact to rounding, infinite where
            `vector` is not finite.
        converged: Whether `error` is within what the flow was asked for.
        gradients: Gradients spent.
        contractions: Contractions of third derivatives spent.
    """

    vector: PyTree
    products: Any
    error: Float[Array, ""]
    converged: Bool[Array, ""]
    gradients: int = 1
    contractions: Any = 0

    @classmethod
    def exact(cls, vector: PyTree, products: Any = 0, contractions: Any = 0) -> "Field":
        """Returns a field that is exact to rounding, where it is finite."""
        finite = jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(vector)]))
        return cls(vector, products, jnp.where(finite, 0.0, jnp.inf), finite, contractions=contractions)

    @property
    def cost(self) -> Any:
        """The price in gradients at real parameters: a product is 2, a contraction 4, and complex ones 4 times that."""
        price = self.gradients + PRODUCT_COST * self.products + CONTRACTION_COST * self.contractions
        is_complex = any(jnp.iscomplexobj(leaf) for leaf in jax.tree.leaves(self.vector))
        return COMPLEX_COST * price if is_complex else price


class Flow(eqx.Module):
    """A continuous-time model of gradient descent.

    A flow may carry more state than the parameters: `start` makes the state, `evaluate` gives its
    derivative, `parameters` reads the modelled parameters off it. Here the state is theta.

    Attributes:
        is_complex: Whether the flow leaves the real numbers, so that it needs a holomorphic loss.
        remedy: What to try where the field's error is too large.
        jumps: Where the field may jump, and what to try then.
        period: How many steps of descent it models at a time.
    """

    is_complex = False
    period = 1
    remedy = "tighten the flow's rtol or raise its max_products"
    jumps = "the field may jump here"

    def advice(self, error: float) -> str:
        """Returns what to try where the field has this error, which is too large."""
        return self.remedy

    @property
    def fastest_decay(self) -> Any:
        """The rate of the fastest decay, for solvers whose steps are bounded by it; None where it isn't known."""
        return None

    @property
    def euler_step(self) -> Any:
        """The length of the Euler's steps that it is to be followed by; None where a solver may choose its steps."""
        return None

    def start(self, objective: Objective, theta: Vector) -> PyTree:
        """Returns the state of the flow at the beginning, at parameters `theta`."""
        return theta

    @abc.abstractmethod
    def evaluate(self, objective: Objective, state: PyTree) -> Field:
        """Returns the time derivative of `state`, with its error and what it took."""

    def field(self, objective: Objective, state: PyTree) -> PyTree:
        """Returns the time derivative of `state`."""
        return self.evaluate(objective, state).vector

    def parameters(self, state: PyTree) -> Vector:
        """Returns the modelled parameters of `state`."""
        return state

    def mean_loss(self, objective: Objective, state: PyTree) -> Inexact[Array, ""]:
        """Returns the loss, averaged over the oscillation that the state stands for, where the flow models one."""
        return objective.value(self.parameters(state))

    def at_step(self, objective: Objective, states: Sequence[PyTree], n: int) -> Vector:
        """Returns the iterate that it models after n steps, of its states at the steps up to there."""
        return self.parameters(states[-1])


def as_flow(value: Any, *kinds: type[Flow], name: str = "flow") -> Any:
    """Returns `value` if it is a flow, and of one of `kinds` if there are any, or raises a ValueError."""
    if isinstance(value, kinds or Flow):
        return value
    if isinstance(value, type) and issubclass(value, Flow):
        raise ValueError(f"{name} must be a flow, not its class: {value.__name__}(...), got {value.__name__}.")
    names = " or ".join(kind.__name__ for kind in kinds) or "flow"
    raise ValueError(f"{name} must be a {names} from principalflow.flows, got {_checks.shown(value)}.")


def compiled_at_theta(evaluate: Callable) -> Callable:
    """Compiles the field of a flow whose state is theta; its arguments are checked before JAX sees them."""
    jitted = _loss.needs("loss", _loss.PRODUCTS)(compiled(evaluate))

    @wraps(evaluate)
    def checked(self: Flow, objective: Objective, state: _checks.Numbers) -> Field:
        return jitted(self, objective, checked_theta(objective, state))

    return checked


class SpectralFlow(Flow):
    r"""A flow whose part in first and second derivatives is $\sum_i \alpha_i\,(\nabla E^T u_i)\,u_i$.

    On quadratics that is all of it (paper, table 1); elsewhere it may have terms in higher derivatives.
    """

    @abc.abstractmethod
    def alpha(self, z: _checks.Numbers) -> Inexact[Array, "..."]:
        r"""Returns the coefficient at $z = h\lambda$, elementwise (paper, table 1)."""

    @abc.abstractmethod
    def coefficients(self, lambdas: _checks.Numbers) -> Inexact[Array, "..."]:
        r"""Returns $\alpha_i$ for each Hessian eigenvalue: `alpha` at $z = h\lambda_i$, if the flow knows an h."""

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
        return lambdas * self.coefficients(lambdas)


class RateFlow(SpectralFlow):
    """A spectral flow that models descent at one learning rate.

    Attributes:
        h: The learning rate of the descent that is modelled.
    """

    h: float = eqx.field(converter=lambda h: _checks.rate("h", h))

    def coefficients(self, lambdas: _checks.Numbers) -> Inexact[Array, "..."]:
        z = self.h * _checks.inexact("lambdas", lambdas)
        _checks.finite("h*lambdas", z)
        return self.alpha(z)
