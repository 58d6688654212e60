"""Reads what an optax transformation does, as stages.

The options of a transformation are in the closure of its update function, and what it remembers is in its state.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import MethodType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import PyTree

from principalflow.optimizers._edge import Filter
from principalflow.optimizers._groups import UnknownError
from principalflow.optimizers._stages import Clip, Decay, Gain, Leaves, Metric, Momentum, Stage

_MISFIT = "the state doesn't fit the parameters: give those that tx.init was called with"
# From here on a correction for an average's start doesn't matter.
_STARTED = 1 - 1e-6


@dataclass(frozen=True)
class View:
    """What a transformation sees of the parameters, and of time.

    Attributes:
        params: All leaves.
        numbers: A tree of the numbers of the leaves that it sees.
        last: Whether to read what the last step did; else what the next one will do, as far as the state says it.
    """

    params: Leaves
    numbers: PyTree
    last: bool = False

    @property
    def leaves(self) -> frozenset[int]:
        """The numbers of the leaves that it sees."""
        return frozenset(jax.tree.leaves(self.numbers))

    def tree(self) -> PyTree:
        """Returns the parameters that it sees."""
        return jax.tree.map(self.params.__getitem__, self.numbers)

    def by_number(self, tree: PyTree) -> Leaves:
        """Returns the leaves of a tree in the state by their numbers."""
        leaves, numbers = jax.tree.leaves(tree), jax.tree.leaves(self.numbers)
        if len(leaves) != len(numbers):
            raise UnknownError(_MISFIT)
        return dict(zip(numbers, leaves, strict=True))

    def masked(self, mask: Any) -> "View":
        """Returns what is seen through a mask of optax's."""
        callables = [callable(leaf) for leaf in jax.tree.leaves(mask)]
        mask = mask(self.tree()) if callables and all(callables) else mask
        seen = jax.tree.map(lambda m, numbers: numbers if m else optax.MaskedNode(), mask, self.numbers)
        return replace(self, numbers=seen)

    def number(self, value: Any, state: Any) -> float:
        """Returns a number, or that of a schedule at the step that is read."""
        if callable(value):
            value = value(state.count - 1 if self.last else state.count)
        return float(value)  # pyright: ignore[reportArgumentType]


def read(update: Callable, state: Any, view: View) -> list[Stage]:
    """Returns the stages of a transformation, by its update function."""
    inner = function_of(update)
    name = _name(inner)
    if name in _CLIPS:
        return [Clip(view.numbers, inner)]
    if name not in _READERS:
        raise UnknownError(f"{name} can't be read")
    return _READERS[name](_options(inner), state, view)


def opened(update: Any, state: Any) -> tuple[Callable, Any]:
    """Returns an update function and its state without `optax.MultiSteps`: a step on all of its batches at once.

    It is looked for at the end of a chain of functions without memory, which do the same to each batch.
    """
    function = function_of(update)
    several = getattr(function, "__self__", None)
    if isinstance(several, optax.MultiSteps):
        inner, times = several.inner_opt.update, float(several._every_k_schedule(state.gradient_step))  # pyright: ignore
        if several._use_grad_mean:
            return inner, state.inner_opt_state
        return _chained([(_summed(times), optax.EmptyState()), (inner, state.inner_opt_state)])
    if _name(function) == "optax.with_extra_args_support":
        inner = opened(within := _options(function)["tx"].update, state)
        return (update, state) if inner[0] is within else inner
    if _name(function) == "optax.chain" and state and not jax.tree.leaves(state[:-1]):
        *first, last = zip(_options(function)["update_fns"], state, strict=True)
        inner = opened(*last)
        return (update, state) if inner[0] is last[0] else _chained([*first, inner])
    return update, state


def _chained(parts: list[tuple[Callable, Any]]) -> tuple[Callable, Any]:
    updates, states = zip(*parts, strict=True)
    chain = optax.chain(*(optax.GradientTransformationExtraArgs(optax.init_empty_state, update) for update in updates))
    return chain.update, states


def _summed(times: float) -> Callable:
    """Returns the update function that makes the sum of gradients from their mean."""

    def update(updates: PyTree, state: Any, params: PyTree = None, **extra: Any) -> tuple[PyTree, Any]:
        return jax.tree.map(lambda u: times * u, updates), state

    return update


def function_of(update: Any) -> Callable:
    """Returns the function behind partial applications and compilation."""
    while not isinstance(update, MethodType):
        if isinstance(update, functools.partial):
            update = update.func
        elif hasattr(update, "__wrapped__"):
            update = update.__wrapped__
        else:
            break
    return update


