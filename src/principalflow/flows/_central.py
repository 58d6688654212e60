"""The central flow: the mean path of descent at the edge of stability, where the sharpness is held at 2/h."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from principalflow import _checks, _loss
from principalflow._compiled import compiled
from principalflow.flows._flow import Field, Flow
from principalflow.objective import Objective, Vector, checked_theta
from principalflow.spectrum import top_eigenpairs

# Directions with h*lambda above this take part in what holds the sharpness.
_NEAR = 1.95
# Rayleigh-Ritz steps on the tracked directions and their residuals, until these are so small beside the sharpness.
_MOST_REFINEMENTS, _RESIDUAL = 10, 1e-3
# Steps of the projected gradient for the covariance, which has k(k+1)/2 unknowns, until it changes by so little.
_COVARIANCE_STEPS, _COVARIANCE_CHANGE = 1000, 1e-9


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

    The sharpness is held by looking one step of the solver ahead. So follow it by Euler's steps of h/4, as its authors
    do: `pf.integrate(flow, objective, theta, time, solver="euler", step=h / 4)`.

    Args:
        h: The learning rate of the descent that is modelled.
        k: How many of the sharpest directions to track.
        substep: The part of h that one step of the solver is.

    Raises:
        ValueError: For an h that isn't finite and above 0, k below 1, or a substep that isn't in (0, 1].

    Example:
        >>> import jax.numpy as jnp
        >>> import principalflow as pf
        >>> loss = lambda w: w[1] * w[0] ** 2 / 2 - w[1] / 1000  # the curvature y grows until it is held at 2/h
        >>> objective, flow = pf.Objective(loss, jnp.array([0.0, 1.99])), pf.flows.Central(h=1.0, k=1)
        >>> solution = pf.integrate(flow, objective, objective.theta, 100.0, solver="euler", step=0.25)
        >>> print(solution.theta.round(6))
        [0. 2.]
    """

    h: float = eqx.field(converter=lambda h: _checks.rate("h", h))
    k: int = eqx.field(static=True, kw_only=True, default=4, converter=lambda k: _checks.whole("k", k, least=1))
    substep: float = eqx.field(kw_only=True, default=0.25, converter=lambda part: _checks.positive("substep", part))

    remedy = "track fewer directions, by k"

    def start(self, objective: Objective, theta: Vector) -> CentralState:
        """Returns the state at the beginning."""
        k = min(self.k, theta.size)
        pairs = top_eigenpairs(objective, theta, k, tol=_RESIDUAL)
        return CentralState(theta, jnp.asarray(pairs.vectors, theta.dtype))

    def evaluate(self, objective: Objective, state: CentralState) -> Field:
        """Returns the field; directions move to where they are found in one step of the solver."""
        return _evaluate(self, objective, state)

    def parameters(self, state: CentralState) -> Vector:
        """Returns the centre."""
        return state.centre

    def covariance(self, objective: Objective, state: CentralState) -> Float[Array, "k k"]:
        r"""Returns X, the covariance of the oscillation along the directions of the state as they are found anew.

        The mean loss is larger than that of the centre by tr(X)/h, the mean squared gradient by the trace of
        $U^T H\,U X U^T H\,U$.
        """
        return _covariance_at(self, objective, state)


