"""The steps of a PyTorch optimiser as a monitor sees them: their updates, and what they did to the loss."""

# pyright: reportMissingImports=false, reportPrivateImportUsage=false

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from principalflow.monitor import Taken
from principalflow.torch._along import Along
from principalflow.torch._graph import flat
from principalflow.torch._model import ModelLoss
from principalflow.torch._optimizers import is_known, rate, second_moments
from principalflow.torch._passes import Passes
from principalflow.torch._stand_in import wide

# Losses of one batch that differ by more than this share aren't those of the same parameters, samples and function.
_SAME_LOSS = 1e-2


class Steps:
    """Has the update of an optimiser's last step, and nothing else of its size.

    Attributes:
        latest: The last step that was asked for; None from the next one on.
    """

    def __init__(self, of: ModelLoss, optimizer: torch.optim.Optimizer):
        self.latest: Step | None = None
        self._of, self._optimizer, self._params = of, optimizer, list[Tensor]()
        self._passes = Passes(of)
        self._before: list[Tensor] | None = None
        self._rate = math.nan
        self._versions, self._gradients, self._knows_gradient = list[int](), list[int](), True
        self._hooks = [optimizer.register_step_pre_hook(self._keep), optimizer.register_step_post_hook(self._end)]

    @property
    def wanted(self) -> bool:
        """Whether updates are to be kept, from the next step on."""
        return self._passes.wanted

    @wanted.setter
    def wanted(self, wanted: bool) -> None:
        self._passes.wanted = wanted

    def close(self) -> None:
        """Leaves the optimiser and the model alone."""
        self._passes.close()
        for hook in self._hooks:
            hook.remove()

    def last(self, batch: Any, loss: float | None, gradient_norm: float | None) -> "Step | None":
        """Returns the last step, taken on this batch, once; None where it isn't known."""
        update, self.latest = self._update(), None
        if update is None:
            return None
        of, clipped_by = self._of.over(batch, self._passes.states), self._clipped_by(gradient_norm)
        is_known = of.random_of_each and self._passes.loss_is_known and of.runs_as_it_is
        moments = second_moments(self._optimizer, self._params)
        known = loss if is_known else None
        self.latest = Step(of, update, known, clipped_by, moments, self._knows_gradient, self._rate)
        return self.latest

    def _update(self) -> list[Tensor] | None:
        before, self._before = self._before, None
        if before is not None:
            torch._foreach_sub_(before, [wide(p.data) for p in self._params])
            torch._foreach_neg_(before)
        return before

    def _clipped_by(self, gradient_norm: float | None) -> float:
        """Returns what gradients whose norm was this were divided by."""
        gradients = [p.grad for group in self._optimizer.param_groups for p in group["params"] if p.grad is not None]
        norm = 0.0 if gradient_norm is None else float(torch.nn.utils.get_total_norm(gradients))
        return gradient_norm / norm if gradient_norm and norm else 1.0

    def _keep(self, _: Any, args: tuple, options: dict[str, Any]) -> tuple[tuple, dict[str, Any]] | None:
        """Keeps the parameters, and has the closure, if there is one, say where it is evaluated."""
        self.latest = None
        if not self.wanted:
            return None
        self._params = self._of.params()
        self._before = [p.detach().to(torch.promote_types(p.dtype, torch.float32), copy=True) for p in self._params]
        self._versions, self._gradients, self._knows_gradient = self._written(), self._written("grad"), True
        if isinstance(self._optimizer, Along):  # leaves the gradient of where it started
            return None
        return tuple(map(self._watched, args)), {name: self._watched(value) for name, value in options.items()}

    def _watched(self, argument: Any) -> Any:
        if not callable(argument):
            return argument

        def closure(*given: Any, **options: Any) -> Any:
            self._knows_gradient = self._versions == self._written()
            loss = argument(*given, **options)
            self._gradients = self._written("grad")
            return loss

        return closure

    def _end(self, *_: Any) -> None:
        """Has the rate of the step, and whether an optimiser that isn't known computed in the gradients' memory."""
        self._passes.step()
        self._rate = rate(self._optimizer, self._params) if self.wanted else math.nan
        if self.wanted and not is_known(self._optimizer):
            self._knows_gradient &= self._gradients == self._written("grad")

    def _written(self, of: str = "params") -> list[int]:
        """Returns how often each of the parameters was written to, or each of their gradients."""
        tensors = [p.grad for p in self._params] if of == "grad" else self._params
        return [-1 if t is None else t._version for t in tensors]


