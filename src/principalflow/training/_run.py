"""Runs and sweeps: from options to run directories."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from principalflow import _checks, _steps, runs
from principalflow._files import plain
from principalflow._progress import progress as progress_bar
from principalflow._steps import Log, Optimizer, Pace, State
from principalflow.status import Status
from principalflow.training import _schedule
from principalflow.training._member import Member, is_due
from principalflow.training._optimizer import optimizer
from principalflow.training._options import Options
from principalflow.training._problem import Problem, problem

# Where there is no terminal for a bar, a sentence says how far a run is.
_SECONDS_BETWEEN_WORDS = 30


def run(
    options: Options,
    out: str | os.PathLike,
    *,
    progress: bool | None = None,
    together: bool | None = None,
    say: Callable[[str], None] | None = None,
) -> dict[str, Status]:
    """Trains a network, or sweeps over some options, into run directories; runs that exist are continued.

    A run is continued from its last checkpoint, with the numbers that it would have had, bit for bit on the same
    machine; one that is completed is left as it is, unless more steps are asked for. Ctrl-C ends it at a checkpoint.

    Args:
        options: What to train, and how.
        out: The run directory; for a sweep the folder that gets one for each run.
        progress: Whether to show how far it is; None for where there is a terminal.
        together: Whether the runs of a sweep are computed at once, by `jax.vmap`; None for where JAX has an
            accelerator. Their numbers are then those of single runs to rounding; an interrupted sweep must be
            continued in the same way.
        say: Is called with a sentence on how each run begins and ends.

    Returns:
        The status of each run by its path: completed, diverged or interrupted.

    Raises:
        ValueError: If options, data and network don't fit each other.
        RunError: If a directory is in use, or holds a run with other options.

    Example:
        >>> import tempfile, principalflow as pf
        >>> options = pf.training.Options(data="iris", hidden=(8,), learning_rate=0.1, steps=5)
        >>> [str(status) for status in pf.training.run(options, tempfile.mkdtemp()).values()]
        ['completed']
    """
    if not isinstance(options, Options):
        raise ValueError(f"options must be training.Options(...), got {_checks.shown(options)}.")
    out = _checks.path("out", out)
    options.check()
    say = say or (lambda sentence: None)
    members = {out / name: single for name, single in options.runs().items()}
    if len(members) > 1 and (out / runs.CONFIG).exists():
        raise runs.RunError(f"{out} is a single run, and can't hold those of a sweep: choose another folder.")
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
        lanes = {path: lane for lane, path in enumerate(members)} if together else dict.fromkeys(members, 0)
        parts = [pending] if together else [[path] for path in pending]
        with _stop_signal() as stopped:
            for number, paths in enumerate(parts, 1):
                label = f"{number}/{len(parts)} " if len(parts) > 1 else ""
                group = _Group(shared, len(members) if together else 1, options.steps, say)
                try:
                    for path in paths:
                        group.open(members[path], path, lanes[path])
                    _train(group, label, progress, stopped)
                except BaseException as error:
                    group.close(f"by {type(error).__name__}: {error}")
                    raise
                statuses |= {member.path: member.status for member in group.members}
                if stopped():
                    break
    return {str(path): status or Status.INTERRUPTED for path, status in statuses.items()}


def _train(group: "_Group", label: str, shown: bool | None, stopped: Callable[[], bool]) -> None:
    """Runs the members of a group to their end, or to where they are asked to stop."""
    said, has_bar = time.monotonic(), sys.stderr.isatty() if shown is None else shown
    with progress_bar(group.steps, shown) as show:
        while active := [member for member in group.members if member.status is None]:
            for member in active:
                if stopped() or member.step == group.steps or is_due(member.step, member.o.checkpoint_every):
                    member.checkpoint()
            if stopped():
                for member in active:
                    member.close(Status.INTERRUPTED, f"at step {member.step} of {group.steps}")
                return
            group.advance(active)
            slowest = min(active, key=lambda member: member.step)
            show(slowest.step, label + slowest.words())
            if time.monotonic() - said > _SECONDS_BETWEEN_WORDS and not has_bar:
                said = time.monotonic()
                group.say(f"{slowest.path} is at step {slowest.step} of {group.steps}: {slowest.words()}")


class _Group:
    """Runs that advance together: one, or in lanes beside each other all those of a sweep."""

    def __init__(self, shared: tuple[Problem, Optimizer], lanes: int, steps: int, say: Callable[[str], None]):
        self.steps, self.say, self.members = steps, say, list[Member]()
        (self._problem, self._optimizer), self._lanes = shared, lanes
        self._pace = Pace()

    def open(self, o: Options, path: Path, lane: int) -> None:
        """Opens a run as a member."""
        self.members.append(Member(self._problem, o, path, lane, self.say))

    def advance(self, active: list[Member]) -> None:
        """Takes the next steps of some members, and has them write what they saw."""
        counts = {member.lane: self._count(member) for member in active}
        with self._pace.timed(max(counts.values())):
            results = self._advanced(active, counts)
            for member, result in zip(active, results, strict=True):
                member.take(*result)

    def close(self, message: str) -> None:
        """Closes what is still open."""
        for member in self.members:
            if member.status is None:
                with suppress(OSError):  # a full disk; the others are to be closed too
                    member.close(Status.INTERRUPTED, message)

    def _advanced(self, active: list[Member], counts: dict[int, int]) -> list[tuple[State, Log]]:
        shared = self._problem.objective, self._optimizer
        # Where each step is recorded, the record has compiled all that it needs, unless DAL differentiates further.
        each = self._lanes == 1 and active[0].o.record_every == 1 and active[0].o.optimizer != "dal"
        at_once = 1 if each else _steps.AT_ONCE
        arguments = {member.lane: member.arguments(counts[member.lane], at_once) for member in active}
        if self._lanes == 1:
            return [_steps.advance(*shared, *arguments[0], jnp.asarray(counts[0], jnp.int32))]
        # All lanes are always there, those of other members at rest: so the numbers of one don't depend on the others.
        rest = arguments[active[0].lane]
        stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(arguments.get(i, rest) for i in range(self._lanes)))
        limits = jnp.asarray([counts.get(i, 0) for i in range(self._lanes)], jnp.int32)
        results = _steps.advance_together(*shared, *stacked, limits)
        return [jax.tree.map(lambda leaf, i=member.lane: leaf[i], results) for member in active]

    def _count(self, member: Member) -> int:
        """Returns how many steps to take in one call: up to the next at which something is recorded or saved."""
        o, step = member.o, member.step
        if step == o.steps:
            return 1
        often = o.record_every, o.evaluate_every, o.checkpoint_every, o.keep_every
        ends = [every - step % every for every in often if every]
        return self._pace.count(min(o.steps - step, *ends))


def _finished(path: Path, o: Options) -> Status | None:
    """Returns the status of a run to which nothing is left to do, else None; other options are refused."""
    if not (path / runs.CONFIG).exists():
        return None
    # An option that came after the run was made has the value that it had then: its default.
    stored, wanted = plain(Options().config()) | runs.read_config(path), plain(o.config())
    differing = [name for name in wanted if stored.get(name) != wanted[name]]
    changeable = {"checkpoint_every"} if _schedule.depends_on_steps(o.schedule) else {"checkpoint_every", "steps"}
    shorter = not isinstance(stored["steps"], int) or o.steps < stored["steps"]
    if others := [name for name in differing if name not in changeable or shorter]:
        name = others[0]
        advice = " A run can be made longer, not shorter." if name == "steps" and name in changeable else ""
        raise runs.RunError(
            f"{path} is a run with {name} {stored.get(name)!r}, and {wanted[name]!r} was asked for: "
            f"choose another folder, or remove it.{advice}"
        )
    runs.check_free(path)
    status = runs.read_status(path)["status"]
    finished = status == Status.DIVERGED or (status == Status.COMPLETED and "steps" not in differing)
    return status if finished else None


@contextmanager
def _stop_signal() -> Iterator[Callable[[], bool]]:
    """Gives a function that tells whether Ctrl-C or a termination was asked for; the second Ctrl-C ends at once."""
    signals: list[int] = []

    def note(number: int, frame: Any) -> None:
        if signals:
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
