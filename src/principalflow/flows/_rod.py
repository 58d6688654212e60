"""Rod flow: descent's oscillation as the covariance of a rod's ends about its centre."""

from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Inexact

from principalflow import _checks, _loss
from principalflow._compiled import compiled
from principalflow.flows._flow import Field, Flow
from principalflow.objective import Objective, Vector
from principalflow.spectrum import top_eigenpairs

# The centre's fastest decay is z + z^2/2 with z = h*lambda of 2.4.
_FASTEST = 5.3


class RodState(NamedTuple):
    """What `Rod` follows.

    Attributes:
        centre: c, the mean of two successive iterates.
        directions: Q (D, rank), orthonormal.
        covariance: S (rank, rank), positive semidefinite; the covariance is Q S Q^T.
    """

    centre: Vector
    directions: Float[Array, "D rank"]
    covariance: Float[Array, "rank rank"]


class Rod(Flow):
    r"""Rod flow (Regis and Chewi, arXiv 2602.01480), with a covariance of low rank.

    Two successive iterates are the ends of a rod, c + d and c - d. With s the mean of the gradients there and a half
    their difference, $\Sigma = dd^T$, and one unit of time a learning rate, the authors' equations are

    $$\dot c = -s - \tfrac h2 H s, \qquad h\,\dot\Sigma = \tfrac{h^2}2 (ss^T + aa^T) - 2\Sigma .$$

    Here $\Sigma = Q S Q^T = \sum_i v_i v_i^T$ has several directions. Then $s = g(c) + \sum_i (s_i - g(c))$ and
    $aa^T$ is the sum of $a_i a_i^T$, with $s_i$ and $a_i$ those of the ends $c \pm v_i$. S follows by projection, and

    $$\dot Q = \tfrac h2 (1 - QQ^T) K Q\,(Q^T\! K Q)$$

    with K the mean Hessian between the ends, $a_i = K v_i$. So turn the directions of a covariance of this rank where S
    and $Q^T\! K Q$ commute, and no inverse of S is needed, which may be 0. What the drift adds outside of them is left
    out: there $\Sigma$ rests near $\frac{h^2}4 ss^T$. The authors' H is the mean of those at the ends, ours that at c.
    It costs 2 rank + 1 gradients and a Hessian product.

    The sources in $\dot\Sigma$ feed directions without an oscillation, which then grow too early at the edge.

    Args:
        h: The learning rate of the descent that is modelled.
        rank: How many directions there are, which begin as the sharpest.

    Raises:
        ValueError: For an h that isn't finite and above 0, or a rank below 1.

    Example:
        >>> import principalflow as pf
        >>> quartic = pf.Objective(lambda w: 3 * w[0]**2 / 2 - w[0]**4 / 4, [0.1])  # h*lambda = 2.4 at 0
        >>> solution = pf.integrate(pf.flows.Rod(h=0.8), quartic, [0.1], time=60)
        >>> print(solution.states[-1].covariance.round(4))  # lambda - 2/h at rest
        [[0.5]]
    """

    h: float = eqx.field(converter=lambda h: _checks.rate("h", h))
    rank: int = eqx.field(
        static=True, kw_only=True, default=4, converter=lambda rank: _checks.whole("rank", rank, least=1)
    )

    @property
    def fastest_decay(self) -> Any:
        """That of the centre along the sharpest direction."""
        return _FASTEST / self.h

    def start(self, objective: Objective, theta: Vector) -> RodState:
        """Returns the state at the beginning, whose rod is from `theta` to the next iterate."""
        half = self.h / 2 * objective.gradient(theta)
        pairs = top_eigenpairs(objective, theta - half, min(self.rank, theta.size))
        directions = jnp.asarray(pairs.vectors, theta.dtype)
        along = directions.T @ half
        return RodState(theta - half, directions, jnp.outer(along, along))

    def evaluate(self, objective: Objective, state: RodState) -> Field:
        """Returns the field of all three."""
        return _evaluate(self, objective, state)

    def parameters(self, state: RodState) -> Vector:
        """Returns the centre, which is that of the iterate at the state's time and of the next."""
        return state.centre

    def iterates(self, objective: Objective, state: RodState) -> list[Vector]:
        """Returns the ends of the rod, in either order: a covariance has no signs."""
        v = self.amplitude(objective, state)
        return [state.centre + v, state.centre - v]

    def mean_loss(self, objective: Objective, state: RodState) -> Inexact[Array, ""]:
        """Returns the mean loss over the rod, with what each of its directions adds to that of the centre."""
        _, ends, lengths = _rods(state)
        middle = objective.value(state.centre)
        both = [objective.value(state.centre + sign * v) for v in (ends * lengths).T for sign in (1, -1)]
        return middle + sum(each - middle for each in both) / 2

    def centre(self, objective: Objective, state: RodState) -> Vector:
        """Returns c."""
        return state.centre

    def amplitude(self, objective: Objective, state: RodState) -> Vector:
        """Returns the longest of the v, in either direction."""
        _, ends, lengths = _rods(state)
        return ends[:, -1] * lengths[-1]


@_loss.needs("loss", _loss.PRODUCTS)
@compiled
def _evaluate(flow: Rod, objective: Objective, state: RodState) -> Field:
    c, h = state.centre, flow.h
    turns, W, lengths = _rods(state)
    middle = objective.gradient(c)
    # Rounding is all that is left of a difference over no distance, so gradients are taken at least that far apart.
    apart = jnp.maximum(lengths, jnp.sqrt(jnp.finfo(c.dtype).eps) * jnp.maximum(jnp.linalg.norm(c), 1))
    at = lambda step: objective.gradient(c + step)  # noqa: E731
    above, below = lax.map(at, (W * apart).T), lax.map(at, -(W * apart).T)
    s = middle + (lengths / apart) ** 2 @ ((above + below) / 2 - middle)
    KW = (above - below).T / (2 * apart)
    C = W.T @ KW
    C, along = (C + C.T) / 2, W.T @ s
    growth = h / 2 * (jnp.outer(along, along) + (C * lengths**2) @ C) - 2 / h * jnp.diag(lengths**2)
    turning = h / 2 * (KW - W @ C) @ C
    moved = -s - h / 2 * objective.hvp(c, s)
    field = Field.exact(RodState(moved, turning @ turns.T, turns @ growth @ turns.T), 1)
    return field._replace(gradients=1 + 2 * W.shape[1])


def _rods(state: RodState) -> tuple[Array, Array, Array]:
    """Returns the eigenvectors of S, the directions that they stand for, and the lengths along them."""
    values, turns = jnp.linalg.eigh((state.covariance + state.covariance.T) / 2)
    # A solver keeps Q orthonormal to its tolerance; the nearest orthonormal one is taken.
    left, _, right = jnp.linalg.svd(state.directions, full_matrices=False)
    return turns, left @ right @ turns, jnp.sqrt(jnp.maximum(values, 0))
