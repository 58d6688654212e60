"""Sweeps over rates, powers and seeds that several experiments look at, and what is measured of their runs."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import numpy as np
import pandas
from numpy.typing import NDArray

from principalflow import runs, training
from principalflow.objective import Objective
from principalflow.reproduce._experiment import Table
from principalflow.reproduce._kept import lock, place
from principalflow.runs._directory import CONFIG, read_status
from principalflow.training import Options
from principalflow.training._restore import parameters

_SECONDS_BETWEEN_WORDS = 30
FULL_BATCH = "full batch"
_RUN = ["setting", "contender", "seed"]


@dataclass(frozen=True)
class Sweep:
    """Training runs that differ in the rate, DAL's power or the seed alone, so that they share what is compiled."""

    options: Options

    @property
    def label(self) -> str:
        """Its name when it is told of."""
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
        if "interrupted" in statuses.values():
            raise KeyboardInterrupt
        yield folder


def swept(sweep: Sweep) -> Table:
    """Returns a row for each step of each run of a sweep.

    The columns: `setting` (network, data and batch), `contender` (such as "h = 0.1" or "DAL-0.5"), `rate`, `power`,
    `seed`, `diverged`; `step`, `learning_rate`, `update_norm` (without momentum), `loss` (of all samples: at each step
    on full batches, else where it was recorded), `sharpness` (λ₀), `measured_curvature` (‖Hĝ‖ of all samples),
    `test_accuracy` and `train_accuracy`; NaN where they weren't recorded. `curvature` (‖Hĝ‖) and `drift`
    (h²/2 ‖Hĝ‖ ‖g‖) are of each step: DAL's rate tells ‖Hĝ‖ of its batch; where its cap hides it, and at fixed rates, it
    is that of all samples, interpolated between records. ‖g‖ is that of the batch.
    """
    with directory(sweep) as folder:
        return pandas.concat([_rows(folder / name) for name in sweep.options.runs()], ignore_index=True)


def ends(sweep: Sweep) -> dict[tuple[str, int], NDArray]:
    """Returns the parameters at the end of a sweep's runs by contender and seed; without those that diverged."""
    found = {}
    with directory(sweep) as folder:
        for name, options in sweep.options.runs().items():
            if read_status(folder / name)["status"] == "done":
                _, found[contender(options), options.seed] = parameters(folder / name)
    return found


def objective_of(sweep: Sweep) -> Objective:
    """Returns the loss of a sweep; its `theta` is the start of the first run."""
    return training.objective(next(iter(sweep.options.runs().values())))


def by_run(table: Table) -> Table:
    """Returns a row of measures for each run.

    The columns besides `setting`, `contender`, `rate`, `power` and `seed`: `diverged` (a loss that isn't finite, or the
    last one above the first), `last_loss` (infinite if diverged), `rises` (how many of the recorded losses are above
    the one before), `largest_rise` (relative to the loss before; infinite for a loss that isn't finite), the last
    `test_accuracy` and `train_accuracy` (NaN if diverged), the mean `drift` of its steps, and the last `sharpness`.
    """
    return pandas.DataFrame([_measures(rows) for _, rows in table.groupby(_RUN, sort=False)])


def over_seeds(by_run: Table) -> Table:
    """Returns a row for each setting and contender, over its seeds.

    The columns are means, but for `..._spread` (standard deviations), the largest `largest_rise`, and in how many seeds
    it `diverged`. Where it did in one, accuracies, drift and sharpness are NaN: no mean of those that happened to
    survive.
    """
    groups = by_run.groupby(_RUN[:2], sort=False)
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
    return FULL_BATCH if o.batch_size is None else f"batches of {o.batch_size}"


def contender(o: Options) -> str:
    """Returns the name of a single run's optimiser with its rate or power."""
    if o.learning_rate is None:  # it chooses its own
        return _optimizer(o)
    return f"{_optimizer(o)}, h = {o.learning_rate:g}".removeprefix("descent, ")


