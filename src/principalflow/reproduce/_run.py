"""Runs experiments, and keeps what came out."""

import dataclasses
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import jax

from principalflow import _checks
from principalflow.reproduce._catalogue import EXPERIMENTS
from principalflow.reproduce._experiment import PROFILES, Experiment, Profile
from principalflow.reproduce._folder import collect, drawable, finished, writable
from principalflow.reproduce._processes import attempt, results
from principalflow.reproduce._result import Result, load


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
        out: A folder to save into, and to take a finished result of the same settings and versions from; None for
            neither.
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
        writable(Path(out))
        saved, _ = finished(Path(out), experiment, profile, config)
        if saved and not again:
            return saved
    result = attempt(experiment, profile, config, None if out is None else Path(out))
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

    An experiment that fails is kept with its error, and the others go on. Finished ones of the same settings,
    versions and schema are taken as they are. `out/claims.json` then lists the claims of all results in the folder.

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
    out = writable(Path(out))
    if redraw:
        there = [item for item, _ in chosen if ids or load(out, item, profile, outdated=True)[0]]
        for saved in [drawable(out, experiment, profile) for experiment in there]:
            say(f"{saved.experiment.id}: drawn again; {_told(_redrawn(saved, out))}.")
        return collect(out, say, outdated=True)
    seedless = [experiment.id for experiment, config in chosen if not hasattr(config, "seed")]
    if seed is not None and seedless:
        say(f"The seed makes no difference to {', '.join(seedless)}.")
    waiting = []
    for experiment, config in chosen:
        saved, why = finished(out, experiment, profile, config)
        if saved and not again:
            say(f"{experiment.id}: there already; {_told(saved)}.")
            continue
        if why:
            say(f"{experiment.id}: {why}, so it runs again.")
        waiting.append((experiment, config))
    if waiting:
        say(f"Running {', '.join(experiment.id for experiment, _ in waiting)}.")
    for number_done, result in enumerate(results(waiting, profile, out, jobs, prepare, say), 1):
        line = f"{result.experiment.id}: {result.seconds:.1f} s{result.besides}; {_told(result)}"
        say(f"[{number_done}/{len(waiting)}] {line}.")
    return collect(out, say)


def _settings(name: str, profile: Profile, seed: int | None) -> tuple[Experiment, Any]:
    _checks.one_of("id", name, tuple(EXPERIMENTS))
    _checks.one_of("profile", profile, PROFILES)
    experiment = EXPERIMENTS[name]
    config = experiment.profiles[profile]
    if seed is not None:
        seed = _checks.whole("seed", seed, least=0)
        config = dataclasses.replace(config, seed=seed) if hasattr(config, "seed") else config
    return experiment, config


def _redrawn(saved: Result, out: Path) -> Result:
    with jax.enable_x64(True):
        claims = saved.experiment.claims(saved.config, saved.tables)
    return dataclasses.replace(saved, claims=claims).save(out)


def _told(result: Result) -> str:
    if result.error:
        return f"FAILED: {result.error.strip().splitlines()[-1]}"
    return f"{sum(claim.held for claim in result.claims)} of {len(result.claims)} claims held"
