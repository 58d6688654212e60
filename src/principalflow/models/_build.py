"""Networks by name."""

import math
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
from jaxtyping import PRNGKeyArray

from principalflow import _checks
from principalflow.models import _sizes
from principalflow.models._mlp import MLP
from principalflow.models._resnet import ResNet
from principalflow.models._vgg import VGG

_CONVOLUTIONAL = {"vgg11": (VGG, 11), "vgg16": (VGG, 16), "resnet18": (ResNet, 18), "resnet50": (ResNet, 50)}

NAMES = ("mlp", *_CONVOLUTIONAL)


def build(
    name: str,
    input_shape: Sequence[int],
    outputs: int,
    key: PRNGKeyArray | None = None,
    *,
    hidden: Sequence[int] = (100, 100, 100),
    **options: Any,
) -> eqx.Module:
    """Returns a network by its name.

    Args:
        name: "mlp", "vgg11", "vgg16", "resnet18" or "resnet50".
        input_shape: The shape of one sample.
        outputs: Classes, or numbers that come out.
        key: For the weights; None for `jax.random.key(0)`.
        hidden: Units of an MLP's hidden layers.
        **options: Those of `MLP`, `VGG` and `ResNet`: `width` (for an MLP it multiplies `hidden`), `activation`,
            `normalization`, `pooling`, `stem`, `gain`, `dtype`.

    Returns:
        An equinox module that takes a batch.

    Raises:
        ValueError: For an unknown name, an option that this network doesn't have, or as the networks do.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> import principalflow as pf
        >>> model = pf.models.build("vgg11", (8, 8, 1), 10, width=0.125, activation="tanh")
        >>> jax.eval_shape(model, jnp.ones((2, 8, 8, 1))).shape
        (2, 10)
    """
    _checks.one_of("name", name, NAMES)
    key = jax.random.key(0) if key is None else key
    known = {"activation", "gain", "dtype", "width"}
    known |= {"normalization", "pooling"} if name != "mlp" else set()
    known |= {"stem"} if name.startswith("resnet") else set()
    for option in options:
        if option not in known:
            raise ValueError(f"a model {name!r} has no option {option!r}; it has {', '.join(sorted(known))}.")
    if name == "mlp":
        shape = _sizes.sizes("input_shape", input_shape)
        units = _sizes.widened(options.pop("width", 1.0), *_sizes.sizes("hidden", hidden))
        with _checks.renamed(inputs="input_shape"):
            return MLP(math.prod(shape), units, outputs, key, **options)
    kind, depth = _CONVOLUTIONAL[name]
    return kind(input_shape, outputs, key, depth=depth, **options)
