"""Trees of gradients and parameters as optax hands them to `update`: checked, measured and scaled."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.core import Tracer
from jaxtyping import Array, PyTree

from principalflow import _checks, _loss

NO_PARAMS = "update needs params, the parameters: update(grads, state, params, value_fn=...)."


def visible_loss(name: str, loss_fn: Callable, params: PyTree | None, all_params: PyTree | None) -> Callable:
    """Returns the loss as a function of the parameters that masks leave visible."""
    if params is None:
        raise ValueError(NO_PARAMS)
    _checks.function(name, loss_fn, "params")
    masked = any(map(_is_masked, jax.tree.leaves(params, is_leaf=_is_masked)))
    if masked and all_params is None:
        raise ValueError(
            "some parameters are masked, so that value_fn can't be called: give all of them too, "
            "update(grads, state, params, value_fn=..., all_params=params)."
        )

    def loss(visible: PyTree) -> Array:
        if masked:
            visible = jax.tree.map(lambda v, w: w if _is_masked(v) else v, visible, all_params, is_leaf=_is_masked)
        with _loss.evaluated(name, "params"):
            value = loss_fn(visible)
        kind = jax.tree.map(_kind, value)
        if not isinstance(kind, jax.ShapeDtypeStruct) or kind.shape or not jnp.issubdtype(kind.dtype, jnp.floating):
            raise ValueError(f"{name} must return one number, the real loss, and nothing beside it, got {kind}.")
        return value

    return loss


def matching(name: str, tree: PyTree, like: PyTree, what: str = "the updates") -> PyTree:
    """Returns a tree without what masks hide in the one that it must be like, or raises."""
    shapes = _shapes(like)
    try:
        visible = jax.tree.map(lambda u, leaf: u if _is_masked(u) else leaf, like, tree, is_leaf=_is_masked)
        if _shapes(visible) == shapes:
            return visible
    except (ValueError, TypeError):
        pass
    needed, given = _checks.shown(shapes), _checks.shown(_shapes(tree))
    raise ValueError(f"{name} must be a tree like {what}, whose shapes are {needed}, got {given}.")


def check_real(name: str, tree: PyTree) -> None:
    """Raises a ValueError unless all leaves are real numbers of at least half precision."""
    for kind in map(_kind, jax.tree.leaves(tree)):
        dtype = getattr(kind, "dtype", kind)
        if isinstance(dtype, str) or not jnp.issubdtype(dtype, jnp.floating) or jnp.finfo(dtype).bits < 16:
            raise ValueError(f"{name} must be real floating-point numbers of at least 16 bits, got {dtype}.")


def scaled(tree: PyTree, rate: Array | PyTree, per_parameter: bool) -> PyTree:
    """Returns the tree times the rate, in the tree's own dtypes."""
    rates = rate if per_parameter else jax.tree.map(lambda _: rate, tree)
    return jax.tree.map(lambda u, r: (r * u).astype(jnp.result_type(u)), tree, rates)


def over(tree: PyTree, length: Array) -> PyTree:
    """Returns the tree over its length, zero if that is zero."""
    return jax.tree.map(lambda u: u / jnp.where(length > 0, length, 1), tree)


def norm(tree: PyTree) -> Array:
    """Returns the Euclidean norm, in single precision at least, without overflow or underflow on the way."""
    tree = optax.tree.cast(tree, wide(tree))
    length = optax.tree.norm(tree)

    def rescaled() -> Array:
        largest = optax.tree.norm(tree, ord="inf")
        unit = jnp.where((largest > 0) & jnp.isfinite(largest), largest, 1)
        return unit * optax.tree.norm(jax.tree.map(lambda u: u / unit, tree))

    squares_are_fine = (length > 1e-15) & (length < jnp.inf)  # of single precision
    return if_(squares_are_fine, lambda: length, rescaled)


def dot(a: PyTree, b: PyTree) -> Array:
    """Returns the inner product, in single precision at least."""
    dtype = wide((a, b))
    products = jax.tree.map(lambda x, y: jnp.sum(x.astype(dtype) * y.astype(dtype)), a, b)  # sharded or not
    return jnp.asarray(sum(jax.tree.leaves(products)))


def wide(tree: PyTree) -> Any:
    """Returns the dtype to measure a tree in: its own, but single precision at least."""
    return jnp.result_type(jnp.float32, *jax.tree.leaves(tree))


def if_(condition: Array, then: Callable, otherwise: Callable) -> Any:
    """Returns `lax.cond`, or outside of jit, where that would compile anew each time, simply the right one."""
    if isinstance(condition, Tracer):
        return jax.lax.cond(condition, then, otherwise)
    return then() if condition else otherwise()


def _kind(leaf: Any) -> Any:
    if isinstance(leaf, str | bytes):  # which JAX would read as the name of a dtype
        return type(leaf).__name__
    try:
        return jax.ShapeDtypeStruct(jnp.shape(leaf), jnp.result_type(leaf))
    except (TypeError, ValueError):
        return type(leaf).__name__


def _shapes(tree: PyTree) -> PyTree:
    return jax.tree.map(lambda leaf: getattr(_kind(leaf), "shape", _kind(leaf)), tree)


def _is_masked(node: Any) -> bool:
    return isinstance(node, optax.MaskedNode)
