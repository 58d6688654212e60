"""Where the rows of a monitor go."""

import os
from collections.abc import Callable
from typing import Any, NamedTuple

from principalflow import _checks, runs
from principalflow.monitor._events import in_words
from principalflow.record import Row
from principalflow.status import Status


class Sink(NamedTuple):
    """What takes each row, and what takes the status and the message of the end."""

    append: Callable[[Row], Any]
    close: Callable[[Status, str], Any] = lambda status, message: None


def sink(to: Any, config: dict[str, Any]) -> Sink:
    """Returns the sink for what a user gives as `to`; None is nowhere, and a list of several goes to each."""
    if isinstance(to, list | tuple):
        return _all([sink(each, config) for each in to])
    if isinstance(to, str | os.PathLike | runs.Run):
        run = to if isinstance(to, runs.Run) else runs.create(_checks.path("to", to), config)
        return Sink(lambda row: run.append(in_words(row)), run.close)
    # A writer and a run of W&B are the user's and stay open.
    if hasattr(to, "add_scalar"):
        return Sink(lambda row: runs.add_row(to, row))
    if hasattr(to, "define_metric"):
        return _wandb(to)
    if to is None or callable(to):
        return Sink(to or (lambda row: None))
    raise ValueError(
        "to must be a function of a row, a TensorBoard writer with add_scalar, a Weights & Biases run, the path of a "
        f"run directory, one that runs.reopen returned, or a list of these, got a {type(to).__name__}."
    )


def _all(sinks: list[Sink]) -> Sink:
    def append(row: Row) -> None:
        for each in sinks:
            each.append(row)

    def close(status: Status, message: str) -> None:
        for each in sinks:
            each.close(status, message)

    return Sink(append, close)


def _wandb(run: Any) -> Sink:
    """Returns the sink for a Weights & Biases run, whose charts of the rows have the loop's steps on their x-axis."""
    run.define_metric("principalflow/step")
    run.define_metric("principalflow/*", step_metric="principalflow/step")

    def append(row: Row) -> None:
        logged = {"principalflow/step": row["step"], **runs.scalars(row)}
        if row["events"]:
            logged["principalflow/events"] = "; ".join(map(str, row["events"]))
        # W&B drops what is logged at a step before its own, which is ahead where the loop logs more than once a step.
        run.log(logged, step=max(row["step"], run.step))

    return Sink(append)
