"""The edge of stability of an optax optimiser, read from its functions and its state."""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import PyTree

from principalflow import _checks, _pytrees
from principalflow.optimizers._edge import Edge
from principalflow.optimizers._groups import UnknownError, combined, or_unknown
from principalflow.optimizers._optax import View, function_of, read
from principalflow.optimizers._stages import Clip, Gain, Leaves, Metric, Stage, group_of, stepped

# A reading is right if two steps are as it says to this much. Averages over few steps are divided by 1 - b^t, of which
# single precision leaves four digits or so.
_AGREEMENT = 1e-3


def edge(tx: optax.GradientTransformation, state: optax.OptState, params: PyTree) -> Edge:
    r"""Returns where the edge of stability of an optax optimiser is, by its present state.

    The optimiser moves by $\theta \leftarrow (1 - h w)\,\theta - h P^{-1} (Q * (g + W\theta))$ with momentum Q,
    and is stable as long as the largest eigenvalue of $P^{-1/2} (H + W) P^{-1/2}$ is below $(2 - hw)/(h\,Q(-1))$ (Cohen
    et al. 2021 and 2022): 2/h for sgd and rmsprop, 2(1+m)/h with momentum, 2(1+b1)/((1-b1)h) for adam. Where parameters
    have rates, momentum or decay of their own, P takes up the ratios.

    Known are sgd with both kinds of momentum, rmsprop, adam, adamw, nadam, nadamw, amsgrad, `pf.dal` and `pf.cdat`,
    with schedules, weight decay, masks, `partition`, `chain`, `inject_hyperparams`, `apply_if_finite` and `MultiSteps`.
    Gradients are taken not to be clipped. The rate is that of the next step.

    What is read is verified: two steps with random gradients must be what the reading predicts. An optimiser that isn't
    known, or for which this fails, has no threshold but a sentence that says why, in `unknown`.

    Args:
        tx: The optimiser.
        state: Its state.
        params: The parameters that it was initialised with, or their present values.

    Returns:
        The `Edge`; its vectors are flat, in the order of the parameters' leaves.

    Raises:
        ValueError: For a `tx` that isn't an optax transformation, or params without floating-point numbers.

    Example:
        >>> import jax.numpy as jnp, optax
        >>> import principalflow as pf
        >>> params = {"w": jnp.ones(3)}
        >>> tx = optax.sgd(0.1, momentum=0.9)
        >>> edge = pf.optimizers.edge(tx, tx.init(params), params)
        >>> print(f"{edge.threshold:g} = {edge.formula}{edge.why}")
        38 = 2(1+m)/h, the threshold with momentum m = 0.9,
    """
    return reader(tx)(state, params)


def reader(tx: optax.GradientTransformation) -> Callable[[optax.OptState, PyTree], Edge]:
    """Returns `edge` as a function of state and parameters, which verifies what it reads the first time only.

    That time it holds the optimiser's state twice more.

    Args:
        tx: The optimiser.

    Returns:
        The function, for a loop.

    Raises:
        ValueError: For a `tx` that isn't an optax transformation.

    Example:
        >>> import jax.numpy as jnp, optax
        >>> import principalflow as pf
        >>> params, tx = jnp.ones(2), optax.adam(1e-3)
        >>> read = pf.optimizers.reader(tx)
        >>> state = tx.init(params)
        >>> print(read(state, params).unknown)
        adam has taken no step yet, so it is not known how long its steps are
        >>> _, state = tx.update(jnp.array([3.0, 4.0]), state, params)
        >>> print(read(state, params).preconditioner.round(3), round(read(state, params).threshold))
        [0.3 0.4] 38000
    """
    if not all(callable(getattr(tx, name, None)) for name in ("init", "update")):
        raise ValueError(f"tx must be an optax.GradientTransformation, got {_checks.shown(tx)}.")
    verified = False

    def read_state(state: optax.OptState, params: PyTree) -> Edge:
        tree = _floating(params)

        def reading() -> Edge:
            nonlocal verified
            inner, own, times = _opened(tx, state)
            verified = verified or _verify(inner, own, tree)
            return _edge(_stages(inner, own, tree), tree, times)

        return or_unknown(reading)

    return read_state


