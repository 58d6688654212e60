"""The sweeps of the experiments on DAL, and what these have in common."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from typing import Any

import matplotlib
import numpy as np
import pandas
from matplotlib.axes import Axes
from matplotlib.colors import to_hex

from principalflow.reproduce._experiment import Claim, Experiment, Profile, Table, Tables
from principalflow.reproduce._sweeps import Correlation, Sweep, by_run, over_seeds, swept
from principalflow.training import Options

_SEEDS = (0, 1, 2)
# One network in each profile stands for the paper's VGG on CIFAR-10, one for its MLP on MNIST, one for its ResNets.
_DIGITS = Options(
    data="digits",
    samples=1000,
    width=0.3,
    steps=300,
    record_every=20,
    evaluate_every=50,
    checkpoint_every=300,
    directions=1,
    seed=_SEEDS,
)
_SMALL_RESNET = replace(
    _DIGITS, samples=128, model="resnet18", width=0.0625, normalization="none", steps=50, record_every=0
)
_MNIST = replace(
    _DIGITS,
    data="mnist",
    samples=2000,
    test_samples=2000,
    width=1.0,
    steps=200,
    record_every=40,
    checkpoint_every=100,
)
_VGG = Options(
    data="cifar10",
    samples=1000,
    test_samples=1000,
    model="vgg11",
    width=0.0625,
    normalization="group",
    chunk=100,
    steps=50,
    record_every=25,
    evaluate_every=10,
    checkpoint_every=25,
    directions=1,
    tolerance=0.05,
    seed=_SEEDS,
)
_RESNET = replace(_VGG, model="resnet18", normalization="none", stem="imagenet")
_FULL = replace(
    _VGG,
    samples=None,
    test_samples=None,
    model="vgg16",
    width=1.0,
    chunk=1000,
    steps=3000,
    record_every=100,
    evaluate_every=100,
    checkpoint_every=100,
)
_FULL_RESNET = replace(_FULL, model="resnet18", stem="small")
_FULL_SAMPLES, _FULL_PASSES = 50_000, 100

VGG: dict[Profile, Options] = {"quick": _DIGITS, "cpu": _VGG, "paper": _FULL}
RESNET: dict[Profile, Options] = {"quick": _SMALL_RESNET, "cpu": _RESNET, "paper": _FULL_RESNET}
# Where many sweeps are asked for, a network that is cheap enough in the cpu profile.
MLP: dict[Profile, Options] = {"quick": _DIGITS, "cpu": _MNIST, "paper": _FULL}

# The rates of the sweeps by network, data and width, up to where training breaks down or nearly does.
_RATES = {
    ("mlp", "digits", 0.3): (0.05, 0.1, 0.2, 0.4, 0.8),
    ("mlp", "mnist", 1.0): (0.02, 0.05, 0.1, 0.2, 0.4),
    ("resnet18", "digits", 0.0625): (0.1, 0.2, 0.4),
    ("vgg11", "cifar10", 0.0625): (0.05, 0.1, 0.2, 0.4),
    ("resnet18", "cifar10", 0.0625): (0.1, 0.2, 0.4),
}
_PAPER_RATES = (0.01, 0.02, 0.05, 0.1, 0.2)
# DAL's powers: more of them where a run is cheap.
_POWERS = {"mlp": (1.0, 0.875, 0.75, 0.625, 0.5)}
_FEW_POWERS = (1.0, 0.75, 0.5)

DAL, HALF = "DAL", "DAL-0.5"
STEPS_NOT_COST = "Counted in steps; one of DAL's costs about three gradients."
_DAL_COLOURS = {DAL: "#D55E00", "DAL-0.875": "#E69F00", "DAL-0.75": "#0072B2", "DAL-0.625": "#56B4E9", HALF: "#009E73"}
_OTHER_COLOURS = ("#CC79A7", "#7B3294", "#8C510A", "#01665E", "#B2182B", "#4D9221", "#2166AC", "#999933")
_FIXED = "h = "  # how the names of fixed rates begin
_DATA = {"digits": "digits of 8 x 8 pixels", "mnist": "images of MNIST", "cifar10": "images of CIFAR-10"}
_NETWORKS = {"vgg11": "a VGG-11", "vgg16": "a VGG-16", "resnet18": "a ResNet-18"}


@dataclass(frozen=True)
class Config:
    """The sweeps, and a number that leads to other seeds than theirs."""

    sweeps: tuple[Sweep, ...]
    seed: int = 0


def on_batches(profile: Profile, size: int, network: dict[Profile, Options] = VGG) -> Options:
    """Returns the options of a network for batches of this size, with as many steps as make some passes."""
    options = replace(network[profile], batch_size=size)
    if profile == "paper":
        steps = _FULL_PASSES * _FULL_SAMPLES // size
        often = max(steps // 30, 1)
        return replace(options, steps=steps, record_every=often, evaluate_every=often, checkpoint_every=often)
    if options.model != "mlp":
        return replace(options, steps=400, record_every=200, evaluate_every=100, checkpoint_every=200)
    return options


def descent(options: Options, rates: tuple[float, ...] | None = None, **more: Any) -> Sweep:
    """Returns a sweep over fixed rates, by default those of this network and data."""
    rates = rates or _RATES.get((options.model, options.data, options.width), _PAPER_RATES)
    optimizer = "gd" if options.batch_size is None else "sgd"
    return Sweep(replace(options, optimizer=optimizer, learning_rate=rates, **more))


def dal(options: Options, powers: tuple[float, ...] | None = None, **more: Any) -> Sweep:
    """Returns a sweep over DAL's powers, by default those of this network."""
    return Sweep(replace(options, optimizer="dal", power=powers or _POWERS.get(options.model, _FEW_POWERS), **more))


