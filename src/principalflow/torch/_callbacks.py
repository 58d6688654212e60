"""What a monitor's callbacks for trainers share: the batches of a step, and what they print as it happens."""

# pyright: reportMissingImports=false

from typing import TYPE_CHECKING, Any

from principalflow.record import Row

if TYPE_CHECKING:
    from principalflow.torch._monitor import Monitor


class Observer:
    """Observes the steps of a trainer, which may take several batches for each.

    Attributes:
        watches_steps: Whether batches are wanted.
        gradient_norm: Of the gradient of the step that is under way, before it was clipped; None where it wasn't.
    """

    def __init__(self, monitor: "Monitor", watches_steps: bool):
        self.monitor, self.watches_steps = monitor, watches_steps
        self.gradient_norm: Any = None
        self._batches: list[Any] = []
        self._losses: list[Any] = []

    def add(self, batch: Any, loss: Any) -> None:
        """Adds a batch to the step that is under way, and its part of the loss."""
        if self.watches_steps:
            self._batches.append(batch)
            self._losses.append(loss)

    def observe(self, step: int, accumulated: int | None = None) -> Row | None:
        """Observes a step that was taken, prints what is new and returns the row.

        Args:
            step: The number of steps taken.
            accumulated: The number of batches that its gradient is divided by, if not their own: where they differ, as
                they may at the end of an epoch, the step isn't watched.
        """
        batches, losses, norm = self._batches, self._losses, self.gradient_norm
        self._batches, self._losses, self.gradient_norm = [], [], None
        given: dict[str, Any] = {}
        if batches and accumulated in (None, len(batches)):
            # Of several batches, some trainers' losses are divided by their number, and others' not.
            one = dict(batch=batches[0], loss=losses[0]) if len(batches) == 1 else dict(batch=batches)
            given = one | dict(gradient_norm=norm)
        row = self.monitor.observe(step, **given)
        for event in row["events"] if row else ():
            print(event)
        return row

    def end(self, error: BaseException | None = None) -> None:
        """Closes the monitor and prints its summary."""
        self.monitor.__exit__(None if error is None else type(error), error, None)
        print(self.monitor.summary())
