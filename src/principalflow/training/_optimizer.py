"""The optimisers of `principalflow train`, with all numbers that a sweep changes in their state or arguments.

Each is stable up to an edge of its own, which `edge` returns.
"""

from functools import lru_cache
from typing import Any, cast

import jax.numpy as jnp
import optax
import optax.contrib
from jaxtyping import Array

from principalflow._dal import dal
from principalflow._steps import Optimizer, gradient_descent
from principalflow.objective import Objective, Vector
from principalflow.optimizers import Edge, Part
from principalflow.optimizers import edge as edge_of
from principalflow.training._options import RESCALING, Options

# Those of PyTorch.
_BETA2, _BETA2_OF_RMSPROP, _WEIGHT_DECAY = 0.999, 0.99, 0.01


def optimizer(o: Options) -> Optimizer:
    """Returns the optimiser of a single run."""
    match o.optimizer:
        case "dal":
            fixed = dict(momentum=o.momentum or None, per_parameter=o.per_parameter, curvature=o.curvature)
            fixed |= dict(every=o.curvature_every, average=o.average)
            return _dal(cast(float, o.power), o.factor, o.max_learning_rate, **fixed)
        case name if name in RESCALING:
            return _rescaled(*_numbers(o))
        case "prodigy" | "dog":
            return _at_its_own_rate(o.optimizer)
        case _:
            return gradient_descent(o.momentum)


def edge(o: Options, state: Any, step: int, rate: float) -> Edge:
    """Returns a run's edge of stability after so many steps, by the state of its optimiser and the next step's rate."""
    match o.optimizer:
        case name if name in RESCALING:
            tx = optax.chain(_direction(*_numbers(o)), optax.scale_by_learning_rate(rate))
            return edge_of(tx, (state, optax.EmptyState()), optax.tree.get(state, "nu"))
        case "dal" if o.per_parameter:
            return _unknown("dal with a rate for each parameter", rate)
        case "prodigy":
            return _unknown(o.optimizer, rate)
        case _:  # dal and dog take steps of descent, too, at rates of their own
            return Edge.of_descent(rate, momentum=o.momentum)


def _unknown(name: str, rate: float) -> Edge:
    why = f"no threshold is known for {name}, so that lambda_0 is that of the Hessian itself"
    return Edge(optimizer=name, part=Part(learning_rate=rate), unknown=why)


def _numbers(o: Options) -> tuple[str, float, float, float, float]:
    return o.optimizer, o.beta1, _beta2(o), o.eps, _weight_decay(o)


def _beta2(o: Options) -> float:
    default = _BETA2_OF_RMSPROP if o.optimizer == "rmsprop" else _BETA2
    return default if o.beta2 is None else o.beta2


def _weight_decay(o: Options) -> float:
    if o.optimizer != "adamw":
        return 0.0
    return _WEIGHT_DECAY if o.weight_decay is None else o.weight_decay


def _direction(name: str, beta1: float, beta2: float, eps: float, weight_decay: float) -> Any:
    """Returns what makes of gradients the direction to step along."""
    if name == "rmsprop":
        direction = optax.scale_by_rms(beta2, eps, eps_in_sqrt=False)  # as PyTorch has it
    else:
        direction = optax.scale_by_adam(beta1, beta2, eps, nesterov=name == "nadam")
    return optax.chain(direction, optax.add_decayed_weights(weight_decay)) if weight_decay else direction


# The functions are part of the compiled steps: the same ones for the same optimiser, so that it isn't compiled again.
@lru_cache
def _rescaled(*numbers: Any) -> Optimizer:
    direction = _direction(*numbers)

    def update(objective: Objective, gradient: Vector, state: Any, theta: Vector, rate: Array) -> Any:
        along, state = direction.update(gradient, state, theta)
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
