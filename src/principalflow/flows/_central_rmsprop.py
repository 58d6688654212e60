"""The central flow of RMSProp, whose metric follows the gradients, those of the oscillation included."""

from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Inexact, PyTree

from principalflow import _checks, _loss
from principalflow._compiled import compiled
from principalflow.flows._flow import Field, Flow
from principalflow.flows._held import NEAR, RESIDUAL, Pairs, Refined, covariance, positive, refined
from principalflow.objective import Objective, Vector, checked_theta
from principalflow.spectrum import top_eigenpairs


class CentralRMSPropState(NamedTuple):
    """What `CentralRMSProp` follows.

    Attributes:
        centre: The parameters.
        nu: The average of the squared gradients.
        directions: Unit vectors (D, k) in the coordinates P^(1/2) theta, the sharpest ones as they were found last.
    """

    centre: Vector
    nu: Vector
    directions: Float[Array, "D k"]


class CentralRMSProp(Flow):
    r"""The central flow of RMSProp (Cohen, Damian et al., arXiv 2410.24206): the mean of its iterates over time.

    RMSProp divides the gradient by the metric $P = (\sqrt\nu + \epsilon)/h$, with $\nu$ an average of its squares. One
    unit of time is a step. With $\Sigma = \sum X_{ij}\, u_i u_j^T$ the covariance of the oscillation,

    $$\dot\theta = -P^{-1}\Big(g + \tfrac12 \sum_{ij} X_{ij} \nabla(u_i^T H u_j)\Big), \qquad
      \dot\nu = \tfrac{1-\beta}\beta \big(g^2 + \mathrm{diag}(H \Sigma H) - \nu\big)$$

    where $H u_i = \lambda_i P u_i$ and $u_i^T P u_j = \delta_{ij}$. X is as in `Central`: positive semidefinite, zero
    away from the edge, which is at $\lambda = 2$, and no larger than it takes to keep $2P - H$ positive semidefinite
    along the $u_i$. One unit of time is a step. `pf.integrate` takes Euler's steps of `substep`, as for `Central`;
    start it where the sharpness is about 2 or below.

    `nu` and P are those of `torch.optim.RMSprop`, and of `optax.rmsprop` with `eps_in_sqrt=False`.

    Args:
        h: The learning rate.
        decay: $\beta$, the weight of the former average.
        eps: $\epsilon$, which is added to the root.
        nu: The average at the start, to follow a run from where it is: that of the steps before, flat or as the
            parameters are; zero by default. The gradient at the start is averaged into it, as the next step does.
        k: How many of the sharpest directions to track.
        substep: The part of a step that one step of the solver is.

    Raises:
        ValueError: For an h or an eps that isn't finite and above 0, a decay that isn't between 0 and 1, k below 1, a
            substep that isn't above 0, or, at the start, a nu that doesn't fit the parameters or is below 0.

    Example:
        >>> import jax.numpy as jnp
        >>> import principalflow as pf
        >>> loss = lambda w: 5 * w[0] ** 2 + w[1] ** 2
        >>> objective = pf.Objective(loss, jnp.array([1.0, 1.0]))
        >>> flow = pf.flows.CentralRMSProp(h=0.01, decay=0.9, k=1)
        >>> solution = pf.integrate(flow, objective, objective.theta, 50)
        >>> print(solution.theta.round(1))  # signs alone count
        [0.5 0.5]
    """

    h: float = eqx.field(converter=lambda h: _checks.rate("h", h))
    decay: float = eqx.field(kw_only=True, default=0.99, converter=lambda decay: _checks.tolerance("decay", decay))
    eps: float = eqx.field(kw_only=True, default=1e-8, converter=lambda eps: _checks.positive("eps", eps))
    nu: PyTree = eqx.field(kw_only=True, default=None)
    k: int = eqx.field(static=True, kw_only=True, default=4, converter=lambda k: _checks.whole("k", k, least=1))
    substep: float = eqx.field(kw_only=True, default=0.25, converter=lambda part: _checks.positive("substep", part))

    remedy = "track fewer directions, by k"

    @property
    def euler_step(self) -> Any:
        """The part of a step that is looked ahead."""
        return self.substep

    def start(self, objective: Objective, theta: Vector) -> CentralRMSPropState:
        """Returns the state at the beginning."""
        former = jnp.zeros_like(theta) if self.nu is None else objective.flat("nu", self.nu).astype(theta.dtype)
        _checks.finite("nu", former)
        if jnp.any(former < 0):
            raise ValueError("nu must be an average of squares, at least 0 throughout, and is below 0 somewhere.")
        nu = self.decay * former + (1 - self.decay) * objective.gradient(theta) ** 2
        k = min(self.k, theta.size)
        pairs = top_eigenpairs(objective, theta, k, tol=RESIDUAL, preconditioner=self.metric(nu))
        return CentralRMSPropState(theta, nu, jnp.asarray(pairs.vectors, theta.dtype))

    def evaluate(self, objective: Objective, state: CentralRMSPropState) -> Field:
        """Returns the field; directions move to where they are found in one step of the solver."""
        return _evaluate(self, objective, state)

    def parameters(self, state: CentralRMSPropState) -> Vector:
        """Returns the centre."""
        return state.centre

    def metric(self, nu: Vector) -> Vector:
        """Returns P, the diagonal that gradients are divided by, of an average of squared gradients."""
        return (jnp.sqrt(nu) + self.eps) / self.h

    def centre(self, objective: Objective, state: CentralRMSPropState) -> Vector:
        """Returns the parameters, which are those of the mean path."""
        return state.centre

    def covariance(self, objective: Objective, state: CentralRMSPropState) -> Float[Array, "k k"]:
        """Returns X, the covariance of the oscillation along the directions of the state as they are found anew."""
        return _found(self, objective, state)[1]

    def mean_loss(self, objective: Objective, state: CentralRMSPropState) -> Inexact[Array, ""]:
        """Returns the loss, averaged over the oscillation: that of the centre and the trace of X."""
        return objective.value(state.centre) + jnp.trace(self.covariance(objective, state))