class Step:
    """A step that was taken, the batch it was taken on, and the loss before it, if that is known.

    Args:
        of: The loss on the batch.
        update: What it added to the parameters.
        loss: The loss before it.
        clipped_by: What its gradient was divided by.
        second_moments: As `second_moments` has them.
        knows_gradient: Whether the gradient that the parameters have is the one where it started.
        learning_rate: Of the step.
    """

    def __init__(
        self,
        of: ModelLoss,
        update: list[Tensor],
        loss: float | None,
        clipped_by: float,
        second_moments: Sequence[tuple[Tensor, float] | None],
        knows_gradient: bool,
        learning_rate: float,
    ):
        self.learning_rate = learning_rate
        self._of, self._params, self._update, self._loss = of, of.params(), update, loss
        self._clipped_by, self._second_moments, self._knows_gradient = clipped_by, second_moments, knows_gradient

    def check_loss(self) -> str:
        """Returns how the loss that was given differs from that on the batch, if it clearly does; for a pass."""
        own = math.nan if self._loss is None else self.loss_at(0.0)
        differs = self._loss is not None and abs(own - self._loss) > _SAME_LOSS * abs(own)
        return f"{self._loss:.4g} instead of {own:.4g}" if differs else ""

    def taken(self) -> Taken:
        """Returns it in numbers, for one forward pass; for two where the loss before it isn't known."""
        length, eps = _norm(self._update), torch.finfo(self._update[0].dtype).eps
        slope = norm = surprise = math.nan
        if self._knows_gradient:
            gradients = self._gradients()
            slope, norm = self._clipped_by * _dot(self._update, gradients), self._clipped_by * _norm(gradients)
            surprise = self._surprise(gradients)
        before, after = self._losses()
        return Taken(before, after, slope, norm, length, surprise=surprise, eps=eps, learning_rate=self.learning_rate)

    def update_square(self, preconditioner: Tensor | None) -> float:
        """Returns the square of the update in the metric P; parameters that rest have no part in it."""
        update = flat(self._update)
        if preconditioner is None:
            return float(update @ update)
        return float(torch.where(preconditioner.isfinite(), preconditioner * update**2, 0).sum())

    def curvatures(self, preconditioner: Tensor | None) -> tuple[float, float]:
        """Returns those along the update and along P^-1 g, on its batch where it started."""
        if not self._knows_gradient:
            return math.nan, math.nan
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
        if self._loss is not None:
            return self._loss, self._of.value_as_it_runs()
        return self.loss_at(0.0), self.loss_at(1.0)

    def _surprise(self, gradients: list[Tensor]) -> float:
        """Returns the sum of g^2/sqrt(v) over that of sqrt(v), v being the average."""
        sums = list[Tensor]()
        for g, moment in zip(gradients, self._second_moments, strict=True):
            if moment is not None:
                average, share = moment
                root = (wide(average) / share).sqrt_()
                total = root.sum()
                relative = g / root.clamp_min_(torch.finfo(root.dtype).tiny)
                sums.append(torch.stack([relative.reshape(-1) @ g.reshape(-1), total]))
        if not sums:
            return math.nan
        above, below = (float(x) for x in torch.stack(sums).sum(0))
        return above / below if below else math.nan


def _dot(a: list[Tensor], b: list[Tensor]) -> float:
    return float(torch.stack([x.reshape(-1) @ y.reshape(-1) for x, y in zip(a, b, strict=True)]).sum())


def _norm(tensors: list[Tensor]) -> float:
    return float(torch.linalg.vector_norm(torch.stack(torch._foreach_norm(tensors))))
