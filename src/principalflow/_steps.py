"""Many steps of an optimiser in one compiled call: what gradient descent and training have in common."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jax.tree_util import Partial
from jaxtyping import Array, Float, Inexact, Int

from principalflow._compiled import compiled
from principalflow.objective import Objective, Vector

# The most steps of one call: so many numbers fit its buffers.
AT_ONCE = 256
# How long one call may take, about: an interruption waits for its end.
_SECONDS_AT_ONCE = 0.5


class Optimizer(NamedTuple):
    """`init(theta)`, and `update(objective, gradient, state, theta, rate)`: the update, the state, the rate it took.

    Arrays in `update`, a `jax.tree_util.Partial`, are arguments of the compiled steps; all else is part of them.
    """

    init: Callable[[Vector], Any]
    update: Callable[[Objective, Vector, Any, Vector, Array], tuple[Vector, Any, Array]]


def gradient_descent(momentum: float = 0.0, nesterov: bool = False) -> Optimizer:
    """Returns gradient descent with heavy-ball or Nesterov's momentum, or without; another one doesn't compile anew."""
    if not momentum:
        return Optimizer(_without_state, _along_the_gradient)
    return Optimizer(jnp.zeros_like, Partial(_with_momentum, jnp.asarray(momentum), nesterov))


def _without_state(theta: Vector) -> tuple[()]:
    return ()


def _along_the_gradient(objective: Objective, gradient: Vector, state: Any, theta: Vector, rate: Array) -> Any:
    return -rate * gradient, state, rate


def _with_momentum(
    momentum: Array, nesterov: bool, objective: Objective, gradient: Vector, state: Vector, theta: Vector, rate: Array
) -> Any:
    velocity = gradient + momentum * state
    along = gradient + momentum * velocity if nesterov else velocity
    return -rate * along, velocity, rate


class State(NamedTuple):
    """What a step changes."""

    theta: Vector
    optimizer: Any


class Log(NamedTuple):
    """What each of the steps saw before its update; the first `taken` entries count.

    Attributes:
        taken: How many steps there were.
        losses: NaN also where the parameters aren't finite, whatever the loss makes of them.
        gradient_norms: Of the gradients.
        rates: Those that the optimiser took.
        thetas: The parameters before each step where the loss is finite. The i-th has the place i modulo the places.
    """

    taken: Int[Array, ""]
    losses: Inexact[Array, " at_once"]
    gradient_norms: Float[Array, " at_once"]
    rates: Float[Array, " at_once"]
    thetas: Inexact[Array, "places D"]


def advance(
    objective: Objective,
    optimizer: Optimizer,
    state: State,
    rates: Float[Array, " at_once"],
    batches: Int[Array, "at_once batch"] | None,
    count: Int[Array, ""],
    places: int = 1,
) -> tuple[State, Log]:
    """Takes `count` steps, fewer where a loss is not finite.

    The count is an argument, not a shape: however a run is cut into calls, the same code computes the same numbers.
    With room for one step only, nothing of the loss is compiled but the gradient, which whatever else needs it has
    compiled too: of a large network that saves minutes. The optimiser then gets no objective.
    """
    if len(rates) > 1:
        return _advance_compiled(objective, optimizer, state, rates, batches, count, places)
    sampled = objective if batches is None else objective.batch(batches[0])
    return _one_step(optimizer, state, rates, places, *sampled.value_and_gradient(state.theta))


def _advance(
    objective: Objective,
    optimizer: Optimizer,
    state: State,
    rates: Array,
    batches: Array | None,
    count: Array,
    places: int,
) -> tuple[State, Log]:
    def unfinished(carry: tuple[State, Log]) -> Array:
        _, log = carry
        return (log.taken < count) & ((log.taken == 0) | jnp.isfinite(log.losses[log.taken - 1]))

    def step(carry: tuple[State, Log]) -> tuple[State, Log]:
        state, log = carry
        sampled = objective if batches is None else objective.batch(batches[log.taken])
        loss, gradient = sampled.value_and_gradient(state.theta)
        return _updated(sampled, optimizer, state, log, rates[log.taken], loss, gradient)

    loss = jax.eval_shape(objective.value, state.theta)
    return lax.while_loop(unfinished, step, (state, _empty(state.theta, rates, places, loss.dtype)))


@eqx.filter_jit
def _one_step(
    optimizer: Optimizer, state: State, rates: Array, places: int, loss: Array, gradient: Vector
) -> tuple[State, Log]:
    log = _empty(state.theta, rates, places, loss.dtype)
    return _updated(None, optimizer, state, log, rates[0], loss, gradient)


def _updated(
    objective: Any, optimizer: Optimizer, state: State, log: Log, rate: Array, loss: Array, gradient: Vector
) -> tuple[State, Log]:
    """Returns the state after a step whose loss and gradient are known, and the log with what the step saw."""
    theta, i, place = state.theta, log.taken, log.taken % len(log.thetas)
    loss = jnp.where(jnp.all(jnp.isfinite(theta)), loss, jnp.nan)
    update, inner, rate = optimizer.update(objective, gradient, state.optimizer, theta, rate)
    log = Log(
        i + 1,
        log.losses.at[i].set(loss),
        log.gradient_norms.at[i].set(jnp.linalg.norm(gradient)),
        log.rates.at[i].set(rate),
        log.thetas.at[place].set(jnp.where(jnp.isfinite(loss), theta, log.thetas[place])),
    )
    return State(theta + update.astype(theta.dtype), inner), log


def _empty(theta: Vector, rates: Array, places: int, dtype: Any) -> Log:
    """Returns a log with room for as many steps as there are rates, with losses of this dtype."""
    return Log(
        jnp.zeros((), jnp.int32),
        jnp.zeros(len(rates), dtype),
        jnp.zeros(len(rates), jnp.finfo(theta.dtype).dtype),
        jnp.zeros_like(rates),
        jnp.zeros((places, theta.size), theta.dtype),
    )


def _advance_together(*arguments: Any) -> tuple[State, Log]:
    """The same for several runs at once, along the first axes of their states, rates, batches and counts."""
    return eqx.filter_vmap(_advance, in_axes=(None, None, 0, 0, 0, 0, None))(*arguments, 1)


_advance_compiled, advance_together = compiled(_advance), compiled(_advance_together)


class Pace:
    """How many steps one call may take, from how long the last one took."""

    _seconds_per_step: float | None = None

    def count(self, most: int) -> int:
        """Returns how many steps to take next: the first by itself, then at most so many."""
        if self._seconds_per_step is None:
            return 1
        # A coarse clock may say that they took no time.
        in_time = int(_SECONDS_AT_ONCE / max(self._seconds_per_step, _SECONDS_AT_ONCE / AT_ONCE))
        return min(most, max(in_time, 1))

    @contextmanager
    def timed(self, steps: int) -> Iterator[None]:
        """Measures a call that takes `steps` steps."""
        began = time.perf_counter()
        yield
        self._seconds_per_step = (time.perf_counter() - began) / steps