def _name(update: Callable) -> str:
    """Returns the name of what made an update function, with its package: `optax.scale_by_adam`."""
    module, name = getattr(update, "__module__", ""), getattr(update, "__qualname__", type(update).__name__)
    return f"{str(module).partition('.')[0]}.{name.partition('.')[0]}"


def _options(update: Any) -> dict[str, Any]:
    """Returns the variables that a function closes over."""
    cells = getattr(update, "__closure__", None) or ()
    return {name: cell.cell_contents for name, cell in zip(update.__code__.co_freevars, cells, strict=True)}


def _chain(options: dict, state: Any, view: View) -> list[Stage]:
    return _all(list(zip(options["update_fns"], state, strict=True)), view)


def _named_chain(options: dict, state: Any, view: View) -> list[Stage]:
    return _all([(tx.update, state[name]) for name, tx in options["transforms"]], view)


def _all(parts: list[tuple[Callable, Any]], view: View) -> list[Stage]:
    return [stage for update, state in parts for stage in read(update, state, view)]


def _partition(options: dict, state: Any, view: View) -> list[Stage]:
    labels = options["param_labels"]
    labels = labels(view.tree()) if callable(labels) else labels
    stages = []
    for group, tx in options["transforms"].items():
        mask = jax.tree.map(lambda label, group=group: label == group, labels)
        stages += read(tx.update, state.inner_states[group].inner_state, view.masked(mask))
    return stages


def _masked(options: dict, state: Any, view: View) -> list[Stage]:
    return read(options["inner"].update, state.inner_state, view.masked(options["mask"]))


def _injected(options: dict, state: Any, view: View) -> list[Stage]:
    values = dict(state.hyperparams)
    if not view.last:
        values |= {name: f(state.hyperparams_states[name]) for name, f in options["sched_hps"].items()}
    tx = options["inner_factory"](**options["other_hps"], **values)
    return read(tx.update, state.inner_state, view)


def _within(options: dict, state: Any, view: View) -> list[Stage]:
    return read(options["inner"].update, state.inner_state, view)


def _gain(options: dict, state: Any, view: View) -> list[Stage]:
    factor = options["step_size_fn" if "step_size_fn" in options else "step_size"]
    return [Gain(view.leaves, view.number(factor, state))]


def _decay(options: dict, state: Any, view: View) -> list[Stage]:
    return [Decay(view.leaves, view.number(options["weight_decay"], state))]


def _trace(options: dict, state: Any, view: View) -> list[Stage]:
    heavy_ball = Filter.heavy_ball(float(options["decay"]), nesterov=bool(options["nesterov"]))
    return [Momentum(view.by_number(state.trace), heavy_ball, passed=1.0)]


def _adam(options: dict, state: Any, view: View) -> list[Stage]:
    b1, b2, t = float(options["b1"]), float(options["b2"]), _steps(state)
    nesterov = bool(options["nesterov"])
    average = Filter.average(b1, nesterov=nesterov)
    # NAdam corrects the average for one step more than the gradient.
    ratio = _share(b1, t) / _share(b1, t + 1)
    if nesterov and ratio < _STARTED:
        words = (f"b1 = {b1:g} (corrected for its start)",)
        average = Filter.of_average(b1, 1 - b1, b1 * ratio, 1 - b1, average.formula, words)
    squares = _over(view.by_number(state.nu), _share(b2, t))
    name = "nadam" if nesterov else "adam"
    return _adaptive(name, options, state, view, average, squares, squares, _share(b1, t), b2)


def _amsgrad(options: dict, state: Any, view: View) -> list[Stage]:
    b1, b2, t = float(options["b1"]), float(options["b2"]), _steps(state)
    b2 = b2 if options["bias_correction_nu"] else 0.0
    squares = _over(view.by_number(state.nu), _share(b2, t))
    share = _share(b1, t) if options["bias_correction_mu"] else 1.0
    largest = _over(view.by_number(state.nu_max), 1.0)
    return _adaptive("amsgrad", options, state, view, Filter.average(b1), squares, largest, share, b2)


def _adaptive(
    name: str,
    options: dict,
    state: Any,
    view: View,
    average: Filter,
    squares: Leaves,
    of: Leaves,
    share: float,
    beta2: float,
) -> list[Stage]:
    """Returns an average of the gradients and a metric from one of their squares."""
    eps, eps_root = float(options["eps"]), float(options["eps_root"])
    P = {i: share * (jnp.sqrt(nu + eps_root) + eps) for i, nu in of.items()}
    momentum = Momentum(view.by_number(state.mu), average, 1 - float(options["b1"]))
    return [momentum, Metric(P, squares, name, int(state.count) == 0, beta2)]


