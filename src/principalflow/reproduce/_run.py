"""Runs the paper's experiments, and keeps what came out."""

from collections.abc import Callable, Iterable
from pathlib import Path

from principalflow import _checks, _lab
from principalflow._lab import Experiment, Profile, Result
from principalflow.reproduce._catalogue import EXPERIMENTS


def run(
    id: str,  # noqa: A002
    profile: Profile = "quick",
    *,
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
    return _lab.run(_known(id), profile, None if out is None else _checks.path("out", out), seed, again)


def run_all(
    ids: Iterable[str],
    profile: Profile,
    out: str | Path,
    *,
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
        jobs: How many experiments to run at the same time, each in a process of its own.
        prepare: Called first in each of these processes; picklable.
        say: Called with a sentence on each step of progress.

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
    out = _checks.path("out", out)
    chosen = [_known(name) for name in dict.fromkeys([ids] if isinstance(ids, str) else ids)]
    _lab.run_all(chosen or EXPERIMENTS.values(), profile, out, seed, again, redraw, bool(chosen), jobs, prepare, say)
    return collect(out, say=say, outdated=redraw)


def collect(out: str | Path, *, say: Callable[[str], None] = print, outdated: bool = False) -> list[Result]:
    """Returns the results in a folder, and lists their claims in `claims.json` there.

    Args:
        out: The folder.
        say: Called with a sentence on what is left out, and why.
        outdated: Whether to take also results that other versions, or another schema, made.

    Returns:
        The results, in the order of the catalogue, profile after profile.
    """
    return _lab.collect(EXPERIMENTS.values(), _checks.path("out", out), say, outdated)


def clean(out: str | Path, *, say: Callable[[str], None] = print) -> list[Path]:
    """Removes what no run takes any more: results and trainings that other versions, or another schema, made.

    Results of other settings stay, and so do trainings that are in use, and what can't be read: it may be yours.

    Args:
        out: A folder of results.
        say: Called with a sentence on what is removed.

    Returns:
        What was removed.

    Raises:
        ValueError: If `out` is no folder.
        OSError: If something can't be removed.

    Example:
        >>> import tempfile
        >>> import principalflow as pf
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     result = pf.reproduce.run("coefficients", out=folder)
        ...     pf.reproduce.clean(folder)
        Nothing is outdated.
        []
    """
    return _lab.clean(EXPERIMENTS.values(), _checks.path("out", out), say)


def _known(name: str) -> Experiment:
    if name in list(EXPERIMENTS):
        return EXPERIMENTS[name]
    hint = f"{_checks.did_you_mean(str(name), EXPERIMENTS)} `principalflow reproduce --list` shows all."
    raise ValueError(f"id must be an experiment's, got {_checks.shown(name)}.{hint}")
