"""The flow of two points about a centre: descent's oscillation along its sharpest direction."""

from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from principalflow import _checks, _loss
from principalflow._compiled import compiled
from principalflow.flows._flow import Field
from principalflow.flows._pair import Oscillation, Pair, PairState
from principalflow.objective import Objective, Vector
from principalflow.spectrum import top_eigenpairs

# A step may take all of a direction away, whose logarithm is infinite: no magnitude decays by more than this a step.
_LEAST_MULTIPLIER = 0.1
# What decays fastest, at h*lambda of 2.4 and with some negative curvature: the direction.
_FASTEST = 3.0


class TwoPointState(NamedTuple):
    """What `TwoPoint` follows.

    Attributes:
        centre: c, about which descent oscillates.
        direction: u, of length 1.
        magnitude: r, at least 0; the iterates are c + r u and c - r u by turns.
    """

    centre: Vector
    direction: Vector
    magnitude: Float[Array, ""]


class TwoPoint(Oscillation):
    r"""The flow of descent's centre c and of the direction u and magnitude r of its oscillation.

    $$\dot c = -\tfrac12\big(g(c + ru) + g(c - ru)\big), \qquad \dot u = (1 - uu^T) H(c)\,u, \qquad
      \dot r = \tfrac1h \log|h\,u^T\!A\,u - 1|\; r$$

    with $A$ the mean Hessian between the two points, $A\,u = (g(c+ru) - g(c-ru))/2r$. So the direction comes to the
    sharpest one, and the magnitude grows where the sharpness is above 2/h, by what a step multiplies it with. It costs
    two gradients and a Hessian product. It has one direction alone: others at the edge stay in the centre, which decays
    along them; `Pair` and `Rod` have several. A magnitude of 0 stays 0.

    It is in keeping with the abstract of Edge flow (Marion, arXiv 2606.18080), but derived here: it isn't known
    whether its equations are the same.

    Args:
        h: The learning rate of the descent that is modelled.
        begin: How the oscillation at the start is found, as by `Pair`; of it the part along the sharpest direction is
            taken.

    Raises:
        ValueError: For an h that isn't finite and above 0, or an unknown begin.

    Example:
        >>> import principalflow as pf
        >>> quartic = pf.Objective(lambda w: 3 * w[0]**2 / 2 - w[0]**4 / 4, [0.1])  # h*lambda = 2.4 at 0
        >>> solution = pf.integrate(pf.flows.TwoPoint(h=0.8), quartic, [0.1], time=60)
        >>> print(f"{solution.states[-1].magnitude:.4f}", 0.5 ** 0.5)  # the square is (lambda - 2/h) at rest
        0.7071 0.7071067811865476
    """

    h: float = eqx.field(converter=lambda h: _checks.rate("h", h))
    begin: Literal["iterates", "eigenpairs"] = eqx.field(static=True, kw_only=True, default="iterates")

    def __check_init__(self):
        _checks.one_of("begin", self.begin, ("iterates", "eigenpairs"))

    @property
    def fastest_decay(self) -> Any:
        """That of the direction, which turns away from negative curvature."""
        return _FASTEST / self.h

    def start(self, objective: Objective, theta: Vector) -> TwoPointState:
        """Returns the state at the beginning, with c + ru = theta."""
        amplitude = Pair(self.h, begin=self.begin, k=1).start(objective, theta).amplitude
        direction = jnp.asarray(top_eigenpairs(objective, theta, 1).vectors[:, 0], theta.dtype)
        along = direction @ amplitude
        direction = jnp.where(along < 0, -1, 1) * direction
        return TwoPointState(theta - jnp.abs(along) * direction, direction, jnp.abs(along))

    def evaluate(self, objective: Objective, state: TwoPointState) -> Field:
        """Returns the field of all three."""
        return _evaluate(self, objective, state)

    def pair(self, state: TwoPointState) -> PairState:
        """Returns c and ru."""
        return PairState(state.centre, state.magnitude * state.direction)


@_loss.needs("loss", _loss.PRODUCTS)
@compiled
def _evaluate(flow: TwoPoint, objective: Objective, state: TwoPointState) -> Field:
    c, r = state.centre, state.magnitude
    u = state.direction / jnp.linalg.norm(state.direction)
    above, below = objective.gradient(c + r * u), objective.gradient(c - r * u)
    product = objective.hvp(c, u)
    # Rounding is all that is left of a difference over no distance; there the Hessian is the mean of itself.
    is_wide = r > jnp.sqrt(jnp.finfo(c.dtype).eps) * jnp.linalg.norm(c)
    sharpness = jnp.where(is_wide, u @ (above - below) / (2 * jnp.where(is_wide, r, 1)), u @ product)
    multiplier = jnp.maximum(jnp.abs(flow.h * sharpness - 1), _LEAST_MULTIPLIER)
    turned = product - (u @ product) * u
    field = Field.exact(TwoPointState(-(above + below) / 2, turned, jnp.log(multiplier) / flow.h * r), 1)
    return field._replace(gradients=2)
