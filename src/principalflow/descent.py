"""Gradient descent itself: the discrete trajectory that everything here models."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Inexact, Int, PyTree

from principalflow import _checks, _steps
from principalflow._progress import progress as progress_bar
from principalflow._steps import AT_ONCE, Optimizer, Pace, State, gradient_descent
from principalflow.objective import Objective, Vector, checked_theta
from principalflow.status import Status

__all__ = ["Descent", "Recorder", "descend"]

# The iterates of one compiled call take at most so many bytes beside those that are kept.
_BYTES_AT_ONCE = 2**26


@dataclass(frozen=True)
class Descent:
    """What gradient descent did.

    Attributes:
        thetas: The iterates that were to be kept, all of them finite.
        steps: Their numbers; 0 is the start.
        losses: The loss at every step from the start on, also where the iterate wasn't kept.
        status: How it ended, a `Status`: completed, diverged if it left the finite numbers before its last step, or
            interrupted (Ctrl-C).
        message: The status in a sentence.
        records: What was recorded, in labelled columns with the `step` first; None if nothing was to be recorded.
    """

    thetas: Inexact[Array, "kept D"] = field(repr=False)
    steps: Int[np.ndarray, " kept"] = field(repr=False)
    losses: Inexact[Array, " steps_plus_1"] = field(repr=False)
    status: Status
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
    theta: _checks.Numbers | PyTree,
    h: float,
    steps: int,
    *,
    momentum: float = 0.0,
    nesterov: bool = False,
    keep: int | Literal["all", "last"] = "all",
    record: Recorder | None = None,
    progress: bool | None = None,
) -> Descent:
    r"""Runs gradient descent, $\theta_t = \theta_{t-1} - h \nabla E(\theta_{t-1})$ (paper, eq. 1).

    With momentum m the step is $\theta_t = \theta_{t-1} - h v_t$, where $v_t = m v_{t-1} + \nabla E(\theta_{t-1})$.
    With Nesterov's it is $\theta_t = \theta_{t-1} - h (\nabla E(\theta_{t-1}) + m v_t)$, as in optax and PyTorch.

    It stops at the first iterate whose parameters or loss are not finite, and says so. A recorded run that is
    interrupted (Ctrl-C) returns what it has.

    Args:
        objective: The loss.
        theta: The starting point, flat or as the parameters that the objective was made with.
        h: The learning rate.
        steps: How many steps to take.
        momentum: The momentum m, at least 0 and below 1.
        nesterov: Whether it is Nesterov's.
        keep: Which iterates to keep: "all"; for a number n every n-th, from the start on; or only the "last" one that
            is finite. Losses are kept of all.
        record: What to record along the way, a `Record`; None for nothing. Its changes and predictions are those of a
            step without momentum.
        progress: Whether a recorded run shows how far it is; None for where there is a terminal.

    Returns:
        A `Descent`: the `thetas` that were kept with their `steps`, the `losses` (steps + 1; fewer if it diverged), and
        `records`, which a diverged run keeps.

    Raises:
        ValueError: For h not above 0, steps below 0, a momentum that isn't in [0, 1) or Nesterov's without one, more to
            keep than there is memory for, a record that is none, or a start where theta or the loss is not finite.

    Example:
        >>> import principalflow as pf
        >>> path = pf.descend(pf.functions.quadratic([[1.0]]), [1.0], h=1.5, steps=3)
        >>> path.thetas[:, 0]
        Array([ 1.   , -0.5  ,  0.25 , -0.125], dtype=float64)
        >>> path.message
        'completed 3 steps'
        >>> pf.descend(pf.functions.quadratic([[1.0]]), [1.0], h=1.5, steps=3, keep="last").steps
        array([3])
    """
    h, steps = _checks.rate("h", h), _checks.whole("steps", steps, least=0)
    momentum, nesterov = _checks.fraction("momentum", momentum), _checks.flag("nesterov", nesterov)
    if nesterov and not momentum:
        raise ValueError("momentum must be above 0 where nesterov is True, got 0.")
    if record is not None and (
        isinstance(record, type) or not hasattr(record, "start") or not hasattr(record, "every")
    ):
        given = _checks.shown(record)
        raise ValueError(f"record must be a principalflow.Record, such as Record(every=10), got {given}.")
    theta = checked_theta(objective, theta)
    kept, optimizer = _Kept(keep, theta, steps), gradient_descent(momentum, nesterov)
    if record is not None:
        # Where each step is recorded, the record has compiled all that a step needs.
        at_once = 1 if record.every == 1 else AT_ONCE
        return _recorded(_Run(objective, theta, optimizer, h, steps, kept, at_once), record, progress)
    run = _Run(objective, theta, optimizer, h, steps, kept)
    while run.goes_on:
        run.advance()
    return run.descent()


def _recorded(run: "_Run", record: Recorder, shown: bool | None) -> Descent:
    """Goes from one record to the next; what it has is kept however it ends."""
    take, rows, ending = record.start(run.objective), [], None
    try:
        with progress_bar(run.steps, shown) as show:
            while run.goes_on:
                if run.step % record.every == 0:
                    rows.append({"step": run.step, **take(run.state.theta, run.h)})
                run.advance(record.every - run.step % record.every)
                show(min(run.step, run.steps), f"loss {np.real(run.kept.losses[-1][-1]):.4g}")
    except _checks.NonFiniteError as error:
        run.advance(1)
        if not rows:
            raise
        if not run.diverged:  # the loss is finite, but its derivatives are not
            ending = Status.DIVERGED, f"diverged: at step {run.step - 1}, {error}"
    except KeyboardInterrupt:
        if not run.step:
            raise
        ending = Status.INTERRUPTED, f"interrupted at step {run.step - 1} of {run.steps}"
    import pandas  # here, since importing it takes long

    return run.descent(ending, pandas.DataFrame(rows))


class _Kept:
    """What is kept of a descent: every n-th iterate, or the last one alone, and all losses."""

    def __init__(self, keep: Any, theta: Vector, steps: int):
        if isinstance(keep, str) and keep not in ("all", "last"):
            raise ValueError(f"keep must be 'all', 'last' or a whole number, got {_checks.shown(keep)}.")
        self.only_last = isinstance(keep, str) and keep == "last"
        self._every = 1 if isinstance(keep, str) else _checks.whole("keep", keep, least=1)
        number = 1 if self.only_last else steps // self._every + 1
        # Iterates take their place twice for a moment, on their way to JAX.
        needed = (2 * number * theta.size + steps + 1) * theta.itemsize
        _checks.fits("keep", needed, f"{number} iterates of {theta.size} parameters and {steps + 1} losses")
        self._thetas, self.steps = np.empty((number, theta.size), theta.dtype), np.zeros(0, int)
        self.losses: list[np.ndarray] = []

    def add(self, step: int, losses: np.ndarray, thetas: np.ndarray) -> None:
        """Keeps what is to be kept of the iterates from `step` on."""
        self.losses.append(losses)
        if self.only_last:
            self._thetas[0], self.steps = thetas[0], np.array([step + len(losses) - 1])
        else:
            chosen = np.arange(-step % self._every, len(losses), self._every)
            self._thetas[len(self.steps) : len(self.steps) + len(chosen)] = thetas[chosen]
            self.steps = np.append(self.steps, step + chosen)

    @property
    def thetas(self) -> np.ndarray:
        """The iterates of `steps`."""
        return self._thetas[: len(self.steps)]


class _Run:
    """A descent while it is made: its `state` is the iterate after `step` steps, and what came before is kept."""

    def __init__(
        self,
        objective: Objective,
        theta: Vector,
        optimizer: Optimizer,
        h: float,
        steps: int,
        kept: _Kept,
        at_once: int = AT_ONCE,
    ):
        self.objective, self.h, self.steps, self.kept = objective, h, steps, kept
        self.step, self.diverged, self.state = 0, False, State(theta, optimizer.init(theta))
        self._optimizer, self._pace = optimizer, Pace()
        self._rates = jnp.full(at_once, h, jnp.finfo(theta.dtype).dtype)
        self._places = 1 if kept.only_last else min(max(_BYTES_AT_ONCE // theta.nbytes, 1), at_once)

    @property
    def goes_on(self) -> bool:
        """Whether there is a step left, or the loss at the end."""
        return self.step <= self.steps and not self.diverged

    def advance(self, most: int = AT_ONCE) -> None:
        """Takes some of the next steps, at most so many."""
        most = min(most, self.steps + 1 - self.step, len(self._rates) if self.kept.only_last else self._places)
        count = self._pace.count(most)
        with self._pace.timed(count):
            arguments = self.objective, self._optimizer, self.state, self._rates, None, jnp.asarray(count, jnp.int32)
            state, log = _steps.advance(*arguments, self._places)
            losses = np.asarray(log.losses)[: int(log.taken)]
        self.diverged = not np.isfinite(losses[-1])
        finite = len(losses) - self.diverged
        if not self.step + finite:
            raise ValueError(f"theta must have a finite loss, got E(theta) = {losses[0]}.")
        if finite:
            self.kept.add(self.step, losses[:finite], np.asarray(log.thetas))
        self.step, self.state = self.step + finite, state

    def descent(self, ending: tuple[Status, str] | None = None, records: Any = None) -> Descent:
        """Returns what it came to."""
        losses = np.concatenate(self.kept.losses)
        if self.diverged:
            ending = Status.DIVERGED, f"diverged: step {len(losses)} left the finite numbers"
        elif ending is None:
            first, last = np.real(losses[[0, -1]])
            rises = last > first and not np.iscomplexobj(losses)
            rose = f"; the loss rose from {first:.4g} to {last:.4g}" if rises else ""
            ending = Status.COMPLETED, f"completed {self.steps} steps{rose}"
        thetas, losses = jax.device_put((self.kept.thetas, losses))  # `jnp.asarray` would compile for each new shape
        return Descent(thetas, self.kept.steps, losses, *ending, records)
