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
    """Returns the sink for a function, a TensorBoard writer or the path of a run directory; None for nowhere."""
    if isinstance(to, str | os.PathLike):
        run = runs.create(_checks.path("to", to), config)
        return Sink(lambda row: run.append(in_words(row)), run.close)
    if hasattr(to, "add_scalar"):
        return Sink(lambda row: runs.add_row(to, row))  # the writer is the user's and stays open
    if to is None or callable(to):
        return Sink(to or (lambda row: None))
    raise ValueError(
        "to must be a function of a row, a TensorBoard writer with add_scalar, or the path of a run directory, "
        f"got a {type(to).__name__}."
    )
