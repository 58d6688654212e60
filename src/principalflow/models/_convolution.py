"""Convolutions of images, on CPUs each of them and each of its derivatives in the way that is quickest for its shape.

On CPUs XLA's own convolution is the quickest for most layers, and by far the slowest for some: for images of a few
pixels (700 ms instead of 6 for 512 channels on 2 x 2), and in double precision for large images. What JAX derives from
it is slow within loops, as training has them, up to a hundred times as slow: XLA's quick convolutions go forwards. So
here the three derivatives of <y, x * w> are one primitive, each computed in its own way, and each the derivative of the
others.

`benchmarks/networks.py --only layers` has the ways side by side.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jaxtyping import Array, Inexact

Images = Inexact[Array, "N H W C"]
Weight = Inexact[Array, "size size inputs outputs"]
Operand = Literal["x", "weight", "y"]

_OPERANDS: tuple[Operand, ...] = ("x", "weight", "y")
# Images of so many pixels at the most are a matrix product of patches, as 1 x 1 kernels are.
_FEW_PIXELS = 4
# So are, in double precision, images of more pixels than these: XLA's quick convolution isn't made for it.
_MOST_PIXELS_IN_DOUBLE = 64


def convolve(x: Images, weight: Weight, stride: int) -> Images:
    """Returns the images convolved, padded so that stride 1 keeps their size; real or complex, on any device."""
    dtype = jnp.result_type(x, weight)
    x, weight = x.astype(dtype), weight.astype(dtype)
    if jnp.iscomplexobj(x):
        return by_patches(x, weight, stride)
    if jax.default_backend() != "cpu":
        return by_xla(x, weight, stride)
    shape = *(-(-length // stride) for length in x.shape[1:3]), weight.shape[3]
    return _derivative("y", x, weight, (len(x), *shape), stride)


def by_patches(x: Images, weight: Weight, stride: int) -> Images:
    """Returns all patches, side by side in one matrix, times the kernel."""
    size, _, inputs, outputs = weight.shape
    patches = _patches(x, size, stride)
    y = patches.reshape(-1, size * size * inputs) @ weight.reshape(-1, outputs)
    return y.reshape(*patches.shape[:3], outputs)


def by_xla(x: Images, weight: Weight, stride: int) -> Images:
    """Returns XLA's convolution with the same padding."""
    reach = weight.shape[0] // 2
    return lax.conv_general_dilated(
        x, weight, (stride, stride), [(reach, reach), (reach, reach)], dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def weight_by_rows_and_columns(x: Images, y: Images, size: int) -> Weight:
    """Returns the derivative of <y, x * w> by w, at stride 1, as one product of two slim matrices.

    One has x shifted along the rows, the other y along the columns: all shifts of both against each other, from `size`
    copies of each image in place of the size² that patches are.
    """
    height, width = x.shape[1:3]
    reach = size // 2
    x = jnp.pad(x, ((0, 0), (0, 0), (reach, reach), (0, 0)))
    y = jnp.pad(y, ((0, 0), (reach, reach), (0, 0), (0, 0)))
    along_rows = jnp.concatenate([x[:, :, j : j + width] for j in range(size)], axis=-1)
    along_columns = jnp.concatenate([y[:, i : i + height] for i in reversed(range(size))], axis=-1)
    pairs = along_rows.reshape(-1, along_rows.shape[-1]).T @ along_columns.reshape(-1, along_columns.shape[-1])
    return pairs.reshape(size, x.shape[-1], size, y.shape[-1]).transpose(2, 0, 1, 3)


def _patches(x: Images, size: int, stride: int) -> Images:
    height, width = x.shape[1:3]
    reach = size // 2
    x = jnp.pad(x, ((0, 0), (reach, reach), (reach, reach), (0, 0)))
    shifted = [x[:, i : i + height : stride, j : j + width : stride] for i in range(size) for j in range(size)]
    return jnp.concatenate(shifted, axis=-1)


def _derivative(of: Operand, first: Array, second: Array, shape: tuple[int, ...], stride: int) -> Array:
    """Returns the derivative of <y, x * weight> by one of the three, of this shape, from the other two in order."""
    return _FORM.bind(first, second, of=of, shape=shape, stride=stride)


def _computed(first: Array, second: Array, *, of: Operand, shape: tuple[int, ...], stride: int) -> Array:
    sought = jax.ShapeDtypeStruct(shape, first.dtype)
    if of == "y":
        return _forwards(first.shape, second.shape, first.dtype)(first, second, stride)
    if of == "x":
        if stride == 1 and _forwards(shape, first.shape, first.dtype) is by_xla:
            return by_xla(second, first[::-1, ::-1].swapaxes(2, 3), 1)
        return jax.linear_transpose(lambda x: by_patches(x, first, stride), sought)(second)[0]
    # Copies of y are dear where it has many more channels than x.
    if stride == 1 and not _is_matrix(first.shape, shape) and shape[3] <= 4 * shape[2]:
        return weight_by_rows_and_columns(first, second, shape[0])
    return jax.linear_transpose(lambda weight: by_patches(first, weight, stride), sought)(second)[0]


def _forwards(images: tuple[int, ...], kernel: tuple[int, ...], dtype: Any) -> Callable[[Images, Weight, int], Images]:
    large = dtype == jnp.float64 and images[1] * images[2] > _MOST_PIXELS_IN_DOUBLE
    return by_patches if large or _is_matrix(images, kernel) else by_xla


def _is_matrix(images: tuple[int, ...], kernel: tuple[int, ...]) -> bool:
    return kernel[0] == 1 or images[1] * images[2] <= _FEW_PIXELS


def _names(of: Operand) -> list[Operand]:
    return [name for name in _OPERANDS if name != of]


def _jvp(primals, tangents, **params):
    value = _FORM.bind(*primals, **params)
    changes = [
        _FORM.bind(*(tangent if i == j else primal for j, primal in enumerate(primals)), **params)
        for i, tangent in enumerate(tangents)
        if type(tangent) is not ad.Zero
    ]
    return value, sum(changes[1:], changes[0])


def _transposed(cotangent, *operands, of, shape, stride):
    """Of the two operands one is not known; what is sought is the derivative by it."""
    (unknown,) = (i for i, operand in enumerate(operands) if ad.is_undefined_primal(operand))
    if type(cotangent) is ad.Zero:
        return [ad.Zero(operand.aval) if i == unknown else None for i, operand in enumerate(operands)]
    sought = _names(of)[unknown]
    known = {_names(of)[1 - unknown]: operands[1 - unknown], of: cotangent}
    first, second = (known[name] for name in _names(sought))
    found = _derivative(sought, first, second, operands[unknown].aval.shape, stride)
    return [found if i == unknown else None for i in range(2)]


def _mapped(operands, axes, *, of, shape, stride):
    """With one kernel for all, all images at once; else one convolution after another."""
    params = dict(of=of, shape=shape, stride=stride)
    if of != "weight" and axes[_names(of).index("weight")] is None:
        (axis,) = (axis for axis in axes if axis is not None)
        images = _names(of).index("y" if of == "x" else "x")
        many = jnp.moveaxis(operands[images], axis, 0)
        folded = [many.reshape(-1, *many.shape[2:]) if i == images else operands[i] for i in range(2)]
        found = _FORM.bind(*folded, **params | dict(shape=(len(folded[images]), *shape[1:])))
        return found.reshape(len(many), *shape), 0
    pairs = list(zip(operands, axes, strict=True))
    mapped = [jnp.moveaxis(operand, axis, 0) for operand, axis in pairs if axis is not None]

    def one(each):
        each = iter(each)
        return _FORM.bind(*(o if axis is None else next(each) for o, axis in pairs), **params)

    return lax.map(one, mapped), 0


_FORM = Primitive("principalflow_convolution")
_FORM.def_impl(partial(jax.jit, static_argnames=("of", "shape", "stride"))(_computed))
_FORM.def_abstract_eval(lambda first, second, *, of, shape, stride: first.update(shape=shape))
mlir.register_lowering(_FORM, mlir.lower_fun(_computed, multiple_results=False))
ad.primitive_jvps[_FORM] = _jvp
ad.primitive_transposes[_FORM] = _transposed
batching.primitive_batchers[_FORM] = _mapped
