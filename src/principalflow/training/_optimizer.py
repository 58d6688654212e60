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
from principalflow.optimizers import Edge, Filter, Group, Part, combined, or_unknown
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
            return _rescaled(o.optimizer, o.beta1, _beta2(o), o.eps, _weight_decay(o))
        case "prodigy" | "dog":
            return _at_its_own_rate(o.optimizer)
        case _:
            return gradient_descent(o.momentum)


def edge(o: Options, state: Any, step: int, rate: float) -> Edge:
    """Returns a run's edge of stability after so many steps, by the state of its optimiser and the next step's rate."""
    match o.optimizer:
        case name if name in RESCALING:
            group = _rescaling_group(o, optax.tree.get(state, "nu"), step, rate)
            return or_unknown(lambda: combined([group], jnp.full))
        case "dal" if o.per_parameter:
            return _unknown("dal with a rate for each parameter", rate)
        case "prodigy":
            return _unknown(o.optimizer, rate)
        case _:  # dal and dog take steps of descent, too, at rates of their own
            return Edge.of_descent(rate, momentum=o.momentum)


def _rescaling_group(o: Options, second_moment: Vector, step: int, rate: float) -> Group:
    """Returns how all parameters move: along an average of gradients, over the root of one of their squares."""
    averages, beta1 = o.optimizer != "rmsprop", o.beta1
    if averages and step:  # what is missing of both averages at the start
        second_moment = second_moment / (1 - _beta2(o) ** step)
    missing = beta1**step if averages else 0.0
    momentum = Filter.average(beta1, nesterov=o.optimizer == "nadam") if averages and beta1 else Filter()
    return Group(
        size=second_moment.size,
        optimizer=o.optimizer,
        part=Part(learning_rate=rate, filter=momentum, weight_decay=_weight_decay(o)),
        preconditioner=(1 - missing) * (jnp.sqrt(second_moment) + o.eps),
        second_moment=second_moment,
        starting=not step,
    )


def _unknown(name: str, rate: float) -> Edge:
    why = f"no threshold is known for {name}, so that lambda_0 is that of the Hessian itself"
    return Edge(optimizer=name, part=Part(learning_rate=rate), unknown=why)


def _beta2(o: Options) -> float:
    default = _BETA2_OF_RMSPROP if o.optimizer == "rmsprop" else _BETA2
    return default if o.beta2 is None else o.beta2


def _weight_decay(o: Options) -> float:
    if o.optimizer != "adamw":
        return 0.0
    return _WEIGHT_DECAY if o.weight_decay is None else o.weight_decay


# The functions are part of the compiled steps: the same ones for the same optimiser, so that it isn't compiled again.
@lru_cache
def _rescaled(name: str, beta1: float, beta2: float, eps: float, weight_decay: float) -> Optimizer:
    if name == "rmsprop":
        direction: Any = optax.scale_by_rms(beta2, eps, eps_in_sqrt=False)  # as PyTorch has it
    else:
        direction = optax.scale_by_adam(beta1, beta2, eps, nesterov=name == "nadam")
    if weight_decay:
        direction = optax.chain(direction, optax.add_decayed_weights(weight_decay))

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
