"""The monitor for PyTorch training loops."""

# pyright: reportMissingImports=false

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor, nn

from principalflow import _checks
from principalflow.monitor import Measure, Watch, checked_rate, critical_factor, same_rate
from principalflow.optimizers import Edge
from principalflow.record import Record, Row
from principalflow.status import Status
from principalflow.torch._model import ModelLoss
from principalflow.torch._optimizers import edge as edge_of
from principalflow.torch._optimizers import within
from principalflow.torch._recording import Recording
from principalflow.torch._steps import Step, Steps


class Monitor(Watch):
    r"""Watches a PyTorch training loop, as `principalflow.Monitor` does for JAX: the same rows, events and summary.

    Call `observe` once a step, after `optimizer.step()` and before `zero_grad()`. It leaves the model as it was:
    parameters, gradients, buffers (batch norm's statistics), modes and random numbers. Dropout draws the same numbers
    in all passes of one measurement. Hessian products are exact, by two backward passes; fused attention and compiled
    models are measured without that. Where a model has no second derivatives even so, products are differences of
    gradients, and an event says so with their error. Parameters of half precision are measured in float32.

    Given the `batch` and the `loss` of the step, each row has what the step did, for one forward pass; see
    `principalflow.Monitor`. The monitor keeps a copy of the parameters while the optimiser steps, for the update. Hooks
    on model and optimiser see the step and the random numbers of its pass, until `close`.

    Args:
        model: The model; its parameters that require gradients are watched.
        loss: `loss(model(inputs), targets)` for a batch `(inputs, targets)`, and `loss(model(**batch), batch)` for a
            mapping, a mean over the batch; without data, `loss(model)`. None where the model's output has the loss, as
            an attribute or entry `loss`.
        data: One batch, on the model's device; or several in a list or whatever else can be iterated again, of which
            the mean over all samples is taken. One batch has its graph kept, and is faster.
        optimizer: The loop's optimiser, which tells rate and threshold. Without one it is gradient descent, at the rate
            that `observe` is given.
        k: How many directions of largest curvature.
        every: Measure the curvature every so many steps, starting with the first one observed.
        measure: `"sharpness"`, or `"cheap"` for no curvature: what the steps' own batches tell.
        momentum: Without an optimizer, heavy-ball momentum m, which moves the threshold to $2(1+m)/h$.
        tol: The eigenpairs' residual, relative to the largest |eigenvalue|.
        budget: The most time to spend on the curvature, as a share of the loop's own; see `principalflow.Monitor`.
        to: Where rows go: a function, a TensorBoard writer, a Weights & Biases run, the path of a run directory, or a
            list of these.
        select: A function of a parameter's name, like `"layers.0.weight"`: the curvature is that of the parameters for
            which it is true, while the others stay. Steps are watched whole.
        products: `"auto"`, or `"exact"` or `"differences"` to have Hessian products in one way only.
        train_mode: True or False to measure the loss in training or evaluation mode; None for that which the model is
            in.
        on_host: Whether the eigenpairs' vectors are kept in the machine's memory instead of the model's device's;
            `memory` says how much they take.

    Raises:
        ValueError: For a model without trainable parameters, a loss that is no function of outputs and targets, data
            that can be iterated only once, what is no optimizer, a momentum beside one, or an option out of its range.

    Example:
        >>> import torch
        >>> from principalflow.torch import Monitor
        >>> model = torch.nn.Linear(1, 1, bias=False).double()
        >>> data = torch.full((4, 1), 2.0).double(), torch.ones(4, 1).double()
        >>> monitor = Monitor(model, torch.nn.functional.mse_loss, data, k=1)
        >>> row = monitor.observe(0, learning_rate=0.3)
        >>> print(row["eigenvalue_0"], row["events"][0])
        8.0 lambda_0 is above 2/h at step 0: 8 against 6.667
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Callable | None = None,
        data: Any = None,
        *,
        optimizer: torch.optim.Optimizer | None = None,
        k: int = 3,
        every: int = 10,
        measure: Measure = "sharpness",
        momentum: float = 0.0,
        tol: float = 1e-2,
        budget: float | None = None,
        to: Any = None,
        select: Callable[[str], bool] | None = None,
        products: Literal["auto", "exact", "differences"] = "auto",
        train_mode: bool | None = None,
        on_host: bool = False,
    ):
        record = Record(k=k, tol=tol, on_host=on_host)
        self._of = ModelLoss(model, loss, data, select=select, train_mode=train_mode, products=products)
        self._selected = select
        self._whole = ModelLoss(model, loss, data, train_mode=train_mode, products=products) if select else self._of
        self._take = Recording(self._of, record)
        self._momentum = _checks.fraction("momentum", momentum)
        self._optimizer: torch.optim.Optimizer | None = None
        self._steps: Steps | None = None
        parameters = sum(p.numel() for p in self._of.params())
        config, itemsize = dict(momentum=momentum, parameters=parameters), self._of.params()[0].itemsize
        super().__init__(record, every, budget, to, measure, config, itemsize)
        if optimizer is not None:
            self.attach(optimizer)

    def attach(self, optimizer: torch.optim.Optimizer, *, steps: bool = False) -> None:
        """Watches this optimiser, instead of the one before if there was one.

        Args:
            optimizer: The optimiser, or Accelerate's wrapper of it.
            steps: Whether to keep updates from its next step on, instead of from the first `batch` on that `observe` is
                given.

        Raises:
            ValueError: For what is no optimizer, or where the monitor was made with a momentum.
        """
        optimizer = within(optimizer)
        if not isinstance(optimizer, torch.optim.Optimizer):
            given = _checks.shown(optimizer)
            raise ValueError(
                f"optimizer must be a torch.optim.Optimizer, got {given}. For the curvature alone leave it out, and "
                "give observe the learning_rate: thresholds are then those of gradient descent."
            )
        if self._momentum:
            raise ValueError(f"momentum is read off the optimizer, where one is given; got {self._momentum} beside it.")
        if self._steps is not None:
            self._steps.close()
        self._optimizer, self._steps = optimizer, Steps(self._whole, optimizer)
        self._steps.wanted = _checks.flag("steps", steps)

    def observe(
        self,
        step: int,
        learning_rate: float | None = None,
        *,
        batch: Any = None,
        loss: Tensor | float | None = None,
        gradient_norm: Tensor | float | None = None,
    ) -> Row | None:
        """Measures where it is due, and what the step that led here did, where its batch is given.

        Args:
            step: The number of steps taken.
            learning_rate: The next step's; None to read the optimiser's.
            batch: The batch that the last step was taken on, as one of `data`. The step's update is known from the
                second call on.
            loss: The loss before it on this batch, as the loop computed it, which saves a pass. It is computed even so
                where random numbers were drawn, in half precision, under autocast, and if the loop's pass wasn't seen.
            gradient_norm: Where gradients were clipped, their norm before, as `clip_grad_norm_` returns it.

        Returns:
            The row, or None where nothing was measured.

        Raises:
            ValueError: For a step or rate below 0, no rate and no optimizer, a rate other than the optimizer's, or a
                batch where there is no optimizer.
        """
        due, taken = self._is_due(step), self._last_step(batch, loss, gradient_norm)
        if batch is None and not due:
            return None
        return self._measure(
            step, _Observed(self._of, self._take, taken), self._edge_of(learning_rate) if due else None
        )

    def critical_sharpness(self) -> float:
        r"""Returns $2/h_c$, with $h_c$ the smallest rate at which the last step raises the loss on its batch.

        Some six forward passes (arXiv 2601.16979); below $2/h$ the step lowered the loss. `observe` must have been
        given the step's batch.

        Returns:
            The critical sharpness: 0 where the loss doesn't rise however far the step goes, and NaN where it rises
            however short the step, or the step had a rate of 0.

        Raises:
            ValueError: If the last step was not observed with its batch.
        """
        step = None if self._steps is None else self._steps.latest
        if step is None:
            raise ValueError("critical_sharpness needs a step that was observed with its batch, and is the last one.")
        factor = critical_factor(step.loss_at)
        return 2 / (factor * step.learning_rate)

    def close(self, status: Status = Status.COMPLETED, message: str | None = None) -> None:
        """Leaves model and optimiser alone, and ends what `to` was given a path for, with the summary as message."""
        super().close(status, message)
        if self._steps is not None:
            self._steps.close()

    def callback(self, *, steps: bool = True) -> Any:
        """Returns a callback for Lightning's `Trainer(callbacks=[...])`.

        It attaches the trainer's first optimiser, observes each step with its batch, gives rows to the trainer's
        loggers, prints events as they come, and the summary at the end.

        Args:
            steps: Whether to watch what each step does, for a forward pass; False for the curvature alone. The loss of
                `training_step` must then be the monitor's.
        """
        from principalflow.torch._lightning import LightningCallback

        return LightningCallback(self, _checks.flag("steps", steps))

    def trainer_callback(self, trainer: Any = None, *, steps: bool = True) -> Any:
        """Returns a callback for Hugging Face's `Trainer`: `trainer.add_callback(monitor.trainer_callback(trainer))`.

        It attaches the trainer's optimiser, observes each step with its batch, adds to what the trainer logs, prints
        events as they come, and the summary at the end.

        Args:
            trainer: The trainer. Without it, the curvature alone is measured, and nothing is added to the log.
            steps: Whether to watch what each step does, for a forward pass; False for the curvature alone. The loss
                that is trained must then be the monitor's.
        """
        from principalflow.torch._huggingface import HuggingFaceCallback

        return HuggingFaceCallback(self, trainer, _checks.flag("steps", steps))

    def check_loss(self) -> str:
        """Returns how the last step's loss differs from the monitor's on the same batch, if it clearly does."""
        step = None if self._steps is None else self._steps.latest
        return "" if step is None else step.check_loss()

    def _last_step(self, batch: Any, loss: Any, gradient_norm: Any) -> Step | None:
        if batch is None:
            if self._steps is not None:
                self._steps.latest = None
            return None
        if self._steps is None:
            raise ValueError("batch needs the optimizer whose steps to watch: Monitor(..., optimizer=optimizer).")
        self._steps.wanted = True
        return self._steps.last(batch, *(x.item() if isinstance(x, Tensor) else x for x in (loss, gradient_norm)))

    def _edge_of(self, learning_rate: Any) -> Edge:
        given = learning_rate.item() if isinstance(learning_rate, Tensor) else learning_rate
        if self._optimizer is None:
            if given is None:
                raise ValueError("learning_rate must be given to observe, or an optimizer to the monitor; got neither.")
            return Edge.of_descent(checked_rate(given), momentum=self._momentum)
        edge = edge_of(self._optimizer, params=self._of.params())
        same_rate(given, edge)
        return edge


class _Observed:
    """One moment of a PyTorch loop; without a step nothing else of it is asked for."""

    def __init__(self, of: ModelLoss, take: Recording, step: Step | None):
        self.wait, self.loss, self.record, self.taken = of.wait, of.value, take, lambda: None
        if step is not None:
            self.taken, self.update_square, self.curvatures = step.taken, step.update_square, step.curvatures
