"""One loss and its derivatives by some tensors, by backward passes over backward passes."""

# pyright: reportMissingImports=false

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

# Weight norm's own backward pass is right; the Hessian that its derivative makes isn't symmetric (PyTorch 2.13).
_WRONG = "WeightNormInterfaceBackward"


class NoDerivativeError(Exception):
    """PyTorch has a gradient, but not the further derivative that is asked for."""

    @classmethod
    def of(cls, error: RuntimeError) -> "NoDerivativeError":
        """Returns it for what PyTorch says."""
        return cls(f"there is no second derivative; PyTorch says: {str(error).splitlines()[0]}")


class Graph:
    """The graph of a loss by `leaves`; derivatives are flat vectors, and at complex leaves the holomorphic ones.

    Args:
        loss: One number.
        leaves: What to differentiate by.
        again: Whether further derivatives will be asked for.
    """

    def __init__(self, loss: Tensor, leaves: Sequence[Tensor], again: bool):
        self.value, self._loss, self._leaves = loss.detach(), loss, leaves
        try:
            self._slopes = _pulled([loss], leaves, [torch.ones_like(loss)], again, keep=again)
        except RuntimeError as error:
            if again and loss.requires_grad:
                raise NoDerivativeError.of(error) from error
            raise

    @property
    def gradient(self) -> Tensor:
        """The gradient."""
        return flat(self._slopes)

    @property
    def gradient_across(self) -> Tensor:
        """The derivative along the imaginary axis over i: of a holomorphic function it is the gradient."""
        return flat(_pulled([self._loss], self._leaves, [torch.full_like(self._loss, 1j)], again=False, keep=True)) / 1j

    def times(self, v: Tensor) -> Tensor:
        """Returns the Hessian times a flat vector."""
        return flat(self._further(self._slopes, v, again=False))

    def third(self, u: Tensor, v: Tensor) -> Tensor:
        """Returns the third derivatives contracted with two flat vectors."""
        return flat(self._further(self._further(self._slopes, v, again=True), u, again=False))

    def _further(self, slopes: Sequence[Tensor], v: Tensor, again: bool) -> list[Tensor]:
        try:
            return _pulled(slopes, self._leaves, split(self._leaves, v), again, keep=True)
        except RuntimeError as error:
            raise NoDerivativeError.of(error) from error


def flat(tensors: Iterable[Tensor]) -> Tensor:
    """Returns tensors as one vector without a graph, on the device of the first."""
    parts = [whole(t.to_dense() if t.is_sparse else t).detach().resolve_conj().reshape(-1) for t in tensors]
    return torch.cat([part.to(parts[0].device) for part in parts])


def whole(tensor: Tensor) -> Tensor:
    """Returns a tensor in one piece, also where it is spread over processes."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor  # pyright: ignore


def split(tensors: Sequence[Tensor], vector: Tensor) -> list[Tensor]:
    """Returns a flat vector as tensors of the shapes, dtypes and devices of others."""
    parts = vector.split([t.numel() for t in tensors])
    return [part.reshape(t.shape).to(t) for t, part in zip(tensors, parts, strict=True)]


def nodes(loss: Tensor) -> Iterator[Any]:
    """Yields the nodes of a graph, each once."""
    seen, waiting = set(), list[Any]([loss.grad_fn])
    while waiting:
        node = waiting.pop()
        if node is not None and node not in seen:
            seen.add(node)
            waiting += [following for following, _ in node.next_functions]
            yield node


def without_second_derivative(nodes: Iterable[Any]) -> list[str]:
    """Returns the names of those nodes whose second derivative is wrong in PyTorch."""
    return sorted({type(node).__name__ for node in nodes if type(node).__name__.startswith(_WRONG)})


def _pulled(
    outputs: Sequence[Tensor], leaves: Sequence[Tensor], along: Sequence[Tensor], again: bool, keep: bool
) -> list[Tensor]:
    """Returns the derivative of `outputs . along`.

    PyTorch's gradient of a holomorphic function is the conjugate of its derivative.
    """
    pairs = [(output, v.conj()) for output, v in zip(outputs, along, strict=True) if output.requires_grad]
    if not pairs:  # the gradient of a linear loss is constant, and has no graph
        return [torch.zeros_like(leaf) for leaf in leaves]
    functions, directions = zip(*pairs, strict=True)
    options = dict(create_graph=again, retain_graph=keep, allow_unused=True, materialize_grads=True)
    return [found.conj() for found in torch.autograd.grad(functions, leaves, directions, **options)]
