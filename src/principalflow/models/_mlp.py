"""Fully connected networks."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, Inexact, PRNGKeyArray

from principalflow import _checks
from principalflow.models import _sizes
from principalflow.models._layers import ACTIVATIONS, Linear


class MLP(eqx.Module):
    r"""A fully connected network; inputs of any shape are flattened.

    Weights start normal with standard deviation $\text{gain}/\sqrt{\text{inputs}}$, biases at zero.

    Args:
        inputs: Numbers per sample.
        hidden: Units of each hidden layer; the paper's MNIST network has three hidden layers of 100 (its "4 layers").
        outputs: Numbers that come out, not passed through the activation.
        key: For the weights.
        activation: "elu" as in the paper, "tanh", "softplus", "gelu" or "relu".
        gain: Scales the starting weights.
        dtype: The parameters' dtype; None for JAX's default.

    Raises:
        ValueError: For sizes below 1, a gain not above 0, an unknown activation, or more parameters than memory holds.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> import principalflow as pf
        >>> model = pf.models.MLP(784, (100, 100, 100), 10, key=jax.random.key(0))
        >>> model(jnp.ones((5, 28, 28, 1))).shape
        (5, 10)
    """

    layers: list[Linear]
    activation: str = eqx.field(static=True)

    def __init__(
        self,
        inputs: int,
        hidden: Sequence[int],
        outputs: int,
        key: PRNGKeyArray,
        *,
        activation: str = "elu",
        gain: float = 1.0,
        dtype: Any = None,
    ):
        _checks.one_of("activation", activation, tuple(ACTIVATIONS))
        units = _sizes.sizes("hidden", hidden)
        sizes = (_sizes.size("inputs", inputs), *units, _sizes.size("outputs", outputs))
        _sizes.check_start(key, gain, dtype)
        _sizes.check_parameters(dict(hidden=units, inputs=inputs, outputs=outputs), pairwise(sizes), dtype)
        keys = jax.random.split(key, len(sizes) - 1)
        pairs = zip(pairwise(sizes), keys, strict=True)
        self.layers = [Linear(a, b, k, gain=gain, dtype=dtype, in_network=True) for (a, b), k in pairs]
        self.activation = activation

    def __call__(self, x: Inexact[Array, "N ..."]) -> Inexact[Array, "N outputs"]:
        """Returns the outputs for a batch."""
        x = _sizes.vectors(x, self.layers[0].weight.shape[0])
        for layer in self.layers[:-1]:
            x = ACTIVATIONS[self.activation](layer(x))
        return self.layers[-1](x)
