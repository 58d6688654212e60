"""Runs experiments, here or in several processes, each when its trainings are there."""

import contextlib
import dataclasses
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context, parent_process
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import jax

from principalflow._lab.experiment import Experiment, Makeable, Profile
from principalflow._lab.folder import trainings_of
from principalflow._lab.kept import trainings_in
from principalflow._lab.result import Result, load

_WORTH_TELLING = 1.0  # seconds: a training that is there already takes less


def results(
    waiting: list[tuple[Experiment, Any]],
    profile: Profile,
    out: Path,
    jobs: int,
    prepare: Callable[[], None] | None,
    say: Callable[[str], None],
) -> Iterator[Result]:
    """Yields results as they are finished and saved."""
    trainings = _trainings(waiting)
    if jobs > 1 and len(waiting) == 1 and len(trainings) > 1:  # side by side; then the experiment has all cores
        yield from _in_processes([], trainings, profile, out, jobs, prepare, say)
    if jobs > 1 and len(waiting) > 1:
        yield from _in_processes(waiting, trainings, profile, out, min(jobs, len(waiting)), prepare, say)
        return
    for experiment, config in waiting:
        yield _run_and_save(experiment, config, profile, out)


def _in_processes(
    waiting: list[tuple[Experiment, Any]],
    trainings: list[Makeable],
    profile: Profile,
    out: Path,
    jobs: int,
    prepare: Callable[[], None] | None,
    say: Callable[[str], None],
) -> Iterator[Result]:
    """Makes trainings and runs experiments, each when its trainings are there."""
    to_train, to_run = trainings, waiting[::-1]  # the last ones take longest: begun first, they leave nobody idle
    in_training: dict[Future, Makeable] = {}
    running: dict[Future, tuple[Experiment, Any]] = {}
    killed: list[tuple[Experiment, Any]] = []
    with _threads_each(jobs), ProcessPoolExecutor(jobs, get_context("spawn"), _begin, (prepare,)) as pool:
        try:
            while to_train or to_run or in_training or running:
                not_there = {*to_train, *in_training.values()}
                ready = [item for item in to_run if not not_there & set(_trainings([item]))]
                # No more than run at once: what waits in the pool would still begin after an interruption.
                free = jobs - len(in_training) - len(running)
                begun, to_train = to_train[:free], to_train[free:]
                in_training |= {_submitted(pool, _train, training, profile, out): training for training in begun}
                for item in ready[: free - len(begun)]:
                    to_run.remove(item)
                    running[_submitted(pool, _run_elsewhere, *item, profile, out)] = item
                for task in wait([*in_training, *running], return_when=FIRST_COMPLETED).done:
                    error = task.exception()
                    if task in in_training:
                        training = in_training.pop(task)
                        if not error and task.result() >= _WORTH_TELLING:
                            say(f"{training.label}: trained in {task.result():.0f} s.")
                        continue
                    item = running.pop(task)
                    if isinstance(error, BrokenProcessPool) and jobs > 1:
                        killed.append(item)
                    else:
                        yield _saved(*item, profile, out, error)
        except KeyboardInterrupt:
            say("Stopping at the next checkpoint.")
            raise
    for item in killed:  # one process was, and all that waited with it; now each has its own
        yield from _in_processes([item], [], profile, out, 1, prepare, say)


def _saved(experiment: Experiment, config: Any, profile: Profile, out: Path, error: BaseException | None) -> Result:
    """Returns what another process saved; a failure if it came to an end, or what it saved is gone."""
    result, why = (None, "") if error else load(out, experiment, profile)
    if result:
        return result
    story = "".join(traceback.format_exception(error)) if error else why
    return Result(experiment, profile, config, {}, (), 0.0, story or "nothing was saved").save(out)


def _submitted(pool: ProcessPoolExecutor, function: Callable, *args: Any) -> Future:
    try:
        return pool.submit(function, *args)
    except BrokenProcessPool as error:
        failed = Future()
        failed.set_exception(error)
        return failed


def _trainings(waiting: list[tuple[Experiment, Any]]) -> list[Makeable]:
    """Returns the trainings that these experiments look at, each once."""
    return list(dict.fromkeys(training for experiment, config in waiting for training in experiment.trainings(config)))


@contextlib.contextmanager
def _threads_each(jobs: int) -> Iterator[None]:
    """Has processes that start meanwhile share the cores: XLA and OpenBLAS would each take all of them."""
    names = [name for name in ("NPROC", "OPENBLAS_NUM_THREADS") if name not in os.environ]
    os.environ |= dict.fromkeys(names, str(max(1, (os.cpu_count() or 1) // jobs)))
    try:
        yield
    finally:
        for name in names:
            os.environ.pop(name, None)


def _begin(prepare: Callable[[], None] | None) -> None:
    """Prepares another process, and has it end with this one, also where this one is killed."""

    def end_with_parent() -> None:
        if parent := parent_process():
            parent.join()
            os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()
    if prepare:
        prepare()


def _train(training: Makeable, profile: Profile, out: Path) -> float:
    """Runs in another process and returns the seconds it took.

    What fails here fails again in the experiments that need it, and they report it.
    """
    start = time.perf_counter()
    with jax.enable_x64(True), trainings_in(trainings_of(out, profile)):
        training.make()
    return time.perf_counter() - start


def _run_elsewhere(experiment: Experiment, config: Any, profile: Profile, out: Path) -> None:
    """Runs in another process; the result comes back by its folder."""
    _run_and_save(experiment, config, profile, out)


def _run_and_save(experiment: Experiment, config: Any, profile: Profile, out: Path) -> Result:
    result = attempt(experiment, config, profile, out, keep_going=True)
    try:
        return result.save(out)
    except Exception:  # the figure can't be drawn
        return dataclasses.replace(result, error=traceback.format_exc()).save(out)


@contextlib.contextmanager
def _interruptions_end_it() -> Iterator[None]:
    """Raises KeyboardInterrupt at the end where Ctrl-C was pressed: `integrate` and others return what they have."""
    if threading.current_thread() is not threading.main_thread():  # only that one may handle signals
        yield
        return
    seen = []

    def note(number: int, frame: Any) -> None:
        seen.append(number)
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
    if seen:
        raise KeyboardInterrupt


def attempt(
    experiment: Experiment, config: Any, profile: Profile, out: Path | None, keep_going: bool = False
) -> Result:
    """Returns what came out of an experiment; a failure too, to `keep_going`, else it is raised."""
    start, tables, claims, error = time.perf_counter(), {}, (), ""
    try:
        with jax.enable_x64(True), TemporaryDirectory() as nowhere:
            folder = trainings_of(out, profile) if out else Path(nowhere)
            with trainings_in(folder), _interruptions_end_it():
                tables = experiment.run(config)
            claims = experiment.claims(config, tables)
    except Exception:
        if not keep_going:
            raise
        error = traceback.format_exc()
    return Result(experiment, profile, config, tables, claims, time.perf_counter() - start, error)
