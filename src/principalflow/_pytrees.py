"""What an objective is made of, checked: parameters as one flat vector, and samples along the first axes of data."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Inexact, PyTree
from numpy.typing import NDArray

from principalflow import _checks

_KINDS = (jnp.bool_, jnp.integer, jnp.floating, jnp.complexfloating)


def flatten(params: PyTree) -> tuple[Inexact[Array, " D"], Callable, PyTree]:
    """Splits `params` into a flat vector of one dtype, its inverse, and the leaves that aren't floating."""
    floating, rest = eqx.partition(jax.tree.map(floating_as_array, params), eqx.is_inexact_array)
    leaves = jax.tree.leaves(floating)
    if sum(leaf.size for leaf in leaves) == 0:
        raise ValueError("params must hold at least one floating-point number, got none.")
    for leaf in leaves:
        _checks.inexact("params", leaf)
    dtype = jnp.result_type(*leaves)
    theta, unravel = ravel_pytree(jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), floating))
    _checks.finite("params", theta)
    return theta, unravel, rest


def floating_as_array(leaf: Any) -> Any:
    """Returns a floating leaf as JAX's array, others as they are; arrays that JAX can't hold are refused."""
    if isinstance(leaf, np.ndarray | np.generic) and not _is_numeric(leaf.dtype):
        raise ValueError(f"params must hold arrays of numbers, got one of dtype {leaf.dtype}.")
    is_floating = isinstance(leaf, float | complex) or (
        isinstance(leaf, np.ndarray | np.generic) and jnp.issubdtype(leaf.dtype, jnp.inexact)
    )
    return _checks.array_of_numbers("params", leaf) if is_floating else leaf


def is_flat(value: Any, params: PyTree) -> bool:
    """Whether `value` is one array or a list of numbers, but not of the shape that the parameters have."""
    shape = getattr(value, "shape", None)
    if shape is not None:
        return shape != getattr(params, "shape", None)
    leaves, structure = jax.tree.flatten(value)
    is_list = isinstance(value, list | tuple) and all(np.ndim(leaf) == 0 for leaf in leaves)
    return not leaves or is_list or jax.tree_util.treedef_is_leaf(structure)


def flattened(name: str, value: PyTree, params: PyTree) -> Inexact[Array, " D"]:
    """Returns numbers of the parameters' structure as one vector; a ValueError has the path that differs."""
    with _checks.renamed(params=name):
        given = _floating(value)
    wanted = _floating(params)
    for path in [*wanted, *given]:
        needed, got = (f"shape {leaves[path].shape}" if path in leaves else "nothing" for leaves in (wanted, given))
        if needed != got:
            where = path or "the root"
            raise ValueError(f"{name} must have the objective's structure: at {where} it has {needed}, got {got}.")
    # Their dtype by name, since Python's numbers are arrays whose dtype gives way to others'.
    arrays = [_checks.inexact(name, given[path]) for path in wanted]
    return jnp.concatenate([jnp.ravel(jnp.asarray(array, array.dtype)) for array in arrays])


def entries(tree: PyTree, select: Callable[[str], bool]) -> NDArray:
    """Returns the positions, in the flat form of a tree, of the leaves whose path `select` is true for, or raises."""
    _checks.function("select", select, "path")
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    paths = [jax.tree_util.keystr(path) for path, _ in leaves]
    chosen = [np.full(leaf.size, bool(select(path))) for path, (_, leaf) in zip(paths, leaves, strict=True)]
    index = np.flatnonzero(np.concatenate(chosen))
    if not index.size:
        named = ", ".join(path or "'' (the parameters are one array)" for path in paths)
        raise ValueError(f"select must be true for at least one path, but it is for none of {named}.")
    return index


def refuse_chunks(params: PyTree) -> None:
    """Raises a ValueError where a node of the parameters says why it needs the whole batch."""
    leaves = jax.tree.leaves(params, is_leaf=lambda node: hasattr(node, "why_whole_batch"))
    for why in [leaf.why_whole_batch for leaf in leaves if hasattr(leaf, "why_whole_batch")]:
        raise ValueError(f"chunk must be None for these params: {why}")


def samples_of(data: PyTree) -> PyTree:
    """Returns data as arrays that have one length along their first axes, or raises."""
    if data is None:
        return None
    leaves, structure = jax.tree_util.tree_flatten_with_path(data)
    arrays = [_checks.array_of_numbers(f"data{jax.tree_util.keystr(path)}", leaf) for path, leaf in leaves]
    lengths = [array.shape[0] if array.ndim else None for array in arrays]
    if not lengths or None in lengths or 0 in lengths:
        got = _checks.shown(lengths)
        raise ValueError(f"data must be arrays with at least one sample along their first axis, got lengths {got}.")
    if len(set(lengths)) > 1:
        raise ValueError(f"data must have one length along all first axes, got {_checks.shown(lengths)}.")
    return jax.tree.unflatten(structure, arrays)


def samples_like(data: PyTree, former: PyTree) -> PyTree:
    """Returns data as `samples_of` does if they have the structure and the kinds of numbers of the former ones."""
    if data is None or former is None:
        if data is former:
            return data
        needed = "None, as the loss takes none" if former is None else "given, as the loss takes some"
        raise ValueError(f"data must be {needed}, got a {type(data).__name__}.")
    data = samples_of(data)
    structures = [jax.tree.structure(tree) for tree in (former, data)]
    if structures[0] != structures[1]:
        given, needed = (_checks.shown(structure) for structure in structures[::-1])
        raise ValueError(f"data must have the structure of the objective's, {needed}, got {given}.")
    for new, old in zip(jax.tree.leaves(data), jax.tree.leaves(former), strict=True):
        if _kind(new) != _kind(old):
            raise ValueError(f"data must hold numbers of the objective's kind, {old.dtype}, got {new.dtype}.")
    return data


def positions(index: Any, samples: int) -> Any:
    """Returns the positions of some samples, 1-D; concrete ones must be there."""
    if isinstance(index, Tracer):  # only its shape and dtype are known
        array, within = index, True
    else:
        array = np.asarray(_checks.array_of_numbers("index", index))
        within = bool(array.size and array.min() >= 0 and array.max() < samples)
    if array.ndim != 1 or not jnp.issubdtype(array.dtype, jnp.integer) or not array.size or not within:
        needed = f"a vector of one or more whole numbers from 0 to {samples - 1}"
        raise ValueError(f"index must be {needed}, got {_checks.shown(index)}.")
    return array


def _floating(params: PyTree) -> dict[str, Any]:
    """Returns the leaves that are parameters by their paths."""
    arrays = jax.tree.map(floating_as_array, params)
    leaves, _ = jax.tree_util.tree_flatten_with_path(eqx.filter(arrays, eqx.is_inexact_array))
    return {jax.tree_util.keystr(path): leaf for path, leaf in leaves}


def _kind(array: Array) -> Any:
    return next(kind for kind in _KINDS if jnp.issubdtype(array.dtype, kind))


def _is_numeric(dtype: Any) -> bool:
    return any(jnp.issubdtype(dtype, kind) for kind in _KINDS)
