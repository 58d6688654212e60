"""A folder of results: what it holds, what of it can be taken, and what is outdated."""

import itertools
import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from principalflow._files import write_json
from principalflow._lab import kept
from principalflow._lab.experiment import PROFILES, Experiment, Profile
from principalflow._lab.result import Result, is_outdated, load, number

CLAIMS = "claims.json"


def collect(experiments: Iterable[Experiment], out: Path, say: Callable[[str], None], outdated: bool) -> list[Result]:
    """Returns the results in a folder, and lists their claims in `claims.json` there."""
    if not out.is_dir():
        raise ValueError(f"out must be a folder of results, got {str(out)!r}.")
    results, left_out = [], {}
    for profile, experiment in itertools.product(PROFILES, experiments):
        result, why = load(out, experiment, profile, outdated)
        if result:
            results.append(result)
        elif why:
            left_out.setdefault(why, []).append(f"{experiment.id} ({profile})")
    for why, names in left_out.items():
        say(f"Left out of the report, since {why}: {', '.join(names)}.")
    write_json(out / CLAIMS, [row for result in results for row in _rows(result)])
    return results


def clean(experiments: Iterable[Experiment], out: Path, say: Callable[[str], None]) -> list[Path]:
    """Removes what no run takes any more, and returns it."""
    if not out.is_dir():
        raise ValueError(f"out must be a folder of results, got {str(out)!r}.")
    removed = [
        out / profile / experiment.id
        for profile, experiment in itertools.product(PROFILES, experiments)
        if is_outdated(out, experiment, profile)
    ]
    for path in removed:
        shutil.rmtree(path)
    removed += [path for profile in PROFILES for path in kept.clean(trainings_of(out, profile))]
    for path in removed:
        say(f"Removed {path}.")
    if not removed:
        say("Nothing is outdated.")
    return removed


def trainings_of(out: Path, profile: Profile) -> Path:
    """Returns the folder for the trainings of a profile."""
    return out / profile / "trainings"


def finished(out: Path, experiment: Experiment, profile: Profile, config: Any) -> tuple[Result | None, str]:
    """Returns what is saved, if it can be taken for a new run; or None, and why not, empty where nothing is saved."""
    saved, why = load(out, experiment, profile)
    if saved and saved.config != config:
        return None, "what is saved has other settings"
    if saved and saved.error:
        return None, "it failed before"
    return saved, why


def drawable(out: Path, experiment: Experiment, profile: Profile) -> Result:
    saved, why = load(out, experiment, profile, outdated=True)
    if not saved or saved.error:
        raise ValueError(f"redraw needs a finished {experiment.id} in {out}: {why or 'there is none'}.")
    return saved


def writable(out: Path) -> Path:
    """Returns the folder, made if it isn't there, or raises an OSError."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        probe = out / ".writable"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise OSError(f"out must be a folder that can be written to, got {str(out)!r}: {error.strerror}.") from error
    return out


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