@_loss.needs("loss", _loss.PRODUCTS)
@compiled
def _evaluate(flow: Central, objective: Objective, state: CentralState) -> Field:
    theta = checked_theta(objective, state.centre, half=False)
    gradient, product = objective.linearize(theta)
    found = _refined(product, state.directions)
    _, push = _held(flow, objective, theta, gradient, found)
    # Signs of eigenvectors are arbitrary: those found anew are turned to the former.
    signs = jnp.where(jnp.sum(found.vectors * state.directions, axis=0) < 0, -1, 1)
    turned = (found.vectors * signs - state.directions) / (flow.substep * flow.h)
    k = found.values.size
    contractions = jnp.where(_is_near(flow, found), k * (k + 1) // 2, 0)
    return Field.exact(CentralState(-gradient - push, turned), found.products, contractions)


@_loss.needs("loss", _loss.PRODUCTS)
@compiled
def _covariance_at(flow: Central, objective: Objective, state: CentralState) -> Float[Array, "k k"]:
    gradient, product = objective.linearize(state.centre)
    return _held(flow, objective, state.centre, gradient, _refined(product, state.directions))[0]


def _is_near(flow: Central, found: "_Refined") -> Array:
    return jnp.any(flow.h * found.values > _NEAR)


def _held(
    flow: Central, objective: Objective, theta: Vector, gradient: Vector, found: "_Refined"
) -> tuple[Float[Array, "k k"], Vector]:
    """Returns the covariance that holds the sharpness, and what it adds to the gradient."""
    k = found.values.size
    pairs = [(i, j) for i in range(k) for j in range(i, k)]
    number = {pair: n for n, pair in enumerate(pairs)}
    index = jnp.asarray([[number[min(i, j), max(i, j)] for j in range(k)] for i in range(k)])

    def at_edge() -> tuple[Array, Array]:
        third = lambda ij: objective.third(theta, found.vectors[:, ij[0]], found.vectors[:, ij[1]])  # noqa: E731
        thirds = lax.map(third, jnp.asarray(pairs))
        # One substep ahead, 2/h - U^T H U is A + B[X], over the length of the substep.
        A = jnp.diag((2 / flow.h - found.values) / (flow.substep * flow.h)) + (thirds @ gradient)[index]
        B = (thirds @ thirds.T / 2)[index][:, :, index]
        X = _covariance(A, B, flow.h * found.values > _NEAR)
        return X, jnp.tensordot(X, thirds[index], 2) / 2

    def below() -> tuple[Array, Array]:
        return jnp.zeros((k, k), theta.dtype), jnp.zeros_like(theta)

    return lax.cond(_is_near(flow, found), at_edge, below)


class _Refined(NamedTuple):
    values: Array
    vectors: Array
    products: Any


def _refined(product: Any, guess: Array) -> _Refined:
    """Returns the largest eigenpairs by Rayleigh-Ritz steps from a guess, largest first."""
    k = guess.shape[1]
    times = jax.vmap(product, in_axes=1, out_axes=1)

    def ritz(V: Array, HV: Array) -> tuple[Array, Array, Array]:
        values, turns = jnp.linalg.eigh((V.T @ HV + HV.T @ V) / 2)
        turns = turns[:, ::-1][:, :k]
        return values[::-1][:k], V @ turns, HV @ turns

    def residual(values: Array, U: Array, HU: Array) -> Array:
        return HU - U * values

    def unfinished(carry: tuple) -> Array:
        values, U, HU, _, count = carry
        size = jnp.max(jnp.linalg.norm(residual(values, U, HU), axis=0))
        return (count < _MOST_REFINEMENTS) & (size > _RESIDUAL * jnp.max(jnp.abs(values)))

    def refine(carry: tuple) -> tuple:
        values, U, HU, last, count = carry
        new = residual(values, U, HU)
        new = new / jnp.maximum(jnp.linalg.norm(new, axis=0), jnp.finfo(new.dtype).tiny)
        # Orthonormal from the known ones on; the former step's direction makes it a conjugate one.
        V, R = jnp.linalg.qr(jnp.concatenate([U, new, last], axis=1))
        HV = jnp.concatenate([HU, times(V[:, k : 2 * k]), times(V[:, 2 * k :])], axis=1)
        HV = HV.at[:, :k].set(HU / jnp.diag(R)[:k])
        values, W, HW = ritz(V, HV)
        return values, W, HW, W - U @ (U.T @ W), count + 1

    U, _ = jnp.linalg.qr(guess)
    values, U, HU = ritz(U, times(U))
    start = values, U, HU, jnp.zeros_like(U), 0
    values, U, HU, _, count = lax.while_loop(unfinished, refine, start)
    return _Refined(values, U, k * (1 + 2 * count))


def _covariance(A: Array, B: Array, near: Array) -> Array:
    """Returns the positive semidefinite X, zero but where `near`, that minimises X.B[X]/2 + A.X (Cohen et al.)."""
    k = A.shape[0]
    both = near[:, None] & near[None, :]
    A, B = jnp.where(both, A, 0), jnp.where(both[:, :, None, None] & both, B, 0)
    matrix = B.reshape(k * k, k * k)
    steep = jnp.maximum(jnp.linalg.eigvalsh(matrix)[-1], jnp.finfo(A.dtype).tiny)

    def step(carry: tuple) -> tuple:
        X, ahead, t, _, count = carry
        new = _positive(ahead - (A + jnp.tensordot(B, ahead, 2)) / steep)
        back = jnp.sum((ahead - new) * (new - X)) > 0  # it turns back: momentum is dropped
        t = jnp.where(back, 1.0, t)
        later = (1 + jnp.sqrt(1 + 4 * t**2)) / 2
        ahead = new + jnp.where(back, 0.0, (t - 1) / later) * (new - X)
        return new, ahead, later, jnp.max(jnp.abs(new - X)), count + 1

    def unfinished(carry: tuple) -> Array:
        X, _, _, change, count = carry
        return (count < _COVARIANCE_STEPS) & (change > _COVARIANCE_CHANGE * jnp.max(jnp.abs(X)))

    one = jnp.ones((), A.dtype)
    return lax.while_loop(unfinished, step, step((jnp.zeros_like(A), jnp.zeros_like(A), one, one, 0)))[0]


def _positive(X: Array) -> Array:
    values, vectors = jnp.linalg.eigh((X + X.T) / 2)
    return (vectors * jnp.maximum(values, 0)) @ vectors.T
