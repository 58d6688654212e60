"""Models that are sharded over several processes by `fully_shard`: values are written into them, gradients read off."""

# pyright: reportMissingImports=false

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from principalflow.torch._graph import flat
from principalflow.torch._stand_in import StandIn


def is_sharded(model: nn.Module) -> bool:
    """Whether parameters are spread over processes; a ValueError if in another way than by `fully_shard`."""
    if any(type(module).__name__ == "FullyShardedDataParallel" for module in model.modules()):
        raise ValueError("model must be sharded by torch.distributed.fsdp.fully_shard, got FullyShardedDataParallel.")
    reshard(model)
    return any(hasattr(p, "device_mesh") for p in model.parameters())


def reshard(model: nn.Module) -> None:
    """Has only the shards: a forward pass without a backward one leaves whole parameters, and the next uses them."""
    for module in model.modules():
        if hasattr(module, "reshard"):
            module.reshard()  # pyright: ignore[reportCallIssue]


class ShardedStandIn(StandIn):
    """Other values in the sharded parameters themselves, for a while; `fully_shard` knows them by their memory.

    Args:
        model: The model.
        params: Parameters of it.
        values: The same in one piece, in all processes.
        train_mode: True or False for a mode of the model; None for that which it is in.
    """

    def __init__(
        self, model: nn.Module, params: Sequence[Any], values: Sequence[Tensor], train_mode: bool | None
    ) -> None:
        super().__init__(model, None, lambda tensor: tensor, train_mode)
        self._pairs = list(zip(params, values, strict=True))

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Has them in the model, for a while."""
        reshard(self._model)
        originals = [p.detach().clone() for p, _ in self._pairs]
        try:
            for p, value in self._pairs:
                _write(p, value)
            with super().in_place():
                yield
        finally:
            reshard(self._model)
            for (p, _), original in zip(self._pairs, originals, strict=True):
                p.detach().copy_(original)


class ShardedGraph:
    """A loss and its gradient by `backward`, which averages over the processes.

    Attributes:
        value: The loss, its mean over the processes.
        gradient: A flat vector, whole.
    """

    def __init__(self, loss: Tensor, params: Sequence[Any]):
        before = [p.grad for p in params]
        try:
            for p in params:
                p.grad = None
            loss.backward()
            self.gradient = flat(torch.zeros_like(p) if p.grad is None else p.grad for p in params)
        finally:
            for p, gradient in zip(params, before, strict=True):
                p.grad = gradient
        self.value = torch.tensor(mean_over_processes(loss.item(), params[0]), dtype=loss.dtype)


def mean_over_processes(number: float, p: Any) -> float:
    """Returns the mean of a number that each process has, over those that a parameter is sharded over."""
    total = torch.tensor(number, dtype=torch.float64, device=p.device)
    for dimension in range(p.device_mesh.ndim):
        torch.distributed.all_reduce(total, group=p.device_mesh.get_group(dimension))
    return total.item() / p.device_mesh.size()


def _write(p: Any, value: Tensor) -> None:
    from torch.distributed.tensor import distribute_tensor  # here, since importing it takes its time

    p.detach().copy_(distribute_tensor(value.detach(), p.device_mesh, p.placements))
