"""Sweeps over rates, powers and seeds that several experiments look at, and what is measured of their runs."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas
from numpy.typing import NDArray

from principalflow import runs, training
from principalflow._lab import Table, lock, place
from principalflow.objective import Objective
from principalflow.status import Status
from principalflow.training import Options

_SECONDS_BETWEEN_WORDS = 30
FIXED, WITH_MOMENTUM = "fixed rates", "fixed rates with momentum"  # families of contenders
_RUN = ["setting", "full_batch", "contender", "family", "seed"]
_NAMES = {"gd": "descent", "sgd": "descent", "dal": "DAL", "prodigy": "Prodigy", "dog": "DoG"}
_NAMES |= {"adam": "Adam", "adamw": "AdamW", "nadam": "NAdam", "rmsprop": "RMSProp"}


@dataclass(frozen=True)
class Sweep:
    """Training runs that differ in the rate, DAL's power or the seed alone, so that they share what is compiled."""

    options: Options

    @property
    def label(self) -> str:
        """Its name in progress messages."""
        o, (first, *others) = self.options, self.options.runs().values()
        return f"{setting(o)}: {f'{1 + len(others)} runs of {_optimizer(o)}' if others else contender(first)}"

    def __str__(self) -> str:
        """Returns its name, and those of its options that aren't the usual ones."""
        ours, usual = self.options.config(), Options().config()
        others = ", ".join(f"{name} {value}" for name, value in ours.items() if value != usual[name])
        return f"{self.label} ({others})" if others else self.label

    def make(self) -> None:
        """Makes it, where it isn't there already."""
        with directory(self):
            pass

    def seeded(self, seed: int) -> "Sweep":
        """Returns it with other seeds for another number, and with its own, which follow each other, for 0."""
        seeds = self.options.seed if isinstance(self.options.seed, tuple) else (self.options.seed,)
        return replace(self, options=replace(self.options, seed=tuple(seed * len(seeds) + own for own in seeds)))


@contextlib.contextmanager
def directory(sweep: Sweep) -> Iterator[Path]:
    """Gives the folder with the finished runs of a sweep; those that aren't there are made, or continued."""
    with contextlib.ExitStack() as stack:
        folder = place(sweep) or Path(stack.enter_context(TemporaryDirectory())) / "sweep"
        stack.enter_context(lock(folder))
        say = _throttled(sweep.label, folder)
        statuses = training.run(sweep.options, folder, progress=False, together=False, say=say)
        if Status.INTERRUPTED in statuses.values():
            raise KeyboardInterrupt
        yield folder


def swept(sweep: Sweep) -> Table:
    """Returns what `training.steps` does for each run of a sweep, with words for it.

    These are `setting` (network, data and batch), `contender` (such as "h = 0.1" or "DAL-0.5"), its `family`, and
    whether it is on the `full_batch`.
    """
    with directory(sweep) as folder:
        tables = {o: training.steps(folder / name) for name, o in sweep.options.runs().items()}
    return pandas.concat([table.assign(**_words(o)) for o, table in tables.items()], ignore_index=True)


def ends(sweep: Sweep) -> dict[tuple[str, int], NDArray]:
    """Returns the parameters at the end of a sweep's runs by contender and seed; without those that diverged."""
    found = {}
    with directory(sweep) as folder:
        for name, options in sweep.options.runs().items():
            if runs.read_status(folder / name)["status"] == Status.COMPLETED:
                _, found[contender(options), options.seed] = training.parameters(folder / name)
    return found


def objective_of(sweep: Sweep) -> Objective:
    """Returns the loss of a sweep; its `theta` is the start of the first run."""
    return training.objective(next(iter(sweep.options.runs().values())))


def by_run(table: Table) -> Table:
    """Returns a row of measures for each run, as `training.measures` has them."""
    return training.measures(table, by=_RUN)


def over_seeds(by_run: Table) -> Table:
    """Returns a row for each setting and contender, over its seeds.

    The columns are means, but for `..._spread` (standard deviations), the largest `largest_rise`, and in how many seeds
    it `diverged`. Where it did in one, accuracies, drift and sharpness are NaN: no mean of those that happened to
    survive.
    """
    groups = by_run.groupby(_RUN[:-1], sort=False)
    means = groups[["rate", "power", "last_loss", "rises", "test_accuracy", "train_accuracy", "drift", "sharpness"]]
    spreads = groups[["last_loss", "test_accuracy", "sharpness", "drift"]].std(ddof=1).add_suffix("_spread")
    lost = groups["diverged"].sum()
    table = means.mean().join(spreads).assign(largest_rise=groups["largest_rise"].max(), diverged=lost)
    table.loc[lost > 0, ["test_accuracy", "train_accuracy", "drift", "sharpness"]] = np.nan
    return table.reset_index()


def setting(o: Options) -> str:
    """Returns what is trained, and on how many samples at a step, in words."""
    loss = "" if o.loss == "cross-entropy" else f"{o.loss}, "
    return f"{o.model} on {o.data}, {loss}{batch(o)}"


def batch(o: Options) -> str:
    """Returns how many samples a step takes, in words."""
    return "full batch" if o.batch_size is None else f"batches of {o.batch_size}"


def contender(o: Options) -> str:
    """Returns the name of a single run's optimiser with its rate or power."""
    if o.learning_rate is None:  # it chooses its own
        return _optimizer(o)
    return f"{_optimizer(o)}, h = {o.learning_rate:g}".removeprefix("descent, ")


def family(o: Options) -> str:
    """Returns what a run is compared as: descent at fixed rates, the same with momentum, or its optimiser's name."""
    if o.optimizer in ("gd", "sgd"):
        return WITH_MOMENTUM if o.momentum else FIXED
    return o.optimizer


def _words(o: Options) -> dict[str, Any]:
    names = {"setting": setting(o), "contender": contender(o), "family": family(o)}
    return names | {"full_batch": o.batch_size is None}


def _optimizer(o: Options) -> str:
    words = [_NAMES[o.optimizer]]
    if isinstance(o.power, float) and o.power != 1:
        words = [f"{words[0]}-{o.power:g}"]
    for name in ("momentum", "beta1", "beta2", "eps", "weight_decay"):
        if getattr(o, name) != getattr(Options, name):
            words.append(f"{name.replace('_', ' ')} {getattr(o, name):g}")
    if o.factor != Options.factor:
        words.append(f"factor {o.factor:g}")
    if o.max_learning_rate != Options.max_learning_rate:
        words.append(f"cap {o.max_learning_rate:g}")
    if o.per_parameter:
        words.append("per parameter")
    if o.curvature != Options.curvature:
        words.append("finite difference")
    return ", ".join(words)


def _throttled(label: str, folder: Path) -> Callable[[str], None]:
    """Returns what says on the error stream, now and then, how far a sweep is."""
    said = time.monotonic()

    def say(sentence: str) -> None:
        nonlocal said
        if time.monotonic() - said > _SECONDS_BETWEEN_WORDS:
            said = time.monotonic()
            print(f"{label}: {sentence.removeprefix(str(folder)).lstrip('/ ')}", file=sys.stderr)

    return say
