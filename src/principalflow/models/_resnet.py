"""Residual networks, version 1."""

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Literal, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Inexact, PRNGKeyArray

from principalflow import _checks
from principalflow.models import _layers, _sizes
from principalflow.models._layers import ACTIVATIONS, ConvNorm, Images, Linear, Normalization, Pooling

Stem = Literal["auto", "small", "imagenet"]
STEMS = get_args(Stem)

# Blocks in each of the four stages, and whether they are bottlenecks (He et al. 2016, table 1).
_STAGES = {18: ((2, 2, 2, 2), False), 50: ((3, 4, 6, 3), True)}
_CHANNELS = (64, 128, 256, 512)
_BOTTLENECK = 4
# From this side on, "auto" takes the stem for ImageNet, which shrinks images by four.
_IMAGENET_SIDE = 64


class ResNet(eqx.Module):
    r"""ResNet-18 or ResNet-50, version 1: the activation follows the sum (He et al. 2016).

    Bottlenecks take their stride in the 3 x 3 convolution. Weights start as those of `Conv` and `Linear`; without
    normalisation the last convolution of each block is divided by the square root of the number of blocks, or else the
    sum of many branches would grow with the depth.

    Args:
        input_shape: (height, width, channels).
        outputs: Classes.
        key: For the weights.
        depth: 18 or 50.
        width: Multiplies the numbers of channels 64, 128, 256, 512.
        activation: "elu" as in the paper, "tanh", "softplus", "gelu" or "relu".
        normalization: "batch", "group" or "none", after each convolution.
        stem: "small", a 3 x 3 convolution; "imagenet", a 7 x 7 one with stride 2 and pooling; "auto" takes the second
            from 64 pixels on.
        pooling: In the stem for ImageNet: "average", which is holomorphic, or "max".
        gain: Scales the starting weights.
        dtype: The parameters' dtype; None for JAX's default.

    Raises:
        ValueError: For an unknown depth or name, an input shape that isn't of images, a width or gain not above 0, or
            more parameters than memory holds.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> import principalflow as pf
        >>> model = pf.models.ResNet((32, 32, 3), 10, key=jax.random.key(0), width=0.125)
        >>> jax.eval_shape(model, jnp.ones((2, 32, 32, 3))).shape
        (2, 10)
    """

    stem: ConvNorm
    blocks: list["_Block"]
    head: Linear
    activation: str = eqx.field(static=True)
    stem_pooling: Pooling | None = eqx.field(static=True)

    def __init__(
        self,
        input_shape: tuple[int, ...],
        outputs: int,
        key: PRNGKeyArray,
        *,
        depth: int = 18,
        width: float = 1.0,
        activation: str = "elu",
        normalization: Normalization = "batch",
        stem: Stem = "auto",
        pooling: Pooling = "average",
        gain: float = 1.0,
        dtype: Any = None,
    ):
        _layers.check_convolutional(depth, tuple(_STAGES), activation, normalization, pooling)
        _checks.one_of("stem", stem, STEMS)
        height, breadth, inputs = _sizes.images(input_shape)
        outputs = _sizes.size("outputs", outputs)
        _sizes.check_start(key, gain, dtype)
        large = stem == "imagenet" or (stem == "auto" and min(height, breadth) >= _IMAGENET_SIDE)
        stem_size = 7 if large else 3

        counts, bottleneck = _STAGES[depth]
        first, *_ = stage_channels = _sizes.widened(width, *_CHANNELS)
        blocks = list(_planned(counts, bottleneck, stage_channels))
        last = blocks[-1][0][-1]
        shapes = [kernel for channels, _ in blocks for kernel in _kernels(channels)]
        shapes += [(stem_size, stem_size, inputs, first), (last, outputs)]
        _sizes.check_parameters(dict(width=width, input_shape=input_shape, outputs=outputs), shapes, dtype)
        stem_key, head_key, *keys = jax.random.split(key, sum(counts) + 2)
        options = normalization, gain, dtype
        self.activation, self.stem_pooling = activation, pooling if large else None
        self.stem = ConvNorm(inputs, first, stem_size, stem_key, 2 if large else 1, *options)
        self.blocks = [
            _Block(channels, block_key, stride, activation, len(blocks), *options)
            for (channels, stride), block_key in zip(blocks, keys, strict=True)
        ]
        self.head = Linear(last, outputs, head_key, gain=gain, dtype=dtype, in_network=True)

    def __call__(self, x: Images) -> Inexact[Array, "N outputs"]:
        """Returns the outputs for a batch of images."""
        x = _sizes.channelled(x, self.stem.conv.weight.shape[2])
        x = ACTIVATIONS[self.activation](self.stem(x))
        if self.stem_pooling is not None:
            x = _layers.pool(_padded(x, self.stem_pooling), self.stem_pooling, size=3)
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean((1, 2)))


class _Block(eqx.Module):
    """The activation of the input plus a branch of convolutions: two of 3 x 3, or a bottleneck of 1, 3 and 1."""

    branch: list[ConvNorm]
    shortcut: ConvNorm | None
    activation: str = eqx.field(static=True)

    def __init__(
        self,
        channels: tuple[int, ...],
        key: PRNGKeyArray,
        stride: int,
        activation: str,
        blocks: int,
        normalization: Normalization,
        gain: float,
        dtype: Any,
    ):
        shortcut_key, *keys = jax.random.split(key, len(channels))
        kernels = _kernels(channels)
        strides = (stride, 1) if len(kernels) == 2 else (1, stride, 1)
        gains = [gain] * len(kernels)
        if normalization == "none":
            gains[-1] /= math.sqrt(blocks)
        layers = zip(kernels, keys, strides, gains, strict=True)
        self.branch = [ConvNorm(a, b, n, k, s, normalization, g, dtype) for (n, _, a, b), k, s, g in layers]
        self.shortcut = None
        if stride > 1 or channels[0] != channels[-1]:
            self.shortcut = ConvNorm(channels[0], channels[-1], 1, shortcut_key, stride, normalization, gain, dtype)
        self.activation = activation

    def __call__(self, x: Images) -> Images:
        act = ACTIVATIONS[self.activation]
        y = x
        for layer in self.branch[:-1]:
            y = act(layer(y))
        return act(self.branch[-1](y) + (x if self.shortcut is None else self.shortcut(x)))


def _planned(
    counts: tuple[int, ...], bottleneck: bool, stage_channels: list[int]
) -> Iterator[tuple[tuple[int, ...], int]]:
    """Yields the channels through which each block goes, and its stride."""
    before = stage_channels[0]
    for stage, (blocks, middle) in enumerate(zip(counts, stage_channels, strict=True)):
        after = middle * _BOTTLENECK if bottleneck else middle
        for block in range(blocks):
            stride = 2 if stage > 0 and block == 0 else 1
            yield (before, middle, middle, after) if bottleneck else (before, middle, after), stride
            before = after


def _kernels(channels: tuple[int, ...]) -> list[tuple[int, int, int, int]]:
    """The shapes of a block's kernels, but for the shortcut's."""
    sizes = (3, 3) if len(channels) == 3 else (1, 3, 1)
    return [(n, n, a, b) for n, (a, b) in zip(sizes, pairwise(channels), strict=True)]


def _padded(x: Images, pooling: Pooling) -> Images:
    """One more row and column all around, which changes no maximum, and counts as zero in an average."""
    edge = -jnp.inf if pooling == "max" else 0
    return jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)), constant_values=edge)
