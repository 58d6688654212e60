"""Runs experiments, takes those that are finished already, and reports progress."""

import dataclasses
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import jax

from principalflow import _checks
from principalflow._lab.experiment import PROFILES, Experiment, Profile
from principalflow._lab.folder import drawable, finished, writable
from principalflow._lab.processes import attempt, results
from principalflow._lab.result import Result, load


def run(experiment: Experiment, profile: Profile, out: Path | None, seed: int | None, again: bool) -> Result:
    """Returns what came out of an experiment, or is saved of it; failures are raised."""
    config = _settings(experiment, profile, seed)
    if out is not None:
        writable(out)
        saved, _ = finished(out, experiment, profile, config)
        if saved and not again:
            return saved
    result = attempt(experiment, config, profile, out)
    return result if out is None else result.save(out)


def run_all(
    experiments: Iterable[Experiment],
    profile: Profile,
    out: Path,
    seed: int | None,
    again: bool,
    redraw: bool,
    were_named: bool,
    jobs: int,
    prepare: Callable[[], None] | None,
    say: Callable[[str], None],
) -> None:
    """Runs experiments into a folder, or draws them again; a failure is saved, and the others go on."""
    chosen = [(experiment, _settings(experiment, profile, seed)) for experiment in experiments]
    jobs = _checks.whole("jobs", jobs, least=1)
    writable(out)
    if redraw:
        there = [item for item, _ in chosen if were_named or load(out, item, profile, outdated=True)[0]]
        if not there:
            raise ValueError(f"redraw needs finished results of the profile {profile} in {out}, and there are none.")
        for saved in [drawable(out, experiment, profile) for experiment in there]:
            say(f"{saved.experiment.id}: drawn again; {_outcome(_redrawn(saved, out))}.")
        return
    seedless = [experiment.id for experiment, config in chosen if not hasattr(config, "seed")]
    if seed is not None and seedless:
        say(f"The seed makes no difference to {', '.join(seedless)}.")
    waiting = []
    for experiment, config in chosen:
        saved, why = finished(out, experiment, profile, config)
        if saved and not again:
            say(f"{experiment.id}: there already; {_outcome(saved)}.")
            continue
        if why:
            say(f"{experiment.id}: {why}, so it runs again.")
        waiting.append((experiment, config))
    if waiting:
        say(f"Running {', '.join(experiment.id for experiment, _ in waiting)}.")
    for number_done, result in enumerate(results(waiting, profile, out, jobs, prepare, say), 1):
        line = f"{result.experiment.id}: {result.seconds:.1f} s{result.besides}; {_outcome(result)}"
        say(f"[{number_done}/{len(waiting)}] {line}.")


def _settings(experiment: Experiment, profile: Profile, seed: int | None) -> Any:
    _checks.one_of("profile", profile, PROFILES)
    config = experiment.profiles[profile]
    if seed is None or not hasattr(config, "seed"):
        return config
    return dataclasses.replace(config, seed=_checks.whole("seed", seed, least=0))


def _redrawn(saved: Result, out: Path) -> Result:
    with jax.enable_x64(True):
        claims = saved.experiment.claims(saved.config, saved.tables)
    return dataclasses.replace(saved, claims=claims).save(out)


def _outcome(result: Result) -> str:
    if result.error:
        return f"FAILED: {result.error.strip().splitlines()[-1]}"
    return f"{sum(claim.held for claim in result.claims)} of {len(result.claims)} claims held"
