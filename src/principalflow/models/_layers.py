"""Layers: linear, convolution, normalisation, pooling. All take batches, images as (N, height, width, channels).

A layer asks beforehand whether memory holds it, but for those `in_network`: a network asks once for all of its layers.
"""

import math
from collections.abc import Callable
from typing import Any, ClassVar, Literal, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Inexact, PRNGKeyArray

from principalflow import _checks
from principalflow.models import _sizes
from principalflow.models._convolution import Images, convolve

Normalization = Literal["none", "batch", "group"]
Pooling = Literal["average", "max"]

NORMALIZATIONS = get_args(Normalization)
POOLINGS = get_args(Pooling)

# elu is the paper's. It and relu have a kink in a derivative, so complex flows refuse them; the others are holomorphic.
ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "elu": jax.nn.elu,
    "tanh": jnp.tanh,
    "softplus": jax.nn.softplus,
    "gelu": lambda x: jax.nn.gelu(x, approximate=True),  # the exact one needs erf, which JAX has for real numbers only
    "relu": jax.nn.relu,
}

# Channels that share one mean and variance in `GroupNorm` (Wu and He 2018 recommend 16).
_GROUP_CHANNELS = 16
_VARIANCE_FLOOR = 1e-5
_DRAWN_AT_ONCE = 16384


class Linear(eqx.Module):
    r"""$x \mapsto x W + b$.

    Weights start normal with standard deviation $\text{gain}/\sqrt{\text{inputs}}$, biases at zero.
    """

    weight: Inexact[Array, "inputs outputs"]
    bias: Inexact[Array, " outputs"]

    def __init__(
        self,
        inputs: int,
        outputs: int,
        key: PRNGKeyArray,
        *,
        gain: float = 1.0,
        dtype: Any = None,
        in_network: bool = False,
    ):
        inputs, outputs = _sizes.size("inputs", inputs), _sizes.size("outputs", outputs)
        if not in_network:
            _sizes.check_parameters(dict(inputs=inputs, outputs=outputs), [(inputs, outputs)], dtype)
        self.weight = _normal(key, (inputs, outputs), gain, dtype)
        self.bias = jnp.zeros(outputs, dtype)

    def __call__(self, x: Inexact[Array, "N inputs"]) -> Inexact[Array, "N outputs"]:
        """Returns the outputs."""
        return _sizes.rows(x, len(self.weight)) @ self.weight + self.bias


class Conv(eqx.Module):
    r"""A convolution of images (N, height, width, channels), padded so that stride 1 keeps their size.

    On accelerators it is `lax.conv`, for complex numbers the matrix product of all patches with the kernel; on CPUs it
    and each of its derivatives are computed in the way that is quickest for their shape. All agree to rounding.

    Weights start normal with standard deviation $\text{gain}/\sqrt{\text{size}^2\,\text{inputs}}$, biases at zero.

    Args:
        inputs: Channels that come in.
        outputs: Channels that go out.
        size: The side of the kernel, odd.
        stride: Distance between two positions.
        key: For the weights.
        bias: Whether a bias is added.
        gain: Scales the weights.
        dtype: The parameters' dtype; None for JAX's default.
        in_network: Whether a network has it, which asks once whether memory holds all of its layers.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> import principalflow as pf
        >>> conv = pf.models.Conv(3, 8, size=3, stride=2, key=jax.random.key(0))
        >>> conv(jnp.ones((1, 9, 9, 3))).shape
        (1, 5, 5, 8)
    """

    weight: Inexact[Array, "size size inputs outputs"]
    bias: Inexact[Array, " outputs"] | None
    stride: int = eqx.field(static=True)

    def __init__(
        self,
        inputs: int,
        outputs: int,
        size: int,
        key: PRNGKeyArray,
        *,
        stride: int = 1,
        bias: bool = True,
        gain: float = 1.0,
        dtype: Any = None,
        in_network: bool = False,
    ):
        sizes = dict(size=size, inputs=inputs, outputs=outputs)
        size, inputs, outputs = (_sizes.size(*item) for item in sizes.items())
        if size % 2 == 0:
            raise ValueError(f"size must be odd, so that the kernel has a middle, got {size}.")
        self.stride = _sizes.size("stride", stride)
        _checks.flag("bias", bias)
        if not in_network:
            _sizes.check_parameters(sizes, [(size, size, inputs, outputs)], dtype)
        self.weight = _normal(key, (size, size, inputs, outputs), gain, dtype)
        self.bias = jnp.zeros(outputs, dtype) if bias else None

    def __call__(self, x: Images) -> Images:
        """Returns the convolved images."""
        x = _sizes.channelled(x, self.weight.shape[2])
        y = convolve(x, self.weight, self.stride)
        return y if self.bias is None else y + self.bias


class BatchNorm(eqx.Module):
    r"""$\gamma\,(x - \mu)/\sqrt{\sigma^2 + 10^{-5}} + \beta$ with each channel's mean and variance over the batch.

    There are no running averages: training and evaluation alike use the batch at hand, so the loss is a function of the
    parameters and the data alone, and an output depends on the batch it is computed in. For the same reason the batch
    can't be taken in chunks, and `Objective(..., chunk=...)` refuses to.
    """

    scale: Inexact[Array, " channels"]
    shift: Inexact[Array, " channels"]
    why_whole_batch: ClassVar[str] = (
        "batch normalisation takes its mean and variance over the whole batch, and chunks would each have their own, "
        'which is another loss. Use normalization="group" or "none".'
    )

    def __init__(self, channels: int, *, dtype: Any = None, in_network: bool = False):
        self.scale, self.shift = _scale_and_shift(channels, dtype, in_network)

    def __call__(self, x: Images) -> Images:
        """Returns the normalised images."""
        x = _sizes.channelled(x, self.scale.size)
        return _standardized(x, (0, 1, 2)) * self.scale + self.shift


