"""The central flow: the mean path of descent at the edge of stability, where the sharpness is held at 2/h."""

from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Inexact

from principalflow import _checks, _loss
from principalflow._compiled import compiled
from principalflow.flows._flow import Field, Flow
from principalflow.flows._held import NEAR, RESIDUAL, Pairs, Refined, covariance, refined
from principalflow.objective import Objective, Vector, checked_theta
from principalflow.spectrum import top_eigenpairs


class CentralState(NamedTuple):
    """What `Central` follows.

    Attributes:
        centre: The parameters.
        directions: Unit vectors (D, k), the sharpest directions as they were found last.
    """

    centre: Vector
    directions: Float[Array, "D k"]


class Central(Flow):
    r"""The central flow of descent (Cohen, Damian et al., arXiv 2410.24206): the mean of its iterates over time.

    $$\dot\theta = -g - \tfrac12 \sum_{ij} X_{ij} \nabla(u_i^T H u_j)$$

    with $u_i$ the directions whose sharpness is at $2/h$, and X the covariance of the oscillation along them: the
    positive semidefinite matrix that keeps $2/h - u_i^T H u_j$ positive semidefinite, and is zero where that isn't.
    Away from the edge it is the negative gradient flow. It has no oscillation, and so no spikes: they are averaged out.

    The sharpness is held by looking one step of the solver ahead. So `pf.integrate` takes Euler's steps of h times
    `substep`; its authors' are of h/4. Start it where the sharpness is about 2/h or below: from further above, as in
    the midst of a spike, it is at 2/h within a step, and the covariance that takes it there is far too large.

    Args:
        h: The learning rate of the descent that is modelled.
        k: How many of the sharpest directions to track.
        substep: The part of h that one step of the solver is.

    Raises:
        ValueError: For an h that isn't finite and above 0, k below 1, or a substep that isn't above 0.

    Example:
        >>> import jax.numpy as jnp
        >>> import principalflow as pf
        >>> loss = lambda w: w[1] * w[0] ** 2 / 2 - w[1] / 1000  # the curvature y grows until it is held at 2/h
        >>> objective, flow = pf.Objective(loss, jnp.array([0.0, 1.99])), pf.flows.Central(h=1.0, k=1)
        >>> solution = pf.integrate(flow, objective, objective.theta, 100.0)
        >>> print(solution.theta.round(6))
        [0. 2.]
    """

    h: float = eqx.field(converter=lambda h: _checks.rate("h", h))
    k: int = eqx.field(static=True, kw_only=True, default=4, converter=lambda k: _checks.whole("k", k, least=1))
    substep: float = eqx.field(kw_only=True, default=0.25, converter=lambda part: _checks.positive("substep", part))

    remedy = "track fewer directions, by k"

    @property
    def euler_step(self) -> Any:
        """The part of h that is looked ahead."""
        return self.substep * self.h

    def start(self, objective: Objective, theta: Vector) -> CentralState:
        """Returns the state at the beginning."""
        k = min(self.k, theta.size)
        pairs = top_eigenpairs(objective, theta, k, tol=RESIDUAL)
        return CentralState(theta, jnp.asarray(pairs.vectors, theta.dtype))

    def evaluate(self, objective: Objective, state: CentralState) -> Field:
        """Returns the field; directions move to where they are found in one step of the solver."""
        return _evaluate(self, objective, state)

    def parameters(self, state: CentralState) -> Vector:
        """Returns the centre."""
        return state.centre

    def centre(self, objective: Objective, state: CentralState) -> Vector:
        """Returns the parameters, which are those of the mean path."""
        return state.centre

    def covariance(self, objective: Objective, state: CentralState) -> Float[Array, "k k"]:
        r"""Returns X, the covariance of the oscillation along the directions of the state as they are found anew.

        The mean squared gradient is larger than that of the centre by the trace of $U^T H\,U X U^T H\,U$.
        """
        return _covariance_at(self, objective, state)

    def mean_loss(self, objective: Objective, state: CentralState) -> Inexact[Array, ""]:
        """Returns the loss, averaged over the oscillation: that of the centre and tr(X)/h."""
        return objective.value(state.centre) + jnp.trace(self.covariance(objective, state)) / self.h


@_loss.needs("loss", _loss.PRODUCTS)
@compiled
def _evaluate(flow: Central, objective: Objective, state: CentralState) -> Field:
    theta = checked_theta(objective, state.centre, half=False)
    gradient, product = objective.linearize(theta)
    found = refined(product, state.directions)
    _, push = _held(flow, objective, theta, gradient, found)
    turned = (found.turned(state.directions) - state.directions) / (flow.substep * flow.h)
    contractions = jnp.sum(Pairs.of(found.values.size).of_both(_near(flow, found)))
    return Field.exact(CentralState(-gradient - push, turned), found.products, contractions)


@_loss.needs("loss", _loss.PRODUCTS)
@compiled
def _covariance_at(flow: Central, objective: Objective, state: CentralState) -> Float[Array, "k k"]:
    gradient, product = objective.linearize(state.centre)
    return _held(flow, objective, state.centre, gradient, refined(product, state.directions))[0]


def _near(flow: Central, found: Refined) -> Array:
    return flow.h * found.values > NEAR


def _held(
    flow: Central, objective: Objective, theta: Vector, gradient: Vector, found: Refined
) -> tuple[Float[Array, "k k"], Vector]:
    """Returns the covariance that holds the sharpness, and what it adds to the gradient."""
    k, near = found.values.size, _near(flow, found)
    pairs = Pairs.of(k)

    def at_edge() -> tuple[Array, Array]:
        thirds = pairs.thirds(objective, theta, found.vectors, near)
        # One substep ahead, 2/h - U^T H U is A + B[X], over the length of the substep.
        A = jnp.diag((2 / flow.h - found.values) / (flow.substep * flow.h)) + pairs.matrix(thirds @ gradient)
        X = covariance(A, pairs.operator(thirds @ thirds.T / 2), near)
        return X, pairs.total(X, thirds) / 2

    def below() -> tuple[Array, Array]:
        return jnp.zeros((k, k), theta.dtype), jnp.zeros_like(theta)

    return lax.cond(jnp.any(near), at_edge, below)
