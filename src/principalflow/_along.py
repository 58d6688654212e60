"""What DAL and CDAT share: options, the Hessian along an update, how long a measurement holds, what isn't finite."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, ArrayLike, PyTree

from principalflow import _loss, _updates
from principalflow._curvature import FINITE_DIFFERENCE_STEP, Curvature


def option(check: Callable, name: str, value: Any) -> Any:
    """Returns an option as a number if it is right.

    An array is from `optax.inject_hyperparams`, where a schedule may end at zero, and stays as it is.
    """
    if callable(value):
        raise ValueError(f"{name} must be a number; optax.inject_hyperparams(...)({name}=...) takes a schedule.")
    if not isinstance(value, (jax.Array, np.ndarray)):
        return check(name, value)
    if value.ndim or not jnp.issubdtype(value.dtype, jnp.number) or jnp.iscomplexobj(value):
        raise ValueError(f"{name} must be one real number, got {value.dtype}{value.shape}.")
    return value


def check_parameters(params: PyTree, curvature: Curvature) -> None:
    """Raises unless the parameters are real, and precise enough for a finite difference where one is taken."""
    _updates.check_real("params", params)
    for dtype in map(jnp.result_type, jax.tree.leaves(params)):
        if curvature == "finite_difference" and jnp.finfo(dtype).bits < 32:
            raise ValueError(
                f"a finite difference of {dtype} parameters is lost in rounding: use curvature='hvp', "
                "or keep the parameters in float32."
            )


def check_state(state: Any, kind: type) -> None:
    """Raises unless it is a state of this kind."""
    if not isinstance(state, kind):
        raise ValueError(f"state must be what init or the last update returned, got a {type(state).__name__}.")


def checked_update(updates: PyTree, params: PyTree | None, all_params: PyTree | None) -> tuple[PyTree, PyTree]:
    """Returns gradients and parameters as arrays if they and all parameters belong together, or raises."""
    _updates.check_real("updates", updates)
    for name, tree in (("params", params), ("all_params", all_params)):
        if tree is not None:
            _updates.check_real(name, _updates.matching(name, tree, updates))
    return jax.tree.map(jnp.asarray, updates), jax.tree.map(jnp.asarray, params)


@contextmanager
def measured_loss(
    value_fn: Any, curvature_fn: Callable | None, params: PyTree, all_params: PyTree, curvature: Curvature
) -> Iterator[Callable]:
    """Gives the loss to measure as a function of the visible parameters, and names it where it lacks a derivative."""
    name, loss_fn = ("value_fn", value_fn) if curvature_fn is None else ("curvature_fn", curvature_fn)
    loss = _updates.visible_loss(name, loss_fn, params, all_params)
    with _loss.needs(name, "a gradient" if curvature == "finite_difference" else _loss.PRODUCTS):
        yield loss


def unit(updates: PyTree, length: Array, params: PyTree) -> PyTree:
    """Returns the direction of the updates, whose norm is `length`, in the parameters' dtypes."""
    return jax.tree.map(lambda u, w: u.astype(w.dtype), _updates.over(updates, length), params)


def gradient_and_product(
    loss: Callable, params: PyTree, direction: PyTree, curvature: Curvature
) -> tuple[PyTree, PyTree]:
    """Returns the gradient of the loss, and its Hessian times the direction."""
    gradient = jax.grad(loss)
    if curvature == "hvp":
        return jax.jvp(gradient, (params,), (direction,))
    # The gradient of this loss, here, and not the updates: those may be clipped, or the mean of several batches. In the
    # jit that computed them it is the same computation, done once. The barrier makes the second gradient wait for the
    # first, so that both use the same memory.
    ahead = jax.tree.map(lambda w, d: w + FINITE_DIFFERENCE_STEP * d, params, direction)
    here, ahead = jax.lax.optimization_barrier((gradient(params), ahead))
    return here, jax.tree.map(lambda a, b: (a - b) / FINITE_DIFFERENCE_STEP, gradient(ahead), here)


def newest_weight(average: ArrayLike | None, measurements: Array) -> ArrayLike:
    """Returns the weight of a new measurement in a running average after so many, corrected for its start as Adam's."""
    if average is None:
        return 1.0
    weight = (1 - average) / (1 - average ** (measurements + 1))
    return jnp.where(measurements == 0, 1, weight)  # to begin with the first alone, whatever the rounding


def held(measure: Callable, kept: tuple, *, is_due: Callable, every: Any, size: Array) -> tuple[tuple, Array]:
    """Returns what is measured now or else was kept, and which part of an update of this size may be taken.

    Args:
        measure: Returns the measurements, the last of which is the length of the updates that they hold for.
        kept: The same, from the last time.
        is_due: Returns whether to measure now.
        every: Where it is 1, that is always so, and compiled without a condition.
        size: The norm of the updates.
    """
    if isinstance(every, int) and every == 1:
        measured, part = measure(), 1.0
    else:
        due = is_due()
        measured = _updates.if_(due, measure, lambda: kept)
        # A rate that is kept lets the sharpest directions grow, and nothing would hold them before the next
        # measurement; so until then no step is longer than the measured one.
        length = measured[-1]
        part = jnp.where(due | ~(size > length), 1, length / size)
    return measured, jnp.where(jnp.isfinite(size), part, jnp.nan)  # what is not finite has no rate that is


def counted(steps: PyTree, state: Any, before: Any, *, numbers: PyTree, skip: bool) -> tuple[PyTree, Any]:
    """Returns steps and state, `nonfinite` counting whether the numbers are finite; or none and the state before."""
    finite = jnp.all(jnp.array([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(numbers)]))
    if skip:
        steps = jax.tree.map(lambda step: jnp.where(finite, step, jnp.zeros_like(step)), steps)
        state = jax.tree.map(lambda new, kept: jnp.where(finite, new, kept), state, before)
    nonfinite = jnp.where(finite, before.nonfinite, optax.safe_increment(before.nonfinite))
    return steps, state._replace(nonfinite=nonfinite)
