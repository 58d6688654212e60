"""Runs and sweeps: from options to run directories."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from principalflow import runs
from principalflow._progress import progress as progress_bar
from principalflow.monitor import Monitor
from principalflow.objective import Vector
from principalflow.runs._directory import CONFIG, read_config, read_status
from principalflow.runs._files import plain, write_json
from principalflow.training import _schedule, _steps
from principalflow.training._optimizer import Optimizer, optimizer
from principalflow.training._options import Options
from principalflow.training._problem import Problem, problem
from principalflow.training._steps import Log, State

# How long one compiled call may take, about: an interruption waits for its end.
_SECONDS_AT_ONCE = 0.5


def run(
    options: Options,
    out: str | os.PathLike,
    progress: bool | None = None,
    together: bool | None = None,
    say: Callable[[str], None] | None = None,
) -> dict[str, str]:
    """Trains a network, or sweeps over some options, into run directories; what is there already is continued.

    A run is continued from its last checkpoint, with the numbers that it would have had, bit for bit on the same
    machine; one that is done is left as it is, unless more steps are asked for. Ctrl-C ends it at a checkpoint.

    Args:
        options: What to train, and how.
        out: The run directory; for a sweep the folder that gets one for each run.
        progress: Whether to show how far it is; None for where there is a terminal.
        together: Whether the runs of a sweep are computed at once, by `jax.vmap`; None for where JAX has an
            accelerator. On CPUs one after the other is quicker.
        say: Is called with a sentence on how each run begins and ends.

    Returns:
        The status of each run by its path: "done", "diverged" or "interrupted".

    Raises:
        ValueError: If options, data and network don't fit each other.
        RunError: If a directory is in use, or holds a run with other options.

    Example:
        >>> import tempfile, principalflow as pf
        >>> options = pf.training.Options(data="iris", hidden=(8,), learning_rate=0.1, steps=5)
        >>> list(pf.training.run(options, tempfile.mkdtemp()).values())
        ['done']
    """
    options.check()
    say = say or (lambda sentence: None)
    members = {Path(out) / name: single for name, single in options.runs().items()}
    statuses = {path: _finished(path, single) for path, single in members.items()}
    for path, status in statuses.items():
        if status is not None:
            say(f"{path} is {status} already.")
    pending = [path for path, status in statuses.items() if status is None]
    if pending:
        # What differs between the runs of a sweep are numbers, so they share one problem and its compiled code.
        first = members[pending[0]]
        shared = problem(first, progress), optimizer(first)
        together = jax.default_backend() != "cpu" if together is None else together
        batches = [pending] if together else [[path] for path in pending]
        with _stop_signal() as stopped:
            for number, paths in enumerate(batches, 1):
                label = f"{number}/{len(batches)} " if len(batches) > 1 else ""
                group = [_Member(*shared, members[path], path, say) for path in paths]
                _train(group, label, progress, stopped)
                statuses |= {member.path: member.status for member in group}
                if stopped():
                    break
    return {str(path): status or "interrupted" for path, status in statuses.items()}


class _Member:
    """One run of a sweep: its directory, its state, and what is recorded of it."""

    def __init__(self, problem: Problem, optimizer_: Optimizer, o: Options, path: Path, say: Callable[[str], None]):
        self.problem, self.optimizer, self.o, self.path, self.say = problem, optimizer_, o, path, say
        self.status: str | None = None
        self._last: dict[str, Any] = {}
        theta = problem.start(o)
        self.state = State(theta, optimizer(o).init(theta))
        self._monitor = Monitor(problem.objective, k=o.directions, every=1, tol=o.tolerance, momentum=o.momentum)
        rate = cast(float, o.learning_rate or 0.0)  # dal has its own
        self._rates = _schedule.rates(rate, o.schedule, o.warmup, o.steps)
        self.step, self.run = 0, _opened(path, o)
        if (found := self.run.restore()) is not None:
            self.step = found[0]
            self._restore(found[1])
            say(f"{path} goes on at step {self.step}.")

    def arguments(self, count: int) -> tuple[State, jax.Array, jax.Array | None]:
        """Returns the state, rates and batches of the next `count` steps."""
        rates = np.zeros(_steps.AT_ONCE)
        rates[:count] = self._rates[self.step : self.step + count]
        batches = None
        if self.o.batch_size is not None:
            chosen = [_batch(self.o, self.problem.samples, self.step + i) for i in range(count)]
            batches = np.zeros((_steps.AT_ONCE, self.o.batch_size), np.int32)
            batches[:count] = chosen
            batches = jnp.asarray(batches)
        return self.state, jnp.asarray(rates, self.state.theta.dtype), batches

    def take(self, state: State, log: Log) -> None:
        """Writes what some steps saw, and moves on to their end."""
        taken, losses, norms, rates = (np.asarray(column) for column in log)
        of_batch = "batch_" if self.o.batch_size is not None else ""
        rows: list[dict[str, Any]] = [
            {"step": self.step + i, f"{of_batch}loss": losses[i], f"{of_batch}gradient_norm": norms[i]}
            | {"learning_rate": rates[i]}
            for i in range(int(taken))
        ]
        rows[0] = self._recorded(self.state.theta, float(rates[0])) | rows[0]
        self.run.append(*rows)
        self._last |= rows[0] | rows[-1]
        if not np.isfinite(losses[taken - 1]):
            self.close("diverged", f"the loss is not finite at step {rows[-1]['step']}")
        elif self.step == self.o.steps:
            self.close("done", f"{self.o.steps} steps, the last loss is {losses[0]:.6g}")
        else:
            self.step, self.state = self.step + int(taken), state

    def words(self) -> str:
        """Returns how it stands, in a few words."""
        row = self._last
        loss = row["loss"] if "loss" in row else row["batch_loss"]
        edge = f" · h λ₀ {row['learning_rate'] * row['eigenvalue_0']:.3f}" if "eigenvalue_0" in row else ""
        return f"loss {loss:.4g}{edge} · rate {row['learning_rate']:.3g}"

    def checkpoint(self) -> None:
        """Saves all that the next steps depend on."""
        leaves = {f"state_{i}": leaf for i, leaf in enumerate(jax.tree.leaves(self.state))}
        watched = {f"monitor_{name}": value for name, value in self._monitor.state.items()}
        self.run.checkpoint(self.step, leaves | watched)

    def close(self, status: Any, message: str) -> None:
        """Ends the run."""
        self.status = status
        self.run.close(status, message)
        self.say(f"{self.path} is {status}: {message}.")

    def _restore(self, arrays: dict[str, np.ndarray]) -> None:
        leaves, structure = jax.tree.flatten(self.state)
        kept = [jnp.asarray(arrays[f"state_{i}"]) for i in range(len(leaves))]
        self.state = jax.tree.unflatten(structure, kept)
        prefix = "monitor_"
        watched = {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
        self._monitor.restore(watched)

    def _recorded(self, theta: Vector, rate: float) -> dict[str, Any]:
        """Returns what else is recorded at this step."""
        row: dict[str, Any] = {}
        if _is_due(self.step, self.o.record_every):
            row |= self._monitor.observe(self.step, theta, rate) or {}
        if self.o.evaluate_every and (_is_due(self.step, self.o.evaluate_every) or self.step == self.o.steps):
            row |= self.problem.evaluate(theta)
        return row


def _train(members: list[_Member], label: str, shown: bool | None, stopped: Callable[[], bool]) -> None:
    """Runs members to their end; those that are behind, because they were interrupted earlier, go first."""
    o, seconds_per_step = members[0].o, None
    try:
        with progress_bar(o.steps, shown) as show:
            while active := [member for member in members if member.status is None]:
                step = min(member.step for member in active)
                moving = [member for member in active if member.step == step]
                if stopped() or step == o.steps or (step and _is_due(step, o.checkpoint_every)):
                    for member in moving:
                        member.checkpoint()
                if stopped():
                    for member in active:
                        member.close("interrupted", f"at step {member.step} of {o.steps}")
                    return
                count = _count(o, step, seconds_per_step)
                began = time.perf_counter()
                for member, result in zip(moving, _advanced(moving, count), strict=True):
                    member.take(*result)
                seconds_per_step = (time.perf_counter() - began) / count
                show(min(step + count, o.steps), label + moving[0].words())
    except BaseException as error:
        for member in members:
            if member.status is None:
                member.close("interrupted", f"by {type(error).__name__} after step {member.step}: {error}")
        raise


def _advanced(members: list[_Member], count: int) -> list[tuple[State, Log]]:
    """Returns the state and log of each member after at most `count` more steps."""
    shared = members[0].problem.objective, members[0].optimizer
    arguments = [member.arguments(count) for member in members]
    limit = jnp.asarray(count, jnp.int32)
    if len(members) == 1:
        return [_steps.advance(*shared, *arguments[0], limit)]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *arguments)
    results = _steps.advance_together(*shared, *stacked, limit)
    return [jax.tree.map(lambda leaf, i=i: leaf[i], results) for i in range(len(members))]


def _count(o: Options, step: int, seconds_per_step: float | None) -> int:
    """Returns how many steps to take in one call: up to the next at which something is recorded or saved."""
    if step == o.steps or seconds_per_step is None:
        return 1
    ends = [every - step % every for every in (o.record_every, o.evaluate_every, o.checkpoint_every) if every]
    in_time = max(int(_SECONDS_AT_ONCE / seconds_per_step), 1)
    return min(o.steps - step, _steps.AT_ONCE, in_time, *ends)


def _is_due(step: int, every: int) -> bool:
    return every > 0 and step % every == 0


def _batch(o: Options, samples: int, step: int) -> np.ndarray:
    """Returns the samples of a step: each epoch is a permutation of its own, cut into whole batches."""
    size = o.batch_size or samples
    epoch, position = divmod(step, samples // size)
    order = _epoch(cast(int, o.seed), epoch, samples)
    return order[position * size : (position + 1) * size]


@lru_cache(maxsize=4)
def _epoch(seed: int, epoch: int, samples: int) -> np.ndarray:
    return np.random.default_rng((seed, epoch)).permutation(samples)


def _finished(path: Path, o: Options) -> str | None:
    """Returns the status of a run to which nothing is left to do, else None; other options are refused."""
    if not (path / CONFIG).exists():
        return None
    stored, wanted = read_config(path), plain(o.config())
    differing = [name for name in wanted if stored.get(name) != wanted[name]]
    changeable = {"checkpoint_every"} if _schedule.depends_on_steps(o.schedule) else {"checkpoint_every", "steps"}
    if others := [name for name in differing if name not in changeable or o.steps < stored.get("steps", 0)]:
        name = others[0]
        raise runs.RunError(
            f"{path} is a run with {name} {stored.get(name)!r}, and {wanted[name]!r} was asked for: "
            "choose another folder, or remove it."
        )
    status = read_status(path)["status"]
    return status if status == "diverged" or (status == "done" and "steps" not in differing) else None


def _opened(path: Path, o: Options) -> runs.Run:
    if not (path / CONFIG).exists():
        return runs.create(path, o.config())
    opened = runs.reopen(path)
    write_json(path / CONFIG, o.config())
    return opened


@contextmanager
def _stop_signal() -> Iterator[Callable[[], bool]]:
    """Gives a function that tells whether Ctrl-C or a termination was asked for; the second Ctrl-C ends at once."""
    signals: list[int] = []

    def note(number: int, frame: Any) -> None:
        if number in signals:
            raise KeyboardInterrupt
        signals.append(number)

    if threading.current_thread() is not threading.main_thread():  # only that one may handle signals
        yield lambda: False
        return
    previous = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(signals)
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
