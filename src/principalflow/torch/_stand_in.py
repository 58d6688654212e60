"""A model with other tensors for its parameters, for a while: its own are left alone."""

# pyright: reportMissingImports=false

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel


class StandIn:
    """Other tensors for a model's parameters, and copies for its buffers.

    They take their places in the modules, instead of the parameters getting other values: they may be of another dtype,
    and graphs that a training loop still has need the parameters as they were.

    Args:
        model: The model.
        leaves: What stands in for some of the parameters, by these; None to leave all parameters in their places.
        change: Of constants: the other parameters, and the buffers.
        train_mode: True or False for a mode of the model; None for that which it is in.
    """

    def __init__(
        self,
        model: nn.Module,
        leaves: Mapping[Tensor, Tensor] | None,
        change: Callable[[Tensor], Tensor],
        train_mode: bool | None,
    ):
        self._model, self._change, self._train_mode = model, change, train_mode
        self._modules, self._params = list(model.modules()), list[Any]()
        if leaves is None:
            return
        found = [(m._parameters, name, p) for m in self._modules for name, p in m._parameters.items() if p is not None]
        others = {p: change(p.detach()) for _, _, p in found if p not in leaves}  # what modules share they still do
        self._params = [(place, name, p, leaves[p] if p in leaves else others[p]) for place, name, p in found]

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Has them in the model, for a while."""
        buffers = [(m._buffers, dict(m._buffers)) for m in self._modules if m._buffers]
        modes = [] if self._train_mode is None else [(m, m.training) for m in self._modules]
        copies = {b: self._change(b).clone() for _, own in buffers for b in own.values() if b is not None}
        try:
            for place, name, _, other in self._params:
                place[name] = other  # pyright: ignore[reportArgumentType]
            for place, own in buffers:
                place.update({name: None if b is None else copies[b] for name, b in own.items()})
            if self._train_mode is not None:
                self._model.train(self._train_mode)
            yield
        finally:
            for place, name, p, _ in self._params:
                place[name] = p  # pyright: ignore[reportArgumentType]
            for place, own in buffers:
                place.update(own)
            for module, training in modes:
                module.training = training


@contextmanager
def twice_differentiable() -> Iterator[None]:
    """Has attention that isn't fused and models that aren't compiled, for a while: those have no second derivative."""
    # What isn't loaded hasn't compiled anything, and loading it takes seconds.
    eager = torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else nullcontext()
    with sdpa_kernel(SDPBackend.MATH), eager:
        yield


def change_for(dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
    """Returns what makes floating-point tensors fit parameters of a dtype: complex, or single precision at least."""
    if dtype.is_complex:
        return lambda tensor: tensor.to(dtype) if tensor.is_floating_point() else tensor
    return wide


def wide(tensor: Tensor) -> Tensor:
    """Returns a floating-point tensor in single precision at least: curvature is lost in the rounding of coarser ones.

    Others are returned as they are.
    """
    return tensor.float() if tensor.is_floating_point() and tensor.itemsize < 4 else tensor


def unwrapped(model: nn.Module) -> nn.Module:
    """Returns the model within what compiles it or spreads it over devices: these have no second derivatives."""
    parallel = nn.DataParallel, nn.parallel.DistributedDataParallel
    while hasattr(model, "_orig_mod") or isinstance(model, parallel):
        model = model.module if isinstance(model, parallel) else model._orig_mod  # pyright: ignore
    return model
