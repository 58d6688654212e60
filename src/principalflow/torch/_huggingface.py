"""The monitor as a callback of Hugging Face's trainer."""

# pyright: reportMissingImports=false

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback

from principalflow.runs import scalars
from principalflow.torch._callbacks import Observer

if TYPE_CHECKING:
    from principalflow.torch._monitor import Monitor

# What goes into the trainer's own log, which it prints.
_LOGGED = ("eigenvalue_0", "threshold", "edge", "realised_edge", "update_norm", "surprise")


class HuggingFaceCallback(TrainerCallback):
    """What the trainer calls along its training.

    Callbacks get neither batches nor the gradient before it is clipped, and can't add to the log. With the trainer at
    hand, the callback listens in on `compute_loss`, `accelerator.clip_grad_norm_` and `log` as long as it trains.
    """

    def __init__(self, monitor: "Monitor", trainer: Any, steps: bool):
        self._monitor, self._trainer, self._steps = monitor, trainer, steps
        self._observer: Observer | None = None  # in the first process, while it trains
        self._gradients: list[tuple[Any, Any]] = []
        self._latest: dict[str, float] = {}  # since the last log
        self._restore: list[Callable[[], None]] = []

    def on_train_begin(self, args: Any, state: Any, control: Any, *, optimizer: Any, **_: Any) -> None:
        """Watches the trainer's optimiser, from where training starts."""
        if not state.is_world_process_zero:
            return
        # The gradient is of the batches of all processes.
        steps = self._steps and self._trainer is not None and args.world_size == 1
        self._monitor.attach(optimizer, steps=steps)
        self._observer = Observer(self._monitor, steps)
        if self._trainer is not None:
            self._listen()
        self._observe(state.global_step)

    def on_optimizer_step(self, args: Any, state: Any, control: Any, *, optimizer: Any, **_: Any) -> None:
        """Keeps the gradients until the end of the step; the trainer drops them before."""
        if self._observer is not None and self._observer.watches_steps:
            self._gradients = [(p, p.grad) for group in optimizer.param_groups for p in group["params"]]

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Observes the step; the schedule has set the next one's rate by now."""
        for p, gradient in self._gradients:
            p.grad = gradient
        try:
            self._observe(state.global_step)
        finally:
            for p, _ in self._gradients:
                p.grad = None
            self._gradients = []

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Closes the monitor and prints its summary."""
        self._stop_listening()
        if self._observer is not None:
            self._observer.end()
        self._observer = None

    def _observe(self, step: int) -> None:
        row = self._observer.observe(step) if self._observer else None
        if row is None:
            return
        found = {name: row[name] for name in _LOGGED if name in row}
        if "eigenvalue_0" in found:
            found["measured_at"] = step
        if self._monitor.is_settling:
            found.pop("edge", None)
        self._latest |= scalars(found)

    def _listen(self) -> None:
        self._stop_listening()  # where a training before ended by an error
        trainer = self._trainer
        self._restore = [
            _wrap(trainer, "compute_loss", self._keep_batch),
            _wrap(trainer.accelerator, "clip_grad_norm_", self._keep_norm),
            _wrap(trainer, "log", self._add_latest),
        ]

    def _stop_listening(self) -> None:
        for restore in self._restore:
            restore()
        self._restore = []

    def _keep_batch(self, compute_loss: Callable, model: Any, inputs: Any, *more: Any, **options: Any) -> Any:
        batch = dict(inputs)  # the trainer may take the labels out
        result = compute_loss(model, inputs, *more, **options)
        if self._observer is not None and model.training:
            loss = result[0] if isinstance(result, tuple) else result
            self._observer.add(batch, loss.detach())
        return result

    def _keep_norm(self, clip: Callable, *given: Any, **options: Any) -> Any:
        norm = clip(*given, **options)
        if self._observer is not None:
            self._observer.gradient_norm = norm
        return norm

    def _add_latest(self, log: Callable, logs: dict[str, Any], *more: Any, **options: Any) -> None:
        if "loss" in logs:  # of training, and no evaluation
            logs |= self._latest
            self._latest = {}
        log(logs, *more, **options)


def _wrap(owner: Any, name: str, around: Callable) -> Callable[[], None]:
    """Has `around(method, ...)` called in place of a method of this object, and returns what undoes it."""
    before = vars(owner).get(name)
    setattr(owner, name, partial(around, getattr(owner, name)))
    return lambda: delattr(owner, name) if before is None else setattr(owner, name, before)
