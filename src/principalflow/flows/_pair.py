"""The flow of the centre and the amplitude of descent's oscillation: through the edge, and far beyond it."""

import abc
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Inexact

from principalflow import _checks, _loss
from principalflow._compiled import compiled
from principalflow.flows._flow import Field, Flow
from principalflow.flows._steps import FAR_OR_KINK, log_weights
from principalflow.objective import Objective, Vector
from principalflow.spectrum import top_eigenpairs

# Iterates are filtered by the binomial weights of this power, with signs that alternate, for the amplitude in their
# middle; that at the start is read off three of these.
_ALTERNATING = (1 / 16, -4 / 16, 6 / 16, -4 / 16, 1 / 16)
_TO_THE_START = (6.0, -8.0, 3.0)
# What the map takes away of a direction, over it, with room for h*lambda above 2.
_LARGEST_DIFFERENCE = 2.4


class PairState(NamedTuple):
    """What `Pair` follows.

    Attributes:
        centre: c, about which descent oscillates.
        amplitude: v; its iterates are c + v and c - v by turns.
    """

    centre: Vector
    amplitude: Vector


def _orders(orders: Any) -> tuple[int, int]:
    pair = tuple(orders) if isinstance(orders, list | tuple) else ()
    if len(pair) != 2:
        raise ValueError(f"orders must be two whole numbers, of the centre and the amplitude, got {orders!r}.")
    centre, amplitude = (_checks.whole("orders", n, least=1, most=20) for n in pair)
    return centre, amplitude


class Oscillation(Flow):
    """A flow of a centre c and an amplitude v, which stands for the iterates c + v and c - v by turns."""

    jumps = FAR_OR_KINK

    @abc.abstractmethod
    def pair(self, state: Any) -> PairState:
        """Returns c and v."""

    def parameters(self, state: Any) -> Vector:
        """Returns the even iterate, c + v."""
        c, v = self.pair(state)
        return c + v

    def iterates(self, objective: Objective, state: Any) -> list[Vector]:
        """Returns both iterates that a state stands for, c + v and c - v."""
        c, v = self.pair(state)
        return [c + v, c - v]

    def at_step(self, objective: Objective, states: Sequence[Any], n: int) -> Vector:
        """Returns c + v after an even number of steps, and c - v after an odd one."""
        return self.iterates(objective, states[-1])[n % 2]

    def mean_loss(self, objective: Objective, state: Any) -> Inexact[Array, ""]:
        """Returns the mean loss of both iterates."""
        above, below = self.iterates(objective, state)
        return (objective.value(above) + objective.value(below)) / 2

    def centre(self, objective: Objective, state: Any) -> Vector:
        """Returns c."""
        return self.pair(state).centre

    def amplitude(self, objective: Objective, state: Any) -> Vector:
        """Returns v."""
        return self.pair(state).amplitude


