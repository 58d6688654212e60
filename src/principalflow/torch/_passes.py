"""The forward passes of a training loop, and the random numbers that they drew."""

# pyright: reportMissingImports=false

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from principalflow.torch._derivatives import RandomState
from principalflow.torch._model import ModelLoss


class Passes:
    """Has the state of the random numbers at each pass that the loop differentiates, from its last step on.

    Passes of compiled models aren't seen, for their hooks are compiled with them, nor are those of sharded ones; and a
    model whose parts are called one by one has none.

    Attributes:
        wanted: Whether passes are to be watched.
        states: The state at the beginning of each.
        loss_is_known: Whether they drew no random numbers, and computed in the precision of the parameters.
    """

    def __init__(self, of: ModelLoss):
        self.wanted, self.states, self.loss_is_known = False, list[RandomState](), True
        self._params, self._device = of.params(), of.device.type
        self._is_open, self._is_over = False, False
        if not of.is_sharded:
            self._hooks = [
                of.model.register_forward_pre_hook(_Hook(self._begin)),
                of.model.register_forward_hook(_Hook(self._end)),
            ]
        else:
            self._hooks = []

    def close(self) -> None:
        """Leaves the model alone."""
        for hook in self._hooks:
            hook.remove()

    def step(self) -> None:
        """Says that the optimiser took its step: passes from here on are those of the next."""
        self._is_over = True

    def _begin(self, model: nn.Module) -> None:
        # While something is measured, tensors that aren't parameters stand in for these.
        is_the_loops = isinstance(next(model.parameters()), nn.Parameter)
        self._is_open = self.wanted and torch.is_grad_enabled() and is_the_loops
        if not self._is_open:
            return
        if self._is_over:
            self.states, self.loss_is_known, self._is_over = [], True, False
        self.states.append(RandomState(self._params))
        self.loss_is_known &= not torch.is_autocast_enabled(self._device)

    def _end(self, _: nn.Module) -> None:
        if self._is_open:
            self.loss_is_known &= self.states[-1].is_now(self._params)
            self._is_open = False


class _Hook:
    """Has a function called with the model, if that isn't being compiled."""

    def __init__(self, call: Callable[[nn.Module], None]):
        self._call = call

    def __call__(self, model: nn.Module, *_: Any) -> None:
        if not torch.compiler.is_compiling():
            self._call(model)

    def __reduce__(self) -> tuple:
        return _Hook, (_ignored,)  # copies of the model, as averages of it or in files, aren't the loop's


def _ignored(_: nn.Module) -> None:
    """Does nothing."""
