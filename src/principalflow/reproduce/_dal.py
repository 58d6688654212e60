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
from matplotlib.figure import Figure

from principalflow.reproduce._experiment import Claim, Experiment, Profile, Table, Tables
from principalflow.reproduce._statistics import Correlation
from principalflow.reproduce._sweeps import FULL_BATCH, Sweep, batch, by_run, over_seeds, swept
from principalflow.training import Options

_SEEDS = (0, 1, 2)
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
    checkpoint_every=100,
)
_VGG = Options(
    data="cifar10",
    samples=1000,
    test_samples=1000,
    model="vgg11",
    width=0.0625,
    normalization="group",
    chunk=50,
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

# What stands for the paper's VGG on CIFAR-10, and for its ResNets.
VGG: dict[Profile, Options] = {"quick": _DIGITS, "cpu": _VGG, "paper": _FULL}
RESNET: dict[Profile, Options] = {"quick": _SMALL_RESNET, "cpu": _RESNET, "paper": _FULL_RESNET}
# The same as the VGG where that is cheap enough for many sweeps, else a cheaper network.
CHEAP: dict[Profile, Options] = {"quick": _DIGITS, "cpu": _MNIST, "paper": _FULL}

# The rates of the sweeps by network, data and width: one more than the one with the lowest loss, where that is known.
_RATES = {
    ("mlp", "digits", 0.3): (0.05, 0.1, 0.2, 0.4, 0.8),
    ("mlp", "mnist", 1.0): (0.02, 0.05, 0.1, 0.2, 0.4),
    ("resnet18", "digits", 0.0625): (0.1, 0.2, 0.4),
    ("vgg11", "cifar10", 0.0625): (0.05, 0.1, 0.2, 0.4),
    ("resnet18", "cifar10", 0.0625): (0.1, 0.2, 0.4, 0.8),
}
# The same with momentum.
_MOMENTUM_RATES = {
    ("mlp", "digits", 0.3): (0.05, 0.1, 0.2, 0.4),
    ("mlp", "mnist", 1.0): (0.02, 0.05, 0.1, 0.2),
    ("vgg11", "cifar10", 0.0625): (0.01, 0.02, 0.05),
}
_PAPER_RATES, _PAPER_MOMENTUM_RATES = (0.01, 0.02, 0.05, 0.1, 0.2), (0.001, 0.005, 0.01, 0.05)
MOMENTUM = 0.9
# DAL's powers: more of them where a run is cheap.
_POWERS = {"mlp": (1.0, 0.875, 0.75, 0.625, 0.5)}
_FEW_POWERS = (1.0, 0.75, 0.5)

DAL, HALF = "DAL", "DAL-0.5"
STEPS_NOT_COST = "Counted in steps; one of DAL's costs about three gradients."
_FIXED = "h = "  # how the names of fixed rates begin
_NAMES_INSIDE = 8  # of a legend; one with more would hide curves
# Colours by name; shades for the rates of those whose names begin so, darker for higher ones; and those of all others.
_COLOURS = {DAL: "#D55E00", "DAL-0.875": "#E69F00", "DAL-0.75": "#0072B2", "DAL-0.625": "#56B4E9", HALF: "#009E73"}
_COLOURS |= {"Prodigy": "#8C510A", "DoG": "#999933"}
_SHADES = {_FIXED: ("Greys", 0.95), "momentum": ("Purples", 0.95), "Adam": ("RdPu", 0.7)}
_OTHER_COLOURS = ("#8C510A", "#CC79A7", "#01665E", "#B2182B", "#4D9221", "#7B3294")
_DATA = {"digits": "digits of 8 x 8 pixels", "mnist": "images of MNIST", "cifar10": "images of CIFAR-10"}
_NETWORKS = {"vgg11": "a VGG-11", "vgg16": "a VGG-16", "resnet18": "a ResNet-18"}


@dataclass(frozen=True)
class Config:
    """The sweeps, and a number that leads to other seeds than theirs."""

    sweeps: tuple[Sweep, ...]
    seed: int = 0


def on_batches(profile: Profile, size: int, network: dict[Profile, Options] = VGG) -> Options:
    """Returns the options of a network for batches of this size, with more steps where a step is much cheaper."""
    options = replace(network[profile], batch_size=size)
    if profile == "paper":
        steps = _FULL_PASSES * _FULL_SAMPLES // size
        often = max(steps // 30, 1)
        return replace(options, steps=steps, record_every=often, evaluate_every=often, checkpoint_every=often)
    if options.model != "mlp":
        return replace(options, steps=400, record_every=100, evaluate_every=100, checkpoint_every=200)
    return options


def descent(options: Options, rates: tuple[float, ...] | None = None, **more: Any) -> Sweep:
    """Returns a sweep over fixed rates, by default those of this network and data."""
    rates = rates or _RATES.get(_kind(options), _PAPER_RATES)
    optimizer = "gd" if options.batch_size is None else "sgd"
    return Sweep(replace(options, optimizer=optimizer, learning_rate=rates, **more))


def descent_with_momentum(options: Options, rates: tuple[float, ...] | None = None) -> Sweep:
    """Returns a sweep over fixed rates with momentum, by default those of this network and data."""
    return descent(options, rates or _MOMENTUM_RATES.get(_kind(options), _PAPER_MOMENTUM_RATES), momentum=MOMENTUM)


def dal(options: Options, powers: tuple[float, ...] | None = None, **more: Any) -> Sweep:
    """Returns a sweep over DAL's powers, by default those of this network."""
    return Sweep(replace(options, optimizer="dal", power=powers or _POWERS.get(options.model, _FEW_POWERS), **more))


def _kind(options: Options) -> tuple[str, str, float]:
    return options.model, options.data, options.width


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
        batches.setdefault(_network(o), {})[f"{batch(o)}, {o.steps:,} steps"] = None
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


def is_full_batch(setting: str) -> bool:
    """Returns whether a setting has all samples at each step, so that the loss of all is known at each."""
    return setting.endswith(FULL_BATCH)


def of(table: Table, setting: str) -> Table:
    """Returns the rows of one setting."""
    return table[table["setting"] == setting]


def named(contenders: Table, name: str) -> Table:
    """Returns one row by the contender's name; NaN where there is none, as it would be in a setting without it."""
    rows = contenders[contenders["contender"] == name]
    return rows.iloc[0] if len(rows) else pandas.Series({**dict.fromkeys(contenders, np.nan), "contender": name})


def fixed_rates(table: Table) -> Table:
    """Returns the rows of descent at fixed rates, without momentum or Adam."""
    return table[table["contender"].str.startswith(_FIXED)]


def lowest_loss(contenders: Table) -> Table:
    """Returns the contender with the lowest last loss on average over the seeds; NaN where all of them diverged."""
    best = contenders.loc[contenders["last_loss"].idxmin()]
    return best if best["last_loss"] < np.inf else named(contenders, "none")


def best_test(contenders: Table) -> Table:
    """Returns the contender with the best test accuracy on average over the seeds, such as of `fixed_rates`."""
    return contenders.loc[contenders["test_accuracy"].fillna(-1).idxmax()]


def accuracy(row: Table) -> str:
    """Returns mean and spread of a test accuracy, in words."""
    if np.isnan(row["test_accuracy"]):
        return f"none, since {row['diverged']:g} of its seeds diverged"
    return f"{100 * row['test_accuracy']:.1f}% ± {100 * row['test_accuracy_spread']:.1f}"


def end_of_sweep(best: Table, rates: Table) -> str:
    """Returns what to add to a note where the best rate is the lowest or highest one, so that there may be better."""
    ends = {rates["rate"].min(): "lowest", rates["rate"].max(): "highest"}
    return f" It is the {ends[best['rate']]} rate of the sweep." if best["rate"] in ends else ""


def correlation_claim(sentence: str, found: Correlation, sign: int, note: str = "") -> Claim:
    """Returns the claim that a rank correlation has a sign: that its whole 95% interval is above 0, or below it."""
    end, limit = ("lower", found.low) if sign > 0 else ("upper", found.high)
    words = f"{sentence}: the {end} end of the rank correlation's 95% interval"
    note = f"The correlation is {found}; runs are taken as independent. {note}".strip()
    return Claim(words, limit, ">" if sign > 0 else "<", 0, note=note)


def panels(table: Table, columns: int) -> tuple[Figure, list[tuple[Any, str, Table]]]:
    """Returns a figure with a row of panels for each setting, and each row with the setting and its part of a table."""
    parts = settings(table)
    figure = Figure(figsize=(5.2 * columns, 4.3 * len(parts)), layout="constrained")
    axes = figure.subplots(len(parts), columns, squeeze=False)
    return figure, [(row, setting, rows) for row, (setting, rows) in zip(axes, parts, strict=True)]


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
    """Draws the losses over the steps of one setting, which it names, as far up as they start and a little further."""
    draw_curves(ax, steps, "loss", contenders)
    start, losses = steps.loc[steps["step"] == 0, "loss"].max(), steps["loss"][steps["loss"] > 0]
    ax.set(title=f"{steps['setting'].iloc[0]}: loss", ylim=(losses.min() / 1.5, 1.2 * min(losses.max(), 3 * start)))
    many = len(ax.get_legend_handles_labels()[1]) > _NAMES_INSIDE
    below = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.14), "ncols": 3} if many else {"ncols": 2}
    ax.legend(fontsize="x-small", title="faint: other seeds", title_fontsize="x-small", **below)


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
    """Returns a colour for each contender, the same one in every setting, where the sweeps are the same."""
    found = dict(_COLOURS)
    for beginning, (shades, darkest) in _SHADES.items():
        same = [name for name in names if name.startswith(beginning)]
        levels = np.linspace(darkest, 0.4, len(same))[::-1]
        found |= zip(same, map(to_hex, matplotlib.colormaps[shades](levels)), strict=True)
    return found | dict(zip([name for name in names if name not in found], cycle(_OTHER_COLOURS)))


def ratio(one: float, other: float) -> float:
    """Returns a ratio; NaN where it says nothing, since the other one is zero or diverged."""
    return one / other if 0 < other < np.inf else np.nan
