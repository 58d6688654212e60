"""Calls of Python functions from compiled JAX programs.

`jax.pure_callback` makes JAX arrays of the arguments first. On a CPU that waits for a thread, which the program that
calls may itself hold: with one core it waits for ever. Here functions get the program's memory as NumPy arrays.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jaxtyping import Array
from numpy.typing import NDArray

Function = Callable[..., Sequence[NDArray]]


def host_call(function: Function, like: Sequence[Any], *arguments: Array, symmetric: bool = False) -> list[Array]:
    """Returns what a function makes of arrays; at once where they have values, else when the program runs.

    Args:
        function: Of NumPy arrays, which it must neither change nor keep; it must not use JAX. It returns NumPy arrays.
        like: What these will be like, arrays or anything with a shape and a dtype.
        arguments: Arrays.
        symmetric: Whether the only result is linear in the last argument, by a symmetric matrix.
    """
    shapes = tuple((result.shape, jnp.dtype(result.dtype)) for result in like)
    return _host_call.bind(*arguments, function=function, shapes=shapes, symmetric=symmetric)


_host_call = Primitive("principalflow_host_call")
_host_call.multiple_results = True


@_host_call.def_impl
def _at_once(*arguments: Array, function: Function, shapes: tuple, symmetric: bool) -> list[Array]:
    return jax.device_put(list(function(*map(np.asarray, arguments))))


@_host_call.def_abstract_eval
def _types(*_: Any, function: Function, shapes: tuple, symmetric: bool) -> list[ShapedArray]:
    return [ShapedArray(shape, dtype) for shape, dtype in shapes]


def _lowered(context: Any, *arguments: Any, function: Function, shapes: tuple, symmetric: bool) -> Any:
    options = dict(has_side_effect=False, returns_token=False)
    types = context.avals_in, context.avals_out
    return mlir.emit_python_callback(context, function, None, list(arguments), *types, **options)[0]  # pyright: ignore


def _one_after_another(arguments: Sequence[Array], axes: Sequence[Any], **options: Any) -> tuple[list[Array], list]:
    first = [a if axis is None else jnp.moveaxis(a, axis, 0) for a, axis in zip(arguments, axes, strict=True)]
    size = next(len(a) for a, axis in zip(first, axes, strict=True) if axis is not None)

    def call(i: Array) -> list[Array]:
        return _host_call.bind(*[a if x is None else a[i] for a, x in zip(first, axes, strict=True)], **options)

    results = lax.map(call, jnp.arange(size))
    return results, [0] * len(results)


def _no_derivative(*_: Any, **__: Any) -> Any:
    raise NotImplementedError("There are no further derivatives of a PyTorch model here than the third.")


def _transposed(cotangents: Sequence[Any], *arguments: Any, symmetric: bool, **options: Any) -> list[Any]:
    *others, _ = arguments
    if not symmetric or any(ad.is_undefined_primal(other) for other in others):
        raise NotImplementedError("This derivative of a PyTorch model can't be transposed by JAX.")
    if type(cotangents[0]) is ad.Zero:
        return [None] * len(arguments)
    return [None] * len(others) + _host_call.bind(*others, *cotangents, symmetric=True, **options)


mlir.register_lowering(_host_call, _lowered)
batching.primitive_batchers[_host_call] = _one_after_another
ad.primitive_jvps[_host_call] = _no_derivative
ad.primitive_transposes[_host_call] = _transposed
