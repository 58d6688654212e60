"""Runs experiments, and keeps what came out."""

import contextlib
import dataclasses
import os
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context, parent_process
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import jax

from principalflow import _checks
from principalflow.reproduce._catalogue import EXPERIMENTS
from principalflow.reproduce._experiment import PROFILES, Experiment, Makeable, Profile
from principalflow.reproduce._kept import clear, trainings_in
from principalflow.reproduce._result import Result, load, number
from principalflow.runs._files import write_json

CLAIMS = "claims.json"
_TRAININGS = "trainings"  # the folder beside the experiments'
_WORTH_TELLING = 1.0  # seconds: a training that is there already takes less


def run(
    id: str,  # noqa: A002
    profile: Profile = "quick",
    out: str | Path | None = None,
    seed: int | None = None,
    again: bool = False,
) -> Result:
    """Runs one experiment of the paper and returns its data, its claims and its figure.

    It computes in double precision whatever JAX's switch says.

    Args:
        id: Which experiment; `principalflow.reproduce.EXPERIMENTS` has them all.
        profile: `"quick"` (embedded data, small networks), `"cpu"` (real data, narrower networks) or `"paper"`.
        out: A folder to save into, and to take a finished result of the same settings from; None for neither.
        seed: Replaces the seed of experiments that have one.
        again: Run even if `out` has a finished result.

    Returns:
        A `Result`: `tables`, `claims`, `draw()`.

    Raises:
        ValueError: For an unknown id or profile, or a seed that isn't a whole number of at least 0.
        OSError: If `out` can't be written to.

    Example:
        >>> import principalflow as pf
        >>> result = pf.reproduce.run("coefficients")
        >>> [claim.held for claim in result.claims]
        [True, True, True, True, True]
    """
    experiment, config = _settings(id, profile, seed)
    if out is not None:
        _writable(Path(out))
        saved, _ = _finished(Path(out), experiment, profile, config)
        if saved and not again:
            return saved
    result = _run(experiment, profile, config, None if out is None else Path(out))
    return result if out is None else result.save(Path(out))


def run_all(
    ids: Iterable[str],
    profile: Profile,
    out: str | Path,
    seed: int | None = None,
    again: bool = False,
    redraw: bool = False,
    jobs: int = 1,
    prepare: Callable[[], None] | None = None,
    say: Callable[[str], None] = print,
) -> list[Result]:
    """Runs experiments into a folder, and returns all that the folder then holds.

    An experiment that fails is kept with its error, and the others go on. Finished ones of the same settings and
    code are taken as they are. `out/claims.json` then lists the claims of all results in the folder.

    Args:
        ids: Which experiments; all of them if empty.
        profile: As for `run`.
        out: The folder.
        seed: As for `run`.
        again: As for `run`.
        redraw: Draw, and check the claims, from the saved tables, without running anything; without `ids`, all that
            is there.
        jobs: How many experiments to run at the same time, in so many processes.
        prepare: Called first in each of these processes; picklable.
        say: Is told how it goes, a sentence at a time.

    Returns:
        The results, in the order of the catalogue.

    Raises:
        ValueError: As for `run`; with `redraw`, if there is nothing to draw from.
        OSError: If `out` can't be written to.

    Example:
        >>> import tempfile
        >>> import principalflow as pf
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     results = pf.reproduce.run_all(["coefficients"], "quick", folder, say=lambda sentence: None)
        >>> [result.experiment.id for result in results]
        ['coefficients']
    """
    ids = dict.fromkeys(ids)
    chosen = [_settings(name, profile, seed) for name in ids or EXPERIMENTS]
    jobs = _checks.whole("jobs", jobs, least=1)
    out = _writable(Path(out))
    if redraw:
        there = [item for item, _ in chosen if ids or load(out, item, profile, by_any_code=True)[0]]
        for saved in [_drawable(out, experiment, profile) for experiment in there]:
            say(f"{saved.experiment.id}: drawn again; {_told(_redrawn(saved, out))}.")
        return collect(out, say, by_any_code=True)
    clear(out / profile / _TRAININGS)
    seedless = [experiment.id for experiment, config in chosen if not hasattr(config, "seed")]
    if seed is not None and seedless:
        say(f"The seed makes no difference to {', '.join(seedless)}.")
    waiting = []
    for experiment, config in chosen:
        saved, why = _finished(out, experiment, profile, config)
        if saved and not again:
            say(f"{experiment.id}: there already; {_told(saved)}.")
            continue
        if why:
            say(f"{experiment.id}: {why}, so it runs again.")
        waiting.append((experiment, config))
    if waiting:
        say(f"Running {', '.join(experiment.id for experiment, _ in waiting)}.")
    for number_done, result in enumerate(_results(waiting, profile, out, jobs, prepare, say), 1):
        line = f"{result.experiment.id}: {result.seconds:.1f} s{result.besides}; {_told(result)}"
        say(f"[{number_done}/{len(waiting)}] {line}.")
    return collect(out, say)