def _rms(options: dict, state: Any, view: View) -> list[Stage]:
    counted, eps = "count" in state._fields, float(options["eps"])
    beta2 = float(options["decay"]) if counted else 0.0
    share = _share(beta2, _steps(state)) if counted else 1.0
    squares = variances = _over(view.by_number(state.nu), share)
    if "mu" in state._fields:
        means = _over(view.by_number(state.mu), share)
        variances = {i: nu - means[i] ** 2 for i, nu in squares.items()}
    in_root = bool(options["eps_in_sqrt"])
    P = {i: jnp.sqrt(nu + eps) if in_root else jnp.sqrt(nu) + eps for i, nu in variances.items()}
    starting = int(state.count) == 0 if counted else not any(bool(jnp.any(nu)) for nu in squares.values())
    return [Metric(P, squares, "rmsprop", starting, beta2)]


def _sum(options: dict, state: Any, view: View) -> list[Stage]:
    P = 1 / options["times"]
    return [Metric({i: jnp.full(w.shape, P) for i, w in view.by_number(view.tree()).items()}, {}, "")]


def _dal(options: dict, state: Any, view: View) -> list[Stage]:
    """Returns the stages of `principalflow.dal`."""
    weight, rates = options["weight_decay"], _dal_rate(options, state.scale, view)
    stages = [*rates, *read(options["inertia"].update, state.momentum, view)]
    if weight is not None:
        if options["per_parameter"]:
            raise UnknownError("dal's rates for each parameter can't be read together with weight decay")
        stages.append(Decay(view.leaves, float(weight) * rates[0].factor))
    return [*stages, Gain(view.leaves, -1.0)]


def _dal_rate(options: dict, state: Any, view: View) -> list[Any]:
    rate, starting = state.drift_learning_rate, int(state.count) == 0
    if not options["per_parameter"]:
        return [Gain(view.leaves, float(rate), "dal", starting)]
    return [Metric({i: 1 / h for i, h in view.by_number(rate).items()}, {}, "dal", starting)]


def _cdat(options: dict, state: Any, view: View) -> list[Stage]:
    """Returns the stages of `principalflow.cdat`: those of its base, and the rate of the last step."""
    rate = Gain(view.leaves, float(state.curvature_learning_rate), "cdat", int(state.count) == 0)
    return [*read(options["proposing"].update, state.base, view), rate]


def _steps(state: Any) -> int:
    """Returns how many steps were taken, but at least one, so that averages can be divided by their share."""
    return max(int(state.count), 1)


def _share(decay: float, steps: int) -> float:
    """Returns how much of an average over so many steps is not its start, in optax's precision."""
    return float(1 - np.asarray(decay, jnp.result_type(float)) ** steps)


def _over(leaves: Leaves, share: float) -> Leaves:
    """Returns an average corrected for its start, in single precision at least."""
    return {i: leaf.astype(jnp.promote_types(leaf.dtype, jnp.float32)) / share for i, leaf in leaves.items()}


# By the function in optax that makes them; inner functions are read with the state that is theirs.
_READERS: dict[str, Callable[[dict, Any, View], list[Stage]]] = {
    "optax.with_extra_args_support": lambda options, state, view: read(options["tx"].update, state, view),
    "optax.chain": _chain,
    "optax.named_chain": _named_chain,
    "optax.partition": _partition,
    "optax.masked": _masked,
    "optax.inject_hyperparams": _injected,
    "optax.apply_if_finite": _within,
    "optax.identity": lambda options, state, view: [],
    "optax.zero_nans": lambda options, state, view: [],
    "optax.set_to_zero": lambda options, state, view: [Gain(view.leaves, 0.0)],
    "optax.scale": _gain,
    "optax.scale_by_schedule": _gain,
    "optax.add_decayed_weights": _decay,
    "optax.trace": _trace,
    "optax.scale_by_adam": _adam,
    "optax.scale_by_amsgrad": _amsgrad,
    "optax.scale_by_rms": _rms,
    "optax.scale_by_stddev": _rms,
    "principalflow._summed": _sum,
    "principalflow.cdat": _cdat,
    "principalflow.dal": _dal,
    "principalflow.scale_by_dal": _dal_rate,
}
# They shorten what is too long, and are assumed to find nothing that is.
_CLIPS = {"optax.clip", "optax.clip_by_global_norm", "optax.clip_by_block_rms", "optax.adaptive_grad_clip"}