class Pair(Oscillation):
    r"""The flow of descent's centre c and amplitude v, with $\theta_t = c_t + (-1)^t v_t$.

    With $g_\pm$ the gradients at $c \pm v$, a step of descent from c + v is one of this map, whatever c and v are:

    $$\Psi(c, v) = \left(c - \tfrac h2 (g_+ + g_-),\; \tfrac h2 (g_+ - g_-) - v\right).$$

    In directions that flip their sign the amplitude changes slowly, and so its modified flow, as `BackwardError` is for
    descent, follows it: $h\,d/dt = \sum_k (-1)^{k+1} \Delta^k/k$ with $\Delta = \Psi - 1$, up to a number of terms for
    each of the two. It costs 2 max(orders) gradients, needs neither Hessian nor eigenvectors, and holds where the
    series of `TwoStep` diverges, beyond $h\lambda = 2.4$.

    Args:
        h: The learning rate of the descent that is modelled.
        orders: How many terms the series has for the centre, and for the amplitude.
        begin: How the amplitude at the start is found. `"iterates"`: from seven iterates of descent, whose alternating
            part is filtered out. `"eigenpairs"`: $\sum (g \cdot u_i)/\lambda_i\, u_i$ over the directions with
            $h\lambda_i > 1$ among the `k` sharpest.
        k: How many eigenpairs the latter takes.

    Raises:
        ValueError: For an h that isn't finite and above 0, orders that aren't two whole numbers from 1 to 20, an
            unknown begin, or k below 1.

    Example:
        >>> import principalflow as pf
        >>> quartic = pf.Objective(lambda w: 3 * w[0]**2 / 2 - w[0]**4 / 4, [0.1])  # h*lambda = 2.4 at 0
        >>> flow = pf.flows.Pair(h=0.8)
        >>> solution = pf.integrate(flow, quartic, [0.1], time=60)
        >>> print(solution.states[-1].amplitude.round(4), 0.5 ** 0.5)  # the square is (lambda - 2/h) at rest
        [0.7071] 0.7071067811865476
    """

    h: float = eqx.field(converter=lambda h: _checks.rate("h", h))
    orders: tuple[int, int] = eqx.field(static=True, kw_only=True, default=(2, 2), converter=_orders)
    begin: Literal["iterates", "eigenpairs"] = eqx.field(static=True, kw_only=True, default="iterates")
    k: int = eqx.field(static=True, kw_only=True, default=4, converter=lambda k: _checks.whole("k", k, least=1))

    def __check_init__(self):
        _checks.one_of("begin", self.begin, ("iterates", "eigenpairs"))

    @property
    def fastest_decay(self) -> Any:
        """That of a difference of -2, which flat directions have in the amplitude and sharp ones in the centre."""
        return sum(_LARGEST_DIFFERENCE**k / k for k in range(1, max(self.orders) + 1)) / self.h

    def start(self, objective: Objective, theta: Vector) -> PairState:
        """Returns the state at the beginning, with c + v = theta."""
        if self.begin == "iterates":
            amplitude = _alternating(self, objective, theta)
        else:
            amplitude = self._of_eigenpairs(objective, theta)
        return PairState(theta - amplitude, amplitude)

    def evaluate(self, objective: Objective, state: PairState) -> Field:
        """Returns the field of both."""
        return _evaluate(self, objective, state)

    def pair(self, state: PairState) -> PairState:
        """Returns the state, which is c and v."""
        return state

    def _of_eigenpairs(self, objective: Objective, theta: Vector) -> Vector:
        pairs = top_eigenpairs(objective, theta, min(self.k, theta.size))
        values, vectors = (jnp.asarray(x, theta.dtype) for x in (pairs.values, pairs.vectors))
        along = vectors.T @ objective.gradient(theta)
        return vectors @ jnp.where(self.h * values > 1, along / values, 0)


@_loss.needs("loss", "a gradient")
@compiled
def _evaluate(flow: Pair, objective: Objective, state: PairState) -> Field:
    def add(sums: tuple, weights: Array) -> tuple:
        state, total = sums
        moved = _increment(flow, objective, state)
        total = PairState(*(t + w * m for t, w, m in zip(total, weights, moved, strict=True)))
        return (jax.tree.map(jnp.add, state, moved), total), None

    most = max(flow.orders)
    table = jnp.asarray([[*log_weights(n - 1), *[0.0] * (most - n)] for n in flow.orders], state.centre.dtype).T
    (_, total), _ = lax.scan(add, (state, jax.tree.map(jnp.zeros_like, state)), table)
    field = Field.exact(jax.tree.map(lambda leaf: leaf / flow.h, total))
    return field._replace(gradients=2 * most)


@_loss.needs("loss", "a gradient")
@compiled
def _alternating(flow: Pair, objective: Objective, theta: Vector) -> Vector:
    """Returns the amplitude at theta, from the iterates that follow."""

    def step(theta: Vector, _: None) -> tuple[Vector, Vector]:
        return theta - flow.h * objective.gradient(theta), theta

    count = len(_ALTERNATING) + len(_TO_THE_START) - 1
    _, thetas = lax.scan(step, theta, length=count)
    weights = jnp.asarray(_ALTERNATING, theta.dtype)
    # The sign is that of the even iterates, whichever the first of the filtered ones is.
    found = [(-1) ** i * (weights @ thetas[i : i + len(_ALTERNATING)]) for i in range(len(_TO_THE_START))]
    return jnp.asarray(_TO_THE_START, theta.dtype) @ jnp.stack(found)


def _increment(flow: Pair, objective: Objective, state: PairState) -> PairState:
    c, v = state
    above, below = objective.gradient(c + v), objective.gradient(c - v)
    return PairState(-flow.h / 2 * (above + below), flow.h / 2 * (above - below) - 2 * v)