def collect(out: str | Path, say: Callable[[str], None] = print, by_any_code: bool = False) -> list[Result]:
    """Returns the results in a folder, and lists their claims in `claims.json` there.

    Args:
        out: The folder.
        say: Is told what is left out, and why.
        by_any_code: Whether to take results that another version or state of the code made.

    Returns:
        The results, in the order of the catalogue, profile after profile.
    """
    out, results, left_out = Path(out), [], {}
    for profile in PROFILES:
        for experiment in EXPERIMENTS.values():
            result, why = load(out, experiment, profile, by_any_code)
            if result:
                results.append(result)
            elif why:
                left_out.setdefault(why, []).append(f"{experiment.id} ({profile})")
    for why, names in left_out.items():
        say(f"Left out of the report, since {why}: {', '.join(names)}.")
    write_json(out / CLAIMS, [row for result in results for row in _rows(result)])
    return results


def _settings(name: str, profile: Profile, seed: int | None) -> tuple[Experiment, Any]:
    _checks.one_of("id", name, tuple(EXPERIMENTS))
    _checks.one_of("profile", profile, PROFILES)
    experiment = EXPERIMENTS[name]
    config = experiment.profiles[profile]
    if seed is not None:
        seed = _checks.whole("seed", seed, least=0)
        config = dataclasses.replace(config, seed=seed) if hasattr(config, "seed") else config
    return experiment, config


def _finished(out: Path, experiment: Experiment, profile: Profile, config: Any) -> tuple[Result | None, str]:
    """Returns what is saved, if it can be taken for a new run; or None, and why not, empty where nothing is saved."""
    saved, why = load(out, experiment, profile)
    if saved and saved.config != config:
        return None, "what is saved has other settings"
    if saved and saved.error:
        return None, "it failed before"
    return saved, why


def _results(
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
        yield _run_and_save(experiment, profile, config, out)


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
                    running[_submitted(pool, _run_elsewhere, item[0].id, profile, item[1], out)] = item
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

    What fails here fails again in the experiments that need it, and is told by them.
    """
    start = time.perf_counter()
    with jax.enable_x64(True), trainings_in(out / profile / _TRAININGS):
        training.make()
    return time.perf_counter() - start


def _run_elsewhere(name: str, profile: Profile, config: Any, out: Path) -> None:
    """Runs in another process; the result comes back by its folder."""
    _run_and_save(EXPERIMENTS[name], profile, config, out)


def _run_and_save(experiment: Experiment, profile: Profile, config: Any, out: Path) -> Result:
    result = _run(experiment, profile, config, out, keep_going=True)
    try:
        return result.save(out)
    except Exception:  # the figure can't be drawn
        return dataclasses.replace(result, error=traceback.format_exc()).save(out)


def _run(experiment: Experiment, profile: Profile, config: Any, out: Path | None, keep_going: bool = False) -> Result:
    start, tables, claims, error = time.perf_counter(), {}, (), ""
    try:
        with jax.enable_x64(True), TemporaryDirectory() as nowhere:
            folder = out / profile / _TRAININGS if out else Path(nowhere)
            with trainings_in(folder):
                tables = experiment.run(config)
            claims = experiment.claims(config, tables)
    except Exception:
        if not keep_going:
            raise
        error = traceback.format_exc()
    return Result(experiment, profile, config, tables, claims, time.perf_counter() - start, error)


def _drawable(out: Path, experiment: Experiment, profile: Profile) -> Result:
    saved, why = load(out, experiment, profile, by_any_code=True)
    if not saved or saved.error:
        raise ValueError(f"redraw needs a finished {experiment.id} in {out}: {why or 'there is none'}.")
    return saved


def _redrawn(saved: Result, out: Path) -> Result:
    with jax.enable_x64(True):
        claims = saved.experiment.claims(saved.config, saved.tables)
    return dataclasses.replace(saved, claims=claims).save(out)


def _writable(out: Path) -> Path:
    try:
        out.mkdir(parents=True, exist_ok=True)
        probe = out / ".writable"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise OSError(f"out must be a folder that can be written to, got {str(out)!r}: {error.strerror}.") from error
    return out


def _told(result: Result) -> str:
    if result.error:
        return f"FAILED: {result.error.strip().splitlines()[-1]}"
    return f"{sum(claim.held for claim in result.claims)} of {len(result.claims)} claims held"


def _rows(result: Result) -> Sequence[dict[str, Any]]:
    return [
        {
            "experiment": result.experiment.id,
            "claim": claim.sentence,
            "measured": number(claim.measured),
            "bound": claim.bound,
            "held": claim.held,
            "note": claim.note,
            "profile": result.profile,
            "seconds": result.seconds,
        }
        for claim in result.claims
    ]