def both(*networks: Options) -> tuple[Sweep, ...]:
    """Returns the sweeps over fixed rates and over DAL's powers of each of these."""
    return tuple(sweep for options in networks for sweep in (descent(options), dal(options)))


def experiment(quick: Config, cpu: Config, paper: Config, **given: Any) -> Experiment:
    """Returns an experiment on sweeps: what it runs, and what stands in for the paper's networks, its settings tell."""
    profiles: dict[Profile, Config] = {"quick": quick, "cpu": cpu, "paper": paper}
    stand_ins: dict[Profile, str] = {
        profile: f"Here: {'; '.join(_networks(config))}." for profile, config in profiles.items()
    }
    return Experiment(**{"run": run, **given}, profiles=profiles, trainings=trainings, stand_ins=stand_ins)


def _networks(config: Config) -> list[str]:
    batches: dict[str, dict[str, None]] = {}
    for sweep in config.sweeps:
        o = sweep.options
        size = "full batch" if o.batch_size is None else f"batches of {o.batch_size}"
        batches.setdefault(_network(o), {})[f"{size}, {o.steps:,} steps"] = None
    return [f"{network} ({'; '.join(sizes)})" for network, sizes in batches.items()]


def _network(o: Options) -> str:
    samples = _DATA[o.data] if o.samples is None else f"{o.samples:,} {_DATA[o.data]}"
    if o.model == "mlp":
        return f"an MLP of 3 x {round(100 * o.width)} units on {samples}"
    width = "" if o.width == 1 else f" of 1/{round(1 / o.width)} of the channels"
    normalization = "without normalisation" if o.normalization == "none" else f"with {o.normalization} normalisation"
    return f"{_NETWORKS[o.model]}{width} {normalization} on {samples}"


def trainings(config: Config) -> Sequence[Sweep]:
    """Returns the sweeps that the settings ask for."""
    return [sweep.seeded(config.seed) for sweep in config.sweeps]


def run(config: Config) -> Tables:
    """Returns what came out of the sweeps: `steps`, `runs` (measures of each) and `contenders` (over the seeds)."""
    steps = pandas.concat([swept(sweep) for sweep in trainings(config)], ignore_index=True)
    measures = by_run(steps)
    return {"steps": steps, "runs": measures, "contenders": over_seeds(measures)}


def settings(table: Table) -> list[tuple[str, Table]]:
    """Returns the settings, network, data and batch, with their rows of a table."""
    return list(table.groupby("setting", sort=False))


def of(table: Table, setting: str) -> Table:
    """Returns the rows of one setting."""
    return table[table["setting"] == setting]


def named(contenders: Table, name: str) -> Table:
    """Returns one row by the contender's name; NaN where there is none, as it would be in a setting without it."""
    rows = contenders[contenders["contender"] == name]
    return rows.iloc[0] if len(rows) else pandas.Series(np.nan, contenders.columns)


def fixed_rates(table: Table) -> Table:
    """Returns the rows of descent at fixed rates, without momentum or Adam."""
    return table[table["contender"].str.startswith(_FIXED)]


def lowest_loss(contenders: Table) -> Table:
    """Returns the contender with the lowest last loss on average over the seeds, such as of `fixed_rates`."""
    return contenders.loc[contenders["last_loss"].idxmin()]


