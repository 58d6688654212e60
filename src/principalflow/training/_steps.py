"""Many steps of training in one compiled call."""

from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from principalflow._compiled import compiled
from principalflow.objective import Objective, Vector
from principalflow.training._optimizer import Optimizer

# The most steps of one call: so many numbers fit its buffers.
AT_ONCE = 256


class State(NamedTuple):
    """What a step changes."""

    theta: Vector
    optimizer: Any


class Log(NamedTuple):
    """What each of the steps saw before its update; the first `taken` entries count."""

    taken: Int[Array, ""]
    losses: Float[Array, " at_once"]
    gradient_norms: Float[Array, " at_once"]
    rates: Float[Array, " at_once"]


def _advance(
    objective: Objective,
    optimizer: Optimizer,
    state: State,
    rates: Float[Array, " at_once"],
    batches: Int[Array, "at_once batch"] | None,
    count: Int[Array, ""],
) -> tuple[State, Log]:
    """Takes `count` steps, fewer where a loss is not finite.

    The count is an argument, not a shape: however a run is cut into calls, the same code computes the same numbers.
    """

    def unfinished(carry: tuple[State, Log]) -> Array:
        _, log = carry
        return (log.taken < count) & ((log.taken == 0) | jnp.isfinite(log.losses[log.taken - 1]))

    def step(carry: tuple[State, Log]) -> tuple[State, Log]:
        state, log = carry
        i = log.taken
        sampled = objective if batches is None else objective.batch(batches[i])
        loss, gradient = sampled.value_and_gradient(state.theta)
        update, inner, rate = optimizer.update(sampled, gradient, state.optimizer, state.theta, rates[i])
        seen = loss, jnp.linalg.norm(gradient), rate
        columns = [column.at[i].set(value) for column, value in zip(log[1:], seen, strict=True)]
        return State(state.theta + update.astype(state.theta.dtype), inner), Log(i + 1, *columns)

    empty = jnp.zeros(AT_ONCE, state.theta.dtype)
    return lax.while_loop(unfinished, step, (state, Log(jnp.zeros((), jnp.int32), empty, empty, empty)))


def _advance_together(*arguments: Any) -> tuple[State, Log]:
    """The same for several runs at once, along the first axes of their states, rates, batches and counts."""
    return eqx.filter_vmap(_advance, in_axes=(None, None, 0, 0, 0, 0))(*arguments)


advance, advance_together = compiled(_advance), compiled(_advance_together)