def _floating(params: PyTree) -> PyTree:
    """Returns the parameters that are floating-point numbers, as arrays, if there are any."""
    tree = eqx.filter(jax.tree.map(_pytrees.floating_as_array, params), eqx.is_inexact_array)
    if not any(leaf.size for leaf in jax.tree.leaves(tree)):
        raise ValueError("params must hold at least one floating-point number, got none.")
    return tree


def _opened(tx: Any, state: Any) -> tuple[Any, Any, float]:
    """Returns what is inside of `optax.MultiSteps`, its state, and how many gradients it adds up."""
    several: Any = tx if isinstance(tx, optax.MultiSteps) else getattr(function_of(tx.update), "__self__", None)
    if not isinstance(several, optax.MultiSteps):
        return tx, state, 1.0
    steps: Any = several._every_k_schedule(state.gradient_step)
    times = 1.0 if several._use_grad_mean else float(steps)
    return several.inner_opt, state.inner_opt_state, times


def _stages(tx: Any, state: Any, tree: PyTree, *, last: bool = False) -> list[Stage]:
    """Returns the stages of the next step, or of the `last`."""
    return read(tx.update, state, View(_leaves(tree), _numbers(tree), last))


def _leaves(tree: PyTree) -> Leaves:
    return dict(enumerate(jax.tree.leaves(tree)))


def _numbers(tree: PyTree) -> PyTree:
    structure = jax.tree.structure(tree)
    return jax.tree.unflatten(structure, range(structure.num_leaves))


def _edge(stages: Sequence[Stage], tree: PyTree, times: float) -> Edge:
    leaves = _leaves(tree)
    if times != 1:
        stages = [Gain(frozenset(leaves), times), *stages]
    dtype = jnp.result_type(jnp.float32, *leaves.values())
    groups = [group_of(i, leaf.size, stages) for i, leaf in leaves.items()]
    clips = any(isinstance(stage, Clip) for stage in stages)
    return combined(groups, lambda size, value: jnp.full(size, value, dtype), clips=clips)


def _verify(tx: Any, state: Any, tree: PyTree) -> bool:
    """Raises unless two steps with random gradients are as the stages predict; returns whether the second moved."""
    random, params = np.random.default_rng(0), _leaves(tree)
    if any(jnp.iscomplexobj(leaf) for leaf in params.values()):
        raise UnknownError("the parameters are complex, for which no threshold is known")
    before = _stages(tx, state, tree)
    names = {stage.optimizer for stage in before if isinstance(stage, Gain | Metric)}
    moved = []
    for _ in range(2):
        gradient = jax.tree.map(lambda w: jnp.asarray(random.standard_normal(w.shape), w.dtype), tree)
        extra = {"hvp": gradient} if "dal" in names else {}
        extra |= {"value_fn": _half_square, "all_params": tree} if "cdat" in names else {}
        updates, state = tx.update(gradient, state, tree, **extra)
        after = _stages(tx, state, tree, last=True)
        predicted = stepped(_leaves(gradient), params, before, after)
        moved = [_compare(update, predicted[i]) for i, update in enumerate(jax.tree.leaves(updates))]
        before = after
    return any(moved)


def _half_square(params: PyTree) -> Any:
    return optax.tree.norm(params, squared=True) / 2


def _compare(update: Any, predicted: Any) -> bool:
    """Raises unless an update is what was predicted; returns whether it moves."""
    precision = float(jnp.finfo(update.dtype).eps)
    true, own = (np.asarray(array, float) for array in (update, predicted))
    if not np.all(np.isfinite(true)):
        raise UnknownError("the next step is not finite")
    if np.linalg.norm(true - own) > max(_AGREEMENT, 10 * precision) * np.linalg.norm(true):
        raise UnknownError("its steps are not what its options say, so there is no threshold for it")
    return bool(np.any(true))
