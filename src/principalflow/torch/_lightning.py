"""The monitor as a callback of Lightning's trainer."""

# pyright: reportMissingImports=false

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from principalflow.runs import scalars
from principalflow.torch._callbacks import Observer

if TYPE_CHECKING:
    from principalflow.torch._monitor import Monitor

# The first steps whose losses are compared with the monitor's own.
_COMPARED = 3


class LightningCallback:
    """What Lightning calls along its training; hooks that a monitor has no use for do nothing.

    It isn't a subclass of Lightning's own, since that has two names: `lightning.pytorch` and `pytorch_lightning`.
    """

    state_key = _legacy_state_key = "principalflow.torch.Monitor"  # both are asked for when a checkpoint is loaded

    def __init__(self, monitor: "Monitor", steps: bool):
        self._monitor, self._steps = monitor, steps
        self._observer: Observer | None = None  # in the first process, while it trains
        self._step, self._to_compare = 0, _COMPARED

    def on_train_start(self, trainer: Any, module: Any) -> None:
        """Watches the trainer's first optimiser, from where training starts."""
        if not trainer.is_global_zero:
            return
        # The gradient is of the batches of all processes; a loop that steps by itself may have zeroed it.
        steps = self._steps and trainer.world_size == 1 and module.automatic_optimization
        self._monitor.attach(trainer.optimizers[0], steps=steps)
        self._observer = Observer(self._monitor, steps)
        self._observe(trainer)

    def on_before_optimizer_step(self, trainer: Any, module: Any, optimizer: Any) -> None:
        """Keeps the norm of the gradient, which is clipped next."""
        if self._observer is not None and self._observer.watches_steps and trainer.gradient_clip_val:
            gradients = [p.grad for p in module.parameters() if p.grad is not None]
            self._observer.gradient_norm = torch.nn.utils.get_total_norm(gradients)

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Observes the step, if the batch ended one."""
        if self._observer is None:
            return
        if isinstance(outputs, dict) and "loss" in outputs:  # it has none where the module skipped the batch
            self._observer.add(batch, outputs["loss"])
        if trainer.global_step != self._step:
            self._observe(trainer)
            self._compare()

    def on_train_end(self, trainer: Any, module: Any) -> None:
        """Closes the monitor and prints its summary."""
        self._end()

    def on_exception(self, trainer: Any, module: Any, exception: BaseException) -> None:
        """Closes the monitor with the error, and prints its summary."""
        self._end(exception)

    def state_dict(self) -> dict[str, Any]:
        """Returns what holds at the moment, so that a training that goes on doesn't report it again."""
        return {name: bool(on) for name, on in self._monitor.state.items() if not on.ndim}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores it; the eigenpairs are found anew."""
        self._monitor.restore(state)

    def _observe(self, trainer: Any) -> None:
        self._step = trainer.global_step
        row = self._observer and self._observer.observe(self._step, trainer.accumulate_grad_batches)
        if row:
            for logger in trainer.loggers:
                logger.log_metrics(scalars(row), step=self._step)

    def _compare(self) -> None:
        """Warns once where `training_step` computes another loss, on the first steps: more would take a pass each."""
        if self._to_compare and (difference := self._monitor.check_loss()):
            warnings.warn(
                f"the loss of training_step isn't the monitor's on the same batch ({difference}), so that what steps "
                "did is reported wrongly: give the monitor the same loss, and change batches before training_step, or "
                "take callback(steps=False).",
                stacklevel=2,
            )
            self._to_compare = 0
        self._to_compare = max(self._to_compare - 1, 0)

    def _end(self, error: BaseException | None = None) -> None:
        if self._observer is not None:
            self._observer.end(error)
        self._observer = None

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name.startswith("on_") or name in ("setup", "teardown"):
            return lambda *args, **kwargs: None
        raise AttributeError(name)