@_loss.needs("loss", _loss.PRODUCTS)
@compiled
def _evaluate(flow: CentralRMSProp, objective: Objective, state: CentralRMSPropState) -> Field:
    found, _, (centre, nu) = _found(flow, objective, state)
    turned = (found.turned(state.directions) - state.directions) / flow.substep
    contractions = jnp.sum(Pairs.of(found.values.size).of_both(found.values > NEAR))
    return Field.exact(CentralRMSPropState(centre, nu, turned), found.products, contractions)


@_loss.needs("loss", _loss.PRODUCTS)
@compiled
def _found(
    flow: CentralRMSProp, objective: Objective, state: CentralRMSPropState
) -> tuple[Refined, Float[Array, "k k"], tuple[Vector, Vector]]:
    """Returns the directions, the covariance along them, and what both make of the parameters and of nu."""
    theta, nu = checked_theta(objective, state.centre, half=False), state.nu
    gradient, product = objective.linearize(theta)
    P = flow.metric(nu)
    found = refined(lambda v: product(v / jnp.sqrt(P)) / jnp.sqrt(P), state.directions)
    k, near = found.values.size, found.values > NEAR
    pairs, rate = Pairs.of(k), (1 - flow.decay) / flow.decay
    stable = -gradient / P, rate * (gradient**2 - nu)

    def at_edge() -> tuple[Array, tuple[Vector, Vector]]:
        U = found.vectors / jnp.sqrt(P)[:, None]
        HU = P[:, None] * U * found.values
        both = lambda V: (V[:, pairs.first] * V[:, pairs.second]).T  # noqa: E731
        thirds = pairs.thirds(objective, theta, U, near)
        # What each entry of X adds to theta and to nu, and what these do to U^T (2P - H) U.
        theta_of, nu_of = -thirds / (2 * P), rate * both(HU)
        slope = jnp.where(nu > 0, 1 / (2 * flow.h * jnp.sqrt(jnp.where(nu > 0, nu, 1))), 0)
        by_nu = 2 * both(U) * slope
        # One substep ahead it is A + B[X], over the length of the substep.
        A = jnp.diag((2 - found.values) / flow.substep) + pairs.matrix(by_nu @ stable[1] - thirds @ stable[0])
        B = pairs.operator(by_nu @ nu_of.T - thirds @ theta_of.T)
        X = covariance(A, positive(B.reshape(k * k, k * k)).reshape(B.shape), near)
        return X, (stable[0] + pairs.total(X, theta_of), stable[1] + pairs.total(X, nu_of))

    def below() -> tuple[Array, tuple[Vector, Vector]]:
        return jnp.zeros((k, k), theta.dtype), stable

    return found, *lax.cond(jnp.any(near), at_edge, below)