def _optimizer(o: Options) -> str:
    name = {"gd": "descent", "sgd": "descent", "dal": "DAL", "adam": "Adam", "prodigy": "Prodigy", "dog": "DoG"}
    words = [name[o.optimizer]]
    if isinstance(o.power, float) and o.power != 1:
        words = [f"{words[0]}-{o.power:g}"]
    if o.momentum:
        words.append(f"momentum {o.momentum:g}")
    if o.factor != Options.factor:
        words.append(f"factor {o.factor:g}")
    if o.max_learning_rate != Options.max_learning_rate:
        words.append(f"cap {o.max_learning_rate:g}")
    if o.per_parameter:
        words.append("per parameter")
    if o.curvature != Options.curvature:
        words.append("finite difference")
    return ", ".join(words)


def _rows(path: Path) -> Table:
    frame: Table = runs.load(path)
    o = Options.from_file(path / CONFIG)
    gradient = "gradient_norm" if o.batch_size is None else "batch_gradient_norm"
    missing = frame["step"] * np.nan
    loss, recorded, norm = (frame.get(name, missing) for name in ("loss", "drift_estimate", "gradient_norm"))
    rate = frame["learning_rate"].astype(float)
    measured = (2 * recorded / (rate**2 * norm)).astype(float)
    curvature = _curvature(o, frame["step"], rate, measured)
    return pandas.DataFrame(
        {
            "setting": setting(o),
            "contender": contender(o),
            "rate": np.nan if o.learning_rate is None else o.learning_rate,
            "power": o.power if o.optimizer == "dal" else np.nan,
            "seed": o.seed,
            "diverged": read_status(path)["status"] == "diverged",
            "step": frame["step"],
            "learning_rate": rate,
            "update_norm": (rate * frame[gradient]).astype(float),
            "loss": loss.astype(float),
            "sharpness": frame.get("eigenvalue_0", missing),
            "measured_curvature": measured,
            "curvature": curvature,
            "drift": (rate**2 / 2 * curvature * frame[gradient]).astype(float),
            "test_accuracy": frame.get("test_accuracy", missing),
            "train_accuracy": frame.get("train_accuracy", missing),
        }
    )


def _curvature(o: Options, step: Table, rate: Table, measured: Table) -> NDArray:
    """Returns ‖Hĝ‖ at each step: from DAL's rate, else interpolated between records; NaN where there are none."""
    there = np.isfinite(measured) & (measured > 0)
    found = np.full(len(step), np.nan)
    if there.any():
        found = np.exp(np.interp(step, step[there], np.log(measured[there])))
    power = cast(float, o.power)
    if o.optimizer != "dal" or o.per_parameter or not power:
        return found
    told = (o.factor / rate) ** (1 / power)  # at the cap it is at most so much
    return np.where(rate < (1 - 1e-6) * o.max_learning_rate, told, np.minimum(found, told))


def _measures(rows: Table) -> dict[str, Any]:
    first, losses = rows.iloc[0], rows["loss"].dropna().to_numpy()
    broken = bool(first["diverged"])
    diverged = broken or losses[-1] > losses[0]
    accuracies = {name: _last(rows[name]) for name in ("test_accuracy", "train_accuracy")}
    rise = np.max(np.diff(losses) / losses[:-1], initial=0.0)
    return {
        **{name: first[name] for name in ("setting", "contender", "rate", "power", "seed")},
        "diverged": diverged,
        "last_loss": np.inf if diverged else losses[-1],
        "rises": int(np.sum(np.diff(losses) > 0)) + broken,
        "largest_rise": np.inf if broken else float(rise),
        **(dict.fromkeys(accuracies, np.nan) if diverged else accuracies),
        "drift": rows["drift"].iloc[:-1].mean(),  # the last row is of no step
        "sharpness": _last(rows["sharpness"]),
    }


def _last(column: Table) -> float:
    there = column.dropna()
    return float(there.iloc[-1]) if len(there) else np.nan


def _throttled(label: str, folder: Path) -> Callable[[str], None]:
    """Returns what says on the error stream, now and then, how far a sweep is."""
    said = time.monotonic()

    def say(sentence: str) -> None:
        nonlocal said
        if time.monotonic() - said > _SECONDS_BETWEEN_WORDS:
            said = time.monotonic()
            print(f"{label}: {sentence.removeprefix(str(folder)).lstrip('/ ')}", file=sys.stderr)

    return say
