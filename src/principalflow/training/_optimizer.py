"""The optimisers of `principalflow train`, with all numbers that a sweep changes in their state or arguments."""

from functools import lru_cache
from typing import Any, cast

import jax.numpy as jnp
import optax
import optax.contrib
from jaxtyping import Array

from principalflow._dal import dal
from principalflow._steps import Optimizer, gradient_descent
from principalflow.objective import Objective, Vector
from principalflow.training._options import Options


def optimizer(o: Options) -> Optimizer:
    """Returns the optimiser of a single run."""
    match o.optimizer:
        case "dal":
            fixed = dict(momentum=o.momentum or None, per_parameter=o.per_parameter, curvature=o.curvature)
            fixed |= dict(every=o.curvature_every, average=o.average)
            return _dal(cast(float, o.power), o.factor, o.max_learning_rate, **fixed)
        case "adam":
            return _adam()
        case "prodigy" | "dog":
            return _at_its_own_rate(o.optimizer)
        case _:
            return gradient_descent(o.momentum)


# The functions are part of the compiled steps: the same ones for the same optimiser, so that it isn't compiled again.
@lru_cache
def _adam() -> Optimizer:
    direction: Any = optax.scale_by_adam()

    def update(objective: Objective, gradient: Vector, state: Any, theta: Vector, rate: Array) -> Any:
        along, state = direction.update(gradient, state)
        return -rate * along, state, rate

    return Optimizer(direction.init, update)


@lru_cache
def _at_its_own_rate(name: str) -> Optimizer:
    tx = getattr(optax.contrib, name)()

    def update(objective: Objective, gradient: Vector, state: Any, theta: Vector, rate: Array) -> Any:
        updates, state = tx.update(gradient, state, theta)
        length = jnp.linalg.norm(gradient)
        used = jnp.where(length > 0, jnp.linalg.norm(updates) / length, 0)
        return updates, state, used.astype(rate.dtype)

    return Optimizer(tx.init, update)


@lru_cache
def _dal(power: float, factor: float, max_learning_rate: float, **fixed: Any) -> Optimizer:
    # Numbers become part of the state, so that other numbers don't compile anew.
    tx: Any = optax.inject_hyperparams(dal, static_args=(*fixed, "weight_decay", "skip_nonfinite"))(
        power=power, factor=factor, max_learning_rate=max_learning_rate, **fixed
    )

    def update(objective: Objective, gradient: Vector, state: Any, theta: Vector, rate: Array) -> Any:
        updates, state = tx.update(gradient, state, theta, value_fn=objective.function())
        used = optax.tree.get(state, "drift_learning_rate")
        return updates, state, jnp.mean(used).astype(rate.dtype)  # the mean over the parameters, where each has its own

    return Optimizer(tx.init, update)
