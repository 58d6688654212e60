"""Gradient descent itself: the discrete trajectory that everything here models."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import pandas
from jax import lax
from jaxtyping import Array, Inexact

from principalflow import _checks
from principalflow._compiled import compiled
from principalflow._progress import progress as progress_bar
from principalflow.objective import Objective, Vector, checked_theta


@dataclass(frozen=True)
class Path:
    """What gradient descent did.

    Attributes:
        thetas: The iterates, the starting point first; only finite ones.
        losses: The loss at each of them.
        diverged: True if descent left the finite numbers before its last step.
        message: One sentence on how it ended.
        records: What was recorded, in labelled columns with the `step` first, a pandas DataFrame; None if nothing was
            to be recorded.
    """

    thetas: Inexact[Array, "steps_plus_1 D"] = field(repr=False)
    losses: Inexact[Array, " steps_plus_1"] = field(repr=False)
    diverged: bool
    message: str
    records: Any = field(default=None, repr=False)


class Recorder(Protocol):
    """What `descend` asks of its `record`; `principalflow.Record` is the one that is meant."""

    @property
    def every(self) -> int:
        """How many steps lie between two records."""
        ...

    def start(self, objective: Objective) -> Callable[[Vector, float], dict[str, Any]]:
        """Returns a function that takes one record after another, as named values, from parameters and rate."""
        ...


def descend(
    objective: Objective,
    theta: _checks.Numbers,
    h: float,
    steps: int,
    record: Recorder | None = None,
    progress: bool | None = None,
) -> Path:
    r"""Runs gradient descent, $\theta_t = \theta_{t-1} - h \nabla E(\theta_{t-1})$ (paper, eq. 1).

    It stops at the first iterate whose parameters or loss are not finite, and says so. A recorded run that is
    interrupted (Ctrl-C) returns what it has.

    Args:
        objective: The loss.
        theta: The flat starting point.
        h: The learning rate.
        steps: How many steps to take.
        record: What to record along the way, a `Record`; None for nothing.
        progress: Whether a recorded run shows how far it is; None for where there is a terminal.

    Returns:
        A `Path` with `thetas` (steps + 1, D) and `losses` (steps + 1), fewer if it diverged, and `records`, which a
        diverged run keeps.

    Raises:
        ValueError: For h not above 0, steps below 0 or more than there is memory for, a record that is none, or a start
            where theta or the loss is not finite.

    Example:
        >>> import principalflow as pf
        >>> path = pf.descend(pf.functions.quadratic([[1.0]]), [1.0], h=1.5, steps=3)
        >>> path.thetas[:, 0]
        Array([ 1.   , -0.5  ,  0.25 , -0.125], dtype=float64)
        >>> path.message
        'completed 3 steps'
    """
    h, steps = _checks.rate("h", h), _checks.whole("steps", steps, least=0)
    theta = checked_theta(objective, theta)
    kept = f"{steps + 1} iterates of {theta.size} parameters"
    _checks.fits("steps", (steps + 1) * (theta.size + 1) * theta.itemsize, kept)
    if record is None:
        thetas, losses = _run(objective, theta, h, steps)
        return Path(thetas, losses, *_end(losses, steps))
    if isinstance(record, type) or not hasattr(record, "start"):
        given = _checks.shown(record)
        raise ValueError(f"record must be a principalflow.Record, such as Record(every=10), got {given}.")
    return _recorded(objective, theta, h, steps, record, progress)


def _recorded(objective: Objective, theta: Vector, h: float, steps: int, record: Recorder, shown: bool | None) -> Path:
    """Runs from one record to the next; what it has is kept however it ends."""
    take, rows, pieces, unusual = record.start(objective), [], [_run(objective, theta, h, 0)], None
    try:
        with progress_bar(steps, shown) as advance:
            for step in range(0, steps + 1, record.every):
                theta, loss = pieces[-1][0][-1], float(pieces[-1][1][-1])
                rows.append({"step": step, **take(theta, h)})
                wanted = min(record.every, steps - step)
                thetas, losses = _run(objective, theta, h, wanted)
                pieces.append((thetas[1:], losses[1:]))
                advance(step + wanted, f"loss {loss:.4g}")
                if len(losses) - 1 < wanted or not wanted:
                    break
    except (_checks.NonFiniteError, KeyboardInterrupt) as end:
        if not rows:
            raise
        taken = sum(len(losses) for _, losses in pieces) - 1
        diverged = isinstance(end, _checks.NonFiniteError)  # the loss is finite, but its derivatives are not
        message = f"diverged: at step {taken}, {end}" if diverged else f"interrupted at step {taken} of {steps}"
        unusual = diverged, message
    thetas, losses = (jnp.concatenate(parts) for parts in zip(*pieces, strict=True))
    return Path(thetas, losses, *(unusual or _end(losses, steps)), pandas.DataFrame(rows))


def _run(objective: Objective, theta: Vector, h: float, steps: int) -> tuple[Array, Array]:
    """Returns the iterates that are finite, the start first, and their losses."""
    taken, thetas, losses = _descend(objective, theta, jnp.asarray(h), steps)
    taken = int(taken)
    if taken == 0:
        raise ValueError(f"theta must have a finite loss, got E(theta) = {losses[0]}.")
    return thetas[:taken], losses[:taken]


def _end(losses: Array, steps: int) -> tuple[bool, str]:
    """Whether a run diverged, and a sentence on how it ended."""
    if len(losses) <= steps:
        return True, f"diverged: step {len(losses)} left the finite numbers"
    rose = f"; the loss rose from {losses[0]:.4g} to {losses[-1]:.4g}" if losses[-1].real > losses[0].real else ""
    return False, f"completed {steps} steps{rose}"


@compiled
def _descend(objective: Objective, theta: Vector, h: Array, steps: int):
    """Returns the number of finite iterates, and buffers that start with them."""

    def unfinished(state):
        index, theta, previous_loss, *_ = state
        return (index <= steps) & jnp.isfinite(previous_loss) & jnp.all(jnp.isfinite(theta))

    def step(state):
        index, theta, _, thetas, losses = state
        loss, gradient = objective.value_and_gradient(theta)
        thetas, losses = thetas.at[index].set(theta), losses.at[index].set(loss)
        return index + 1, theta - h * gradient, loss, thetas, losses

    thetas = jnp.zeros((steps + 1, theta.size), theta.dtype)
    losses = jnp.zeros(steps + 1, jax.eval_shape(objective.value, theta).dtype)
    start = (0, theta, losses[0], thetas, losses)
    index, _, last_loss, thetas, losses = lax.while_loop(unfinished, step, start)
    return index - ~jnp.isfinite(last_loss), thetas, losses
