"""Data and networks that benchmarks share; the networks in JAX and, with the same parameters, in PyTorch.

Set PRINCIPALFLOW_DATA to a folder with mnist/train-images-idx3-ubyte.gz and labels, and cifar10/data_batch_1.bin.gz
(and for tests mnist/t10k-..., cifar10/test_batch.bin.gz); random bytes stand in for a file that isn't there.
"""

import gzip
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

STAND_IN = "random stand-in"


class Data(NamedTuple):
    inputs: np.ndarray
    labels: np.ndarray
    source: str


def mnist(samples: int, part: str = "train") -> Data:
    pixels, source = stored(f"mnist/{part}-images-idx3-ubyte.gz", 16, (samples, 784))
    labels, _ = stored(f"mnist/{part}-labels-idx1-ubyte.gz", 8, (samples,))
    return scaled(pixels, labels, source)


def cifar10(samples: int, part: str = "data_batch_1") -> Data:
    """Halved to 16 x 16, since second derivatives of convolutions are slow on CPUs."""
    records, source = stored(f"cifar10/{part}.bin.gz", 0, (samples, 3073))
    pixels = records[:, 1:].reshape(-1, 3, 16, 2, 16, 2).mean((3, 5)).transpose(0, 2, 3, 1)
    return scaled(pixels, records[:, 0], source)


def stored(name: str, start: int, shape: tuple[int, ...]) -> tuple[np.ndarray, str]:
    """Returns bytes of a file, and whether they are that file's."""
    path, size = Path(os.environ.get("PRINCIPALFLOW_DATA", "")) / name, int(np.prod(shape))
    if not path.exists():
        return np.random.default_rng(size).integers(0, 256, shape, np.uint8), STAND_IN
    with gzip.open(path) as file:
        return np.frombuffer(file.read(start + size)[start:], np.uint8).reshape(shape), name


def scaled(pixels: np.ndarray, labels: np.ndarray, source: str) -> Data:
    return Data(np.ascontiguousarray(pixels, np.float32) / 255, labels.astype(np.int64) % 10, source)


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
