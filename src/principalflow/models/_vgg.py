"""VGG networks."""

from itertools import pairwise
from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, Inexact, PRNGKeyArray

from principalflow.models import _layers, _sizes
from principalflow.models._layers import ACTIVATIONS, ConvNorm, Images, Linear, Normalization, Pooling

# Convolutions in each of the five stages (Simonyan and Zisserman 2015), and their channels.
_STAGES = {11: (1, 1, 2, 2, 2), 16: (2, 2, 3, 3, 3)}
_CHANNELS = (64, 128, 256, 512, 512)


class VGG(eqx.Module):
    """VGG-11 or VGG-16: stages of 3 x 3 convolutions, each followed by pooling, and one linear layer.

    Stages halve the images as long as there is something to halve, so any input size works. What is left is averaged
    over its positions; on 32 x 32 images that is a single one.

    Args:
        input_shape: (height, width, channels).
        outputs: Classes.
        key: For the weights, which start as those of `Conv` and `Linear`.
        depth: 11 or 16.
        width: Multiplies the numbers of channels 64, 128, 256, 512, 512.
        activation: "elu" as in the paper, "tanh", "softplus", "gelu" or "relu".
        normalization: "none", "batch" or "group", after each convolution.
        pooling: "average", which is holomorphic, or "max".
        gain: Scales the starting weights.
        dtype: The parameters' dtype; None for JAX's default.

    Raises:
        ValueError: For an unknown depth or name, an input shape that isn't of images, a width or gain not above 0, or
            more parameters than memory holds.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> import principalflow as pf
        >>> model = pf.models.VGG((32, 32, 3), 10, key=jax.random.key(0), width=0.125)
        >>> jax.eval_shape(model, jnp.ones((2, 32, 32, 3))).shape
        (2, 10)
    """

    stages: list[list[ConvNorm]]
    head: Linear
    activation: str = eqx.field(static=True)
    pooling: Pooling = eqx.field(static=True)

    def __init__(
        self,
        input_shape: tuple[int, ...],
        outputs: int,
        key: PRNGKeyArray,
        *,
        depth: int = 11,
        width: float = 1.0,
        activation: str = "elu",
        normalization: Normalization = "none",
        pooling: Pooling = "average",
        gain: float = 1.0,
        dtype: Any = None,
    ):
        _layers.check_convolutional(depth, tuple(_STAGES), activation, normalization, pooling)
        _, _, before = _sizes.images(input_shape)
        outputs, channels = _sizes.size("outputs", outputs), _sizes.widened(width, *_CHANNELS)
        _sizes.check_start(key, gain, dtype)
        stages = list(zip(_STAGES[depth], channels, strict=True))
        flow = [before, *(after for layers, after in stages for _ in range(layers))]
        shapes = [*((3, 3, *pair) for pair in pairwise(flow)), (flow[-1], outputs)]
        _sizes.check_parameters(dict(width=width, input_shape=input_shape, outputs=outputs), shapes, dtype)
        self.activation, self.pooling, self.stages = activation, pooling, []
        for layers, after in stages:
            stage = []
            for _ in range(layers):
                key, used = jax.random.split(key)
                stage.append(ConvNorm(before, after, 3, used, 1, normalization, gain, dtype))
                before = after
            self.stages.append(stage)
        self.head = Linear(before, outputs, key, gain=gain, dtype=dtype, in_network=True)

    def __call__(self, x: Images) -> Inexact[Array, "N outputs"]:
        """Returns the outputs for a batch of images."""
        x = _sizes.channelled(x, self.stages[0][0].conv.weight.shape[2])
        for stage in self.stages:
            for layer in stage:
                x = ACTIVATIONS[self.activation](layer(x))
            if min(x.shape[1:3]) > 1:
                x = _layers.pool(x, self.pooling)
        return self.head(x.mean((1, 2)))