def best_test(contenders: Table) -> Table:
    """Returns the contender with the best test accuracy on average over the seeds, such as of `fixed_rates`."""
    return contenders.loc[contenders["test_accuracy"].fillna(-1).idxmax()]


def accuracy(row: Table) -> str:
    """Returns mean and spread of a test accuracy, in words."""
    if np.isnan(row["test_accuracy"]):
        return f"none, since {int(row['diverged'])} of its seeds diverged"
    return f"{100 * row['test_accuracy']:.1f}% ± {100 * row['test_accuracy_spread']:.1f}"


def end_of_sweep(best: Table, rates: Table) -> str:
    """Returns a warning where the best rate is the lowest or highest one, so that the sweep may not have found it."""
    ends = {rates["rate"].min(): "lowest", rates["rate"].max(): "highest"}
    return f"It is the {ends[best['rate']]} rate of the sweep." if best["rate"] in ends else ""


def correlation_claim(sentence: str, found: Correlation, sign: int, note: str = "") -> Claim:
    """Returns the claim that a rank correlation has a sign: that its whole 95% interval is above 0, or below it."""
    end, limit = ("lower", found.low) if sign > 0 else ("upper", found.high)
    words = f"{sentence}: the {end} end of the rank correlation's 95% interval"
    note = f"The correlation is {found}; runs are taken as independent. {note}".strip()
    return Claim(words, limit, ">" if sign > 0 else "<", 0, note=note)


def draw_curves(ax: Axes, steps: Table, column: str, contenders: Sequence[str] | None = None, log: bool = True) -> None:
    """Draws a column over the steps of one setting, a colour for each contender, the seeds after the first fainter."""
    names = list(dict.fromkeys(steps["contender"]))
    for (name, seed), rows in steps.groupby(["contender", "seed"], sort=False):
        if contenders is not None and name not in contenders:
            continue
        first, shown = seed == steps["seed"].min(), rows.dropna(subset=column)
        style = {"color": colours(names)[name], "alpha": 1 if first else 0.25, "label": name if first else None}
        ax.plot(shown["step"], shown[column], **style)
    ax.set_xlabel("step")
    if log:
        ax.set_yscale("log")


def draw_losses(ax: Axes, steps: Table, contenders: Sequence[str] | None = None) -> None:
    """Draws the losses over the steps of one setting, as far up as training starts and a little further."""
    draw_curves(ax, steps, "loss", contenders)
    start, losses = steps.loc[steps["step"] == 0, "loss"].max(), steps["loss"][steps["loss"] > 0]
    ax.set(title="loss", ylim=(losses.min() / 1.5, 1.2 * min(losses.max(), 3 * start)))
    ax.legend(fontsize="x-small", ncols=2)


def draw_accuracies(ax: Axes, contenders: Table, names: Sequence[str] | None = None) -> None:
    """Draws the test accuracies of one setting, mean and spread over the seeds; a cross where a seed diverged."""
    shades = colours(list(contenders["contender"]))
    rows = contenders if names is None else contenders[contenders["contender"].isin(names)]
    for x, (_, row) in enumerate(rows.iterrows()):
        shade = shades[row["contender"]]
        if np.isnan(row["test_accuracy"]):
            ax.plot(x, 0.03, "x", color=shade, transform=ax.get_xaxis_transform())
        else:
            ax.errorbar(x, row["test_accuracy"], row["test_accuracy_spread"], fmt="o", color=shade, capsize=3)
    ax.set_xticks(range(len(rows)), list(rows["contender"]), rotation=40, ha="right", fontsize="small")
    ax.set_title("test accuracy over seeds (x: diverged)")


def colours(names: Sequence[str]) -> dict[str, str]:
    """Returns a colour for each contender: greys for fixed rates, darker for higher ones; DAL-p always has the same."""
    rates = [name for name in names if name.startswith(_FIXED)]
    others = [name for name in names if name not in rates and name not in _DAL_COLOURS]
    greys = matplotlib.colormaps["Greys"](np.linspace(0.95, 0.35, max(len(rates), 1))[::-1])
    return _DAL_COLOURS | dict(zip(rates, map(to_hex, greys), strict=False)) | dict(zip(others, cycle(_OTHER_COLOURS)))


def ratio(one: float, other: float) -> float:
    """Returns a ratio; NaN where it says nothing, since the other one is zero or diverged."""
    return one / other if 0 < other < np.inf else np.nan
