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
from principalflow.optimizers._optax import View, opened, read
from principalflow.optimizers._stages import Clip, Gain, Leaves, Metric, Momentum, Stage, group_of, stepped

# A reading is right if two steps are as it says to this much. Averages over few steps are divided by 1 - b^t, of which
# single precision leaves four digits or so.
_AGREEMENT = 1e-3
_OTHERS_STATE = "the state isn't one of this optimizer's: give what tx.init or the last tx.update returned"


def edge(tx: optax.GradientTransformation, state: optax.OptState, params: PyTree) -> Edge:
    r"""Returns where the edge of stability of an optax optimiser is, by its present state.

    The optimiser moves by $\theta \leftarrow (1 - h w)\,\theta - h P^{-1} (Q * (g + W\theta))$ with momentum Q,
    and is stable as long as the largest eigenvalue of $P^{-1/2} (H + W) P^{-1/2}$ is below $(2 - hw)/(h\,Q(-1))$ (Cohen
    et al. 2021 and 2022): 2/h for sgd and rmsprop, 2(1+m)/h with momentum, 2(1+b1)/((1-b1)h) for adam. Where parameters
    have rates, momentum or decay of their own, P takes up the ratios.

    Known are sgd with both kinds of momentum, rmsprop, adam, adamw, nadam, nadamw, amsgrad, `pf.dal` and `pf.cdat`,
    with schedules, weight decay, masks, `partition`, `chain`, `inject_hyperparams`, `apply_if_finite` and `MultiSteps`.
    It is assumed that no gradient is clipped. The rate is that of the next step.

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


def reader(tx: optax.GradientTransformation) -> Callable[..., Edge]:
    """Returns `edge` as a function of state and parameters, which verifies what it reads the first time only.

    That time it holds the optimiser's state twice more.

    Args:
        tx: The optimiser.

    Returns:
        The function, for a loop. With `last=True` it reads the step that was taken last: at the rate that it had.

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

    def read_state(state: optax.OptState, params: PyTree, *, last: bool = False) -> Edge:
        tree = _floating(params)

        def reading() -> Edge:
            nonlocal verified
            try:
                update, own = opened(tx.update, state)
                verified = verified or _verify(update, own, tree)
                return _edge(_stages(update, own, tree, last=last), tree)
            except (TypeError, AttributeError, KeyError, ValueError):
                if _is_of(tx, state, tree):
                    raise
            raise UnknownError(_OTHERS_STATE)

        return or_unknown(reading)

    return read_state


def _floating(params: PyTree) -> PyTree:
    """Returns the parameters that are floating-point numbers, as arrays, if there are any."""
    tree = eqx.filter(jax.tree.map(_pytrees.floating_as_array, params), eqx.is_inexact_array)
    if not any(leaf.size for leaf in jax.tree.leaves(tree)):
        raise ValueError("params must hold at least one floating-point number, got none.")
    return tree


def _is_of(tx: Any, state: Any, tree: PyTree) -> bool:
    """Whether a state has the structure of the optimiser's."""
    return jax.tree.structure(jax.eval_shape(tx.init, tree)) == jax.tree.structure(state)


def _stages(update: Callable, state: Any, tree: PyTree, *, last: bool = False) -> list[Stage]:
    """Returns the stages of the next step, or of the `last`."""
    return read(update, state, View(_leaves(tree), _numbers(tree), last))


def _leaves(tree: PyTree) -> Leaves:
    return dict(enumerate(jax.tree.leaves(tree)))


def _numbers(tree: PyTree) -> PyTree:
    structure = jax.tree.structure(tree)
    return jax.tree.unflatten(structure, range(structure.num_leaves))


def _edge(stages: Sequence[Stage], tree: PyTree) -> Edge:
    leaves = _leaves(tree)
    dtype = jnp.result_type(jnp.float32, *leaves.values())
    groups = [group_of(i, leaf.size, stages) for i, leaf in leaves.items()]
    clips = any(isinstance(stage, Clip) for stage in stages)
    return combined(groups, lambda size, value: jnp.full(size, value, dtype), clips=clips)


def _verify(update: Callable, state: Any, tree: PyTree) -> bool:
    """Raises unless two steps with random gradients are as the stages predict; returns whether the second moved."""
    random, params = np.random.default_rng(0), _leaves(tree)
    if any(jnp.iscomplexobj(leaf) for leaf in params.values()):
        raise UnknownError("the parameters are complex")
    before = _stages(update, state, tree)
    memory = [leaf.dtype for stage in before if isinstance(stage, Momentum) for leaf in stage.memory.values()]
    names = {stage.optimizer for stage in before if isinstance(stage, Gain | Metric)}
    moved = []
    for _ in range(2):
        gradient = jax.tree.map(lambda w: jnp.asarray(random.standard_normal(w.shape), w.dtype), tree)
        extra = {"hvp": gradient} if "dal" in names else {}
        extra |= {"value_fn": _half_square, "all_params": tree} if "cdat" in names else {}
        updates, state = update(gradient, state, tree, **extra)
        after = _stages(update, state, tree, last=True)
        predicted = stepped(_leaves(gradient), params, before, after)
        moved = [_compare(u, predicted[i], memory) for i, u in enumerate(jax.tree.leaves(updates))]
        before = after
    return any(moved)


def _half_square(params: PyTree) -> Any:
    return optax.tree.norm(params, squared=True) / 2


def _compare(update: Any, predicted: Any, memory: Sequence[Any]) -> bool:
    """Raises unless an update is what was predicted, to the precision of the memory; returns whether it moves."""
    precision = max(float(jnp.finfo(dtype).eps) for dtype in (update.dtype, *memory))
    true, own = (np.asarray(array, float) for array in (update, predicted))
    if not np.all(np.isfinite(true)):
        raise UnknownError("the next step is not finite")
    if np.linalg.norm(true - own) > max(_AGREEMENT, 10 * precision) * np.linalg.norm(true):
        raise UnknownError("its steps are not what its options say")
    return bool(np.any(true))