class GroupNorm(eqx.Module):
    r"""As `BatchNorm`, with mean and variance over each image's positions and groups of 16 channels (Wu and He 2018).

    Images don't see each other, so it works with chunks. Where 16 doesn't divide the channels, groups are larger.
    """

    scale: Inexact[Array, " channels"]
    shift: Inexact[Array, " channels"]
    groups: int = eqx.field(static=True)

    def __init__(self, channels: int, *, dtype: Any = None, in_network: bool = False):
        self.scale, self.shift = _scale_and_shift(channels, dtype, in_network)
        most = max(channels // _GROUP_CHANNELS, 1)
        self.groups = next(groups for groups in range(most, 0, -1) if channels % groups == 0)

    def __call__(self, x: Images) -> Images:
        """Returns the normalised images."""
        x = _sizes.channelled(x, self.scale.size)
        grouped = x.reshape(*x.shape[:3], self.groups, -1)
        return _standardized(grouped, (1, 2, 4)).reshape(x.shape) * self.scale + self.shift


class ConvNorm(eqx.Module):
    """A convolution and its normalisation; without one the convolution has a bias."""

    conv: Conv
    norm: BatchNorm | GroupNorm | None

    def __init__(
        self,
        inputs: int,
        outputs: int,
        size: int,
        key: PRNGKeyArray,
        stride: int,
        normalization: Normalization,
        gain: float,
        dtype: Any,
    ):
        bias = normalization == "none"
        self.conv = Conv(inputs, outputs, size, key, stride=stride, bias=bias, gain=gain, dtype=dtype, in_network=True)
        kinds = {"batch": BatchNorm, "group": GroupNorm}
        self.norm = None if bias else kinds[normalization](outputs, dtype=dtype, in_network=True)

    def __call__(self, x: Images) -> Images:
        """Returns the images convolved and normalised."""
        x = self.conv(x)
        return x if self.norm is None else self.norm(x)


def pool(x: Images, kind: Pooling, size: int = 2, stride: int = 2) -> Images:
    """Returns the mean or maximum of windows; what doesn't fill a window at the far edges is left out."""
    samples, height, width, channels = x.shape
    if kind == "average" and size == stride:  # the same by reshaping, which is quicker and has quick derivatives
        rows, columns = height // size, width // size
        x = x[:, : rows * size, : columns * size].reshape(samples, rows, size, columns, size, channels)
        return x.mean((2, 4))
    starts = [(i, j) for i in range(size) for j in range(size)]
    rows, columns = ((length - size) // stride * stride + 1 for length in (height, width))
    shifted = [x[:, i : i + rows : stride, j : j + columns : stride] for i, j in starts]
    return sum(shifted[1:], shifted[0]) / len(starts) if kind == "average" else jnp.max(jnp.stack(shifted), axis=0)


def check_convolutional(depth: int, depths: tuple[int, ...], activation: str, normalization: str, pooling: str) -> None:
    """Raises a ValueError for a depth or a name that there isn't."""
    if not isinstance(depth, int) or depth not in depths:
        raise ValueError(f"depth must be one of {', '.join(map(str, depths))}, got {_checks.shown(depth)}.")
    _checks.one_of("activation", activation, tuple(ACTIVATIONS))
    _checks.one_of("normalization", normalization, NORMALIZATIONS)
    _checks.one_of("pooling", pooling, POOLINGS)


def _standardized(x: Array, axes: tuple[int, ...]) -> Array:
    centred = x - x.mean(axes, keepdims=True)
    # The plain square, without a modulus, so that it is holomorphic.
    return centred / jnp.sqrt((centred * centred).mean(axes, keepdims=True) + _VARIANCE_FLOOR)


def _scale_and_shift(channels: int, dtype: Any, in_network: bool) -> tuple[Array, Array]:
    channels = _sizes.size("channels", channels)
    if not in_network:
        _sizes.check_parameters(dict(channels=channels), [(2, channels)], dtype)
    return jnp.ones(channels, dtype), jnp.zeros(channels, dtype)


def _normal(key: PRNGKeyArray, shape: tuple[int, ...], gain: float, dtype: Any) -> Array:
    """Returns normal numbers, drawn in blocks of one size: to compile for every shape would take seconds."""
    _sizes.check_start(key, gain, dtype)
    scale = float(gain) / math.sqrt(math.prod(shape[:-1]))
    size, xp = math.prod(shape), jnp if isinstance(key, Tracer) else np
    blocks = [_draw(key, index) for index in range(-(-size // _DRAWN_AT_ONCE))]
    return jnp.asarray(scale * xp.concatenate(blocks)[:size].reshape(shape), float if dtype is None else dtype)


@jax.jit
def _draw(key: PRNGKeyArray, index: int) -> Array:
    return jax.random.normal(jax.random.fold_in(key, index), (_DRAWN_AT_ONCE,), jnp.float32)
