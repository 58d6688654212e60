"""The optimisers of `principalflow train`, with all numbers that a sweep changes in their state or arguments."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import optax
import optax.contrib
from jaxtyping import Array

from principalflow._dal import dal
from principalflow.objective import Objective, Vector
from principalflow.training._options import Options


class Optimizer(NamedTuple):
    """`init(theta)`, and `update(objective, gradient, state, theta, rate)`: the update, the state, the rate it took."""

    init: Callable[[Vector], Any]
    update: Callable[[Objective, Vector, Any, Vector, Array], tuple[Vector, Any, Array]]


def optimizer(o: Options) -> Optimizer:
    """Returns the optimiser of a single run."""
    match o.optimizer:
        case "dal":
            return _dal(o)
        case "adam":
            return _at_a_rate(optax.scale_by_adam())
        case "prodigy":
            return _at_its_own_rate(optax.contrib.prodigy())
        case "dog":
            return _at_its_own_rate(optax.contrib.dog())
        case _:
            return _at_a_rate(optax.trace(o.momentum) if o.momentum else optax.identity())


def _at_a_rate(direction: Any) -> Optimizer:
    def update(objective: Objective, gradient: Vector, state: Any, theta: Vector, rate: Array) -> Any:
        along, state = direction.update(gradient, state)
        return -rate * along, state, rate

    return Optimizer(direction.init, update)


def _at_its_own_rate(tx: Any) -> Optimizer:
    def update(objective: Objective, gradient: Vector, state: Any, theta: Vector, rate: Array) -> Any:
        updates, state = tx.update(gradient, state, theta)
        length = jnp.linalg.norm(gradient)
        used = jnp.where(length > 0, jnp.linalg.norm(updates) / length, 0)
        return updates, state, used.astype(rate.dtype)

    return Optimizer(tx.init, update)


def _dal(o: Options) -> Optimizer:
    fixed = dict(momentum=o.momentum or None, per_parameter=o.per_parameter, curvature=o.curvature)
    fixed |= dict(every=o.curvature_every, average=o.average)
    # Numbers become part of the state, so that other numbers don't compile anew.
    tx: Any = optax.inject_hyperparams(dal, static_args=(*fixed, "weight_decay", "skip_nonfinite"))(
        power=o.power, factor=o.factor, max_learning_rate=o.max_learning_rate, **fixed
    )

    def update(objective: Objective, gradient: Vector, state: Any, theta: Vector, rate: Array) -> Any:
        updates, state = tx.update(gradient, state, theta, value_fn=objective.function())
        used = optax.tree.get(state, "drift_learning_rate")
        return updates, state, jnp.mean(used).astype(rate.dtype)  # the mean over the parameters, where each has its own

    return Optimizer(tx.init, update)
