"""The steps of a PyTorch optimiser as a monitor sees them: their updates, and what they did to the loss."""

# pyright: reportMissingImports=false, reportPrivateImportUsage=false

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from principalflow.monitor import Taken
from principalflow.torch._graph import flat
from principalflow.torch._model import ModelLoss
from principalflow.torch._optimizers import rate
from principalflow.torch._stand_in import wide

# How far a loss that was given may be from the one at the parameters before the step, in rounding units: beyond, it is
# another one, of other random numbers, of half precision, or of a sum in place of a mean.
_SAME_LOSS = 100


class Steps:
    """Has the update of an optimiser's last step, and nothing else of its size.

    Attributes:
        wanted: Whether updates are to be kept, from the next step on.
    """

    def __init__(self, of: ModelLoss, optimizer: torch.optim.Optimizer):
        self.wanted = False
        self._of, self._optimizer, self._params = of, optimizer, list[Tensor]()
        self._before: list[Tensor] | None = None
        self._trusts_losses: bool | None = None
        self._rate = math.nan
        self._hooks = [optimizer.register_step_pre_hook(self._keep), optimizer.register_step_post_hook(self._end)]

    def close(self) -> None:
        """Leaves the optimiser alone."""
        for hook in self._hooks:
            hook.remove()

    def last(self, batch: Any, loss: float | None, gradient_norm: float | None) -> "Step | None":
        """Returns the last step, taken on this batch, once; None where it isn't known."""
        update = self._update()
        if update is None:
            return None
        of, clipped_by = self._of.over(batch), self._clipped_by(gradient_norm)
        return Step(of, update, loss, clipped_by, self._second_moment(), self._trusts, self._rate)

    def _update(self) -> list[Tensor] | None:
        before, self._before = self._before, None
        if before is not None:
            torch._foreach_sub_(before, [wide(p.data) for p in self._params])
            torch._foreach_neg_(before)
        return before

    def _trusts(self, given: float, computed: Callable[[], float]) -> bool:
        """Whether the losses that the loop gives are what they are taken for, by the first of them."""
        if self._trusts_losses is None:
            own = computed()
            eps = torch.finfo(torch.promote_types(self._params[0].dtype, torch.float32)).eps
            self._trusts_losses = abs(given - own) <= _SAME_LOSS * eps * abs(own)
        return self._trusts_losses

    def _clipped_by(self, gradient_norm: float | None) -> float:
        """Returns what gradients whose norm was this were divided by."""
        gradients = [p.grad for group in self._optimizer.param_groups for p in group["params"] if p.grad is not None]
        norm = 0.0 if gradient_norm is None else float(torch.nn.utils.get_total_norm(gradients))
        return gradient_norm / norm if gradient_norm and norm else 1.0

    def _second_moment(self) -> "tuple[list[Tensor], float] | None":
        """Returns Adam's or RMSprop's average of squared gradients, and how much of it is not its start."""
        states = [self._optimizer.state.get(p, {}) for p in self._params]
        average = [state.get("exp_avg_sq", state.get("square_avg")) for state in states]
        if any(squares is None for squares in average):
            return None
        if "exp_avg_sq" not in states[0]:
            return average, 1.0
        return average, 1 - float(self._optimizer.param_groups[0]["betas"][1]) ** float(states[0]["step"])

    def _keep(self, *_: Any) -> None:
        if self.wanted:
            self._params = self._of.params()
            self._before = [p.detach().to(torch.promote_types(p.dtype, torch.float32), copy=True) for p in self._params]


    def _end(self, *_: Any) -> None:
        self._rate = rate(self._optimizer, self._params) if self.wanted else math.nan


class Step:
    """A step that was taken: its update, the batch it was taken on, and what its gradient was divided by."""

    def __init__(
        self,
        of: ModelLoss,
        update: list[Tensor],
        loss: float | None,
        clipped_by: float,
        second_moment: tuple[list[Tensor], float] | None,
        trusts: Callable[[float, Callable[[], float]], bool],
        learning_rate: float,
    ):
        self.learning_rate = learning_rate
        self._trusts = lambda given: trusts(given, lambda: self.loss_at(0.0))
        self._of, self._params, self._update, self._loss = of, of.params(), update, loss
        self._clipped_by, self._second_moment = clipped_by, second_moment

    def taken(self) -> Taken:
        """Returns it in numbers, for one forward pass; for two where the loss was not given or is random."""
        gradients = self._gradients()
        slope = _dot(self._update, gradients)
        norms = [torch.stack(torch._foreach_norm(tensors)) for tensors in (gradients, self._update)]
        before, after = self._losses()
        norm, length = (float(torch.linalg.vector_norm(norm)) for norm in norms)
        slope, norm = self._clipped_by * slope, self._clipped_by * norm  # the loss knows nothing of clipping
        eps = torch.finfo(self._update[0].dtype).eps
        return Taken(before, after, slope, norm, length, surprise=self._surprise(gradients), eps=eps, learning_rate=self.learning_rate)

    def update_square(self, preconditioner: Tensor | None) -> float:
        """Returns the square of the update in the metric P; parameters that rest have no part in it."""
        update = flat(self._update)
        if preconditioner is None:
            return float(update @ update)
        return float(torch.where(preconditioner.isfinite(), preconditioner * update**2, 0).sum())

    def curvatures(self, preconditioner: Tensor | None) -> tuple[float, float]:
        """Returns those along the update and along P^-1 g, on its batch where it started."""
        update, gradient = flat(self._update), flat(self._gradients())
        along = gradient if preconditioner is None else gradient / preconditioner
        with self._of.here(moved=-update) as there:
            products = there.times(torch.stack([update, along], dim=1))
        slope = float(along @ gradient)
        return float(update @ products[:, 0]), float(along @ products[:, 1]) / slope if slope else math.nan

    def loss_at(self, factor: float) -> float:
        """Returns the loss on its batch after a factor times the update."""
        return self._of.value(moved=None if factor == 1 else [(factor - 1) * u for u in self._update])

    def _gradients(self) -> list[Tensor]:
        if all(p.grad is None for p in self._params):
            raise ValueError("batch needs the gradients of the step: call observe before zero_grad().")
        given = [torch.zeros_like(p) if p.grad is None else p.grad for p in self._params]
        return [wide(g.to_dense() if g.is_sparse else g) for g in given]

    def _losses(self) -> tuple[float, float]:
        """Returns the loss before and after the step, both with the same random numbers and precision."""
        if self._loss is not None and self._trusts(self._loss):
            return self._loss, self._of.value_as_it_runs()
        return self.loss_at(0.0), self.loss_at(1.0)

    def _surprise(self, gradients: list[Tensor]) -> float:
        if self._second_moment is None:
            return math.nan
        average, share = self._second_moment
        roots = torch._foreach_sqrt(average)
        total = float(torch.stack([root.sum() for root in roots]).sum())
        torch._foreach_clamp_min_(roots, torch.finfo(roots[0].dtype).tiny)
        return share * _dot(torch._foreach_div(gradients, roots), gradients) / total if total else math.nan


def _dot(a: list[Tensor], b: list[Tensor]) -> float:
    return float(torch.stack([x.reshape(-1) @ y.reshape(-1) for x, y in zip(a, b, strict=True)]).sum())
