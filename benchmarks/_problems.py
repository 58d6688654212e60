"""Data and networks that benchmarks share; the networks in JAX and, with the same parameters, in PyTorch.

MNIST and CIFAR-10 are those of `principalflow.data`: in the folder PRINCIPALFLOW_DATA, or downloaded.
"""

import sys
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from principalflow import data

Part = Literal["train", "test"]


class Data(NamedTuple):
    inputs: np.ndarray
    labels: np.ndarray
    source: str


def mnist(samples: int, part: Part = "train") -> Data:
    inputs, labels, source = loaded("mnist", samples, part)
    return Data(inputs.reshape(samples, -1), labels, source)


def cifar10(samples: int, part: Part = "train") -> Data:
    """Halved to 16 x 16, since second derivatives of convolutions are slow on CPUs."""
    inputs, labels, source = loaded("cifar10", samples, part)
    return Data(inputs.reshape(-1, 16, 2, 16, 2, 3).mean((2, 4)), labels, source)


def loaded(name: str, samples: int, part: Part) -> Data:
    """Returns images with pixels from 0 to 1; ends with a sentence where there are none."""
    try:
        found = data.load(
            name,
            samples=samples if part == "train" else 1,
            test_samples=samples if part == "test" else 0,
            standardize=False,
        )
    except data.DataError as error:
        sys.exit(f"This benchmark needs {name}: {error}")
    inputs, labels = (found.inputs, found.labels) if part == "train" else (found.test_inputs, found.test_labels)
    return Data(np.asarray(inputs), np.asarray(labels), f"{name}, {part}")


class Network(NamedTuple):
    """The shapes of the layers' matrices, and what a hidden layer does, in JAX and in PyTorch."""

    shapes: tuple[tuple[int, int], ...]
    jax_stage: Callable
    torch_stage: Callable

    def layers(self, seed: int = 0) -> list:
        random = np.random.default_rng(seed)
        weights = [jnp.asarray(random.standard_normal(shape) / np.sqrt(shape[0]), jnp.float32) for shape in self.shapes]
        return [(matrix, jnp.zeros(matrix.shape[1])) for matrix in weights]

    def logits(self, layers: list, inputs: Any) -> Any:
        return forward(layers, inputs, self.jax_stage)

    def cross_entropy(self, layers: list, batch: tuple) -> jax.Array:
        logs = jax.nn.log_softmax(self.logits(layers, batch[0]))
        return -jnp.mean(jnp.take_along_axis(logs, batch[1][:, None], axis=1))

    def twin(self, layers: list) -> Any:
        """Returns the network as a `torch.nn.Module` that starts at these layers."""
        import torch  # pyright: ignore

        stage = self.torch_stage

        class Twin(torch.nn.Module):
            def __init__(self):
                super().__init__()
                leaves = [torch.tensor(np.asarray(leaf)) for leaf in jax.tree.leaves(layers)]
                self.leaves = torch.nn.ParameterList(leaves)

            def forward(self, x):
                leaves = list(self.leaves)
                return forward(list(zip(leaves[::2], leaves[1::2], strict=True)), x, stage)

        return Twin()


def forward(layers, x, stage):
    """The network, for JAX and PyTorch alike."""
    for weights, bias in layers[:-1]:
        x = stage(x, weights, bias)
    return x.reshape(len(x), -1) @ layers[-1][0] + layers[-1][1]


def jax_dense(x, weights, bias):
    return jax.nn.elu(x @ weights + bias)


def torch_dense(x, weights, bias):
    from torch.nn import functional  # pyright: ignore

    return functional.elu(functional.linear(x, weights.T, bias))


def jax_convolution(x, weights, bias):
    """Patches times a matrix, since XLA's own convolution is slow on CPUs."""
    samples, height, width, _ = x.shape
    padded = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    patches = [padded[:, i : i + height, j : j + width] for i in range(3) for j in range(3)]
    x = jax.nn.elu(jnp.concatenate(patches, axis=-1) @ weights + bias)
    return x.reshape(samples, height // 2, 2, width // 2, 2, -1).mean((2, 4))


def torch_convolution(x, weights, bias):
    """PyTorch's own convolution, with the channels last in memory, which is its faster way here."""
    from torch.nn import functional  # pyright: ignore

    kernel = weights.reshape(3, 3, -1, len(bias)).permute(3, 2, 0, 1)
    x = functional.elu(functional.conv2d(x.permute(0, 3, 1, 2), kernel, bias, padding=1))
    return functional.avg_pool2d(x, 2).permute(0, 2, 3, 1)


CANCER_MLP = Network(((30, 32), (32, 32), (32, 2)), jax_dense, torch_dense)
DIGITS_MLP = Network(((64, 32), (32, 32), (32, 10)), jax_dense, torch_dense)
MLP = Network(((784, 100), (100, 100), (100, 100), (100, 10)), jax_dense, torch_dense)
# Three 3x3 convolutions of 8, 16 and 32 channels, each followed by average pooling, and a linear layer.
VGG = Network(((9 * 3, 8), (9 * 8, 16), (9 * 16, 32), (2 * 2 * 32, 10)), jax_convolution, torch_convolution)
