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

from principalflow.reproduce._experiment import Claim, Profile, Table, Tables
from principalflow.reproduce._sweeps import Correlation, Sweep, by_run, over_seeds, swept
from principalflow.training import Options

_SEEDS = (0, 1, 2)
# One network in each profile stands for the paper's VGG on CIFAR-10, one for its MLP on MNIST, one for its ResNets.
_DIGITS = Options(
    data="digits",
    samples=1000,
    width=0.3,
    steps=300,
    record_every=30,
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

# For batches: as many steps as make some passes over the data.
ON_BATCHES: dict[Profile, Options] = {
    "quick": _DIGITS,
    "cpu": replace(_VGG, steps=400, record_every=200, evaluate_every=100, checkpoint_every=200),
    "paper": replace(_FULL, steps=40_000, record_every=1000, evaluate_every=1000, checkpoint_every=1000),
}
VGG: dict[Profile, Options] = {"quick": _DIGITS, "cpu": _VGG, "paper": _FULL}
MLP: dict[Profile, Options] = {"quick": _DIGITS, "cpu": _MNIST, "paper": replace(_MNIST, samples=None, steps=3000)}
RESNET: dict[Profile, Options] = {"quick": _SMALL_RESNET, "cpu": _RESNET, "paper": _FULL_RESNET}

# DAL's powers: more of them where a run is cheap.
_POWERS = {"mlp": (1.0, 0.875, 0.75, 0.625, 0.5)}
_FEW_POWERS = (1.0, 0.75, 0.5)
# The rates of the sweeps, up to one at which training breaks down or nearly does.
_RATES = {
    ("mlp", "digits"): (0.05, 0.1, 0.2, 0.4, 0.8),
    ("mlp", "mnist"): (0.02, 0.05, 0.1, 0.2, 0.4),
    ("resnet18", "digits"): (0.05, 0.1, 0.2),
    ("vgg11", "cifar10"): (0.05, 0.1, 0.2, 0.4),
    ("resnet18", "cifar10"): (0.1, 0.2, 0.4),
}
_PAPER_RATES = (0.01, 0.02, 0.05, 0.1, 0.2)

STAND_INS_VGG: dict[Profile, str] = {
    "quick": "1,000 digits of 8 x 8 pixels stand in for CIFAR-10, an MLP of 3 x 30 units for the VGG.",
    "cpu": "1,000 images of CIFAR-10, and a VGG-11 of a sixteenth of the channels with group normalisation; 50 steps "
    "on full batches, 400 on smaller ones.",
    "paper": "The VGG has group normalisation.",
}
STAND_INS_MLP: dict[Profile, str] = {
    "quick": "1,000 digits of 8 x 8 pixels, and an MLP of 3 x 30 units, stand in for the paper's data and network.",
    "cpu": "2,000 images of MNIST, and an MLP of 3 x 100 units, stand in for the paper's data and network.",
}
STAND_INS_IMAGENET: dict[Profile, str] = {
    **STAND_INS_MLP,
    "paper": "CIFAR-10 and a VGG stand in for ImageNet and ResNet-50.",
}
STAND_INS_ALL: dict[Profile, str] = {
    "quick": f"{STAND_INS_VGG['quick']} 128 digits, and a ResNet-18 of a sixteenth of the channels, for ResNets.",
    "cpu": f"{STAND_INS_VGG['cpu']} A ResNet-18 of a sixteenth of the channels, without normalisation, whose first "
    "layers halve the images twice, and an MLP on 2,000 images of MNIST stand in for ResNets.",
    "paper": "VGG and ResNet-18 have group normalisation or none. ResNet-50 on ImageNet is left out.",
}


_DAL_COLOURS = {
    "DAL": "#D55E00",
    "DAL-0.875": "#E69F00",
    "DAL-0.75": "#0072B2",
    "DAL-0.625": "#56B4E9",
    "DAL-0.5": "#009E73",
}
_OTHER_COLOURS = ("#CC79A7", "#7B3294", "#8C510A", "#01665E", "#B2182B", "#4D9221", "#2166AC", "#999933")
_FIXED = "h = "  # how the names of fixed rates begin


@dataclass(frozen=True)
class Config:
    """The sweeps, and what is added to all of their seeds."""

    sweeps: tuple[Sweep, ...]
    seed: int = 0


def descent(options: Options, rates: tuple[float, ...] | None = None, batch: int | None = None, **more: Any) -> Sweep:
    """Returns a sweep over fixed rates, by default those of this network and data, on full batches or smaller ones."""
    rates = rates or _RATES.get((options.model, options.data), _PAPER_RATES)
    optimizer = "gd" if batch is None else "sgd"
    return Sweep(replace(options, optimizer=optimizer, learning_rate=rates, batch_size=batch, **more))


def dal(options: Options, powers: tuple[float, ...] | None = None, batch: int | None = None, **more: Any) -> Sweep:
    """Returns a sweep over DAL's powers, by default those of this network, on full batches or smaller ones."""
    powers = powers or _POWERS.get(options.model, _FEW_POWERS)
    return Sweep(replace(options, optimizer="dal", power=powers, batch_size=batch, **more))


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


def correlation_claim(sentence: str, found: Correlation, sign: int, note: str = "") -> Claim:
    """Returns the claim that a rank correlation has a sign: that its whole 95% interval is above 0, or below it."""
    words = f"{sentence}: the end nearer to 0 of the rank correlation's 95% interval"
    limit = found.low if sign > 0 else found.high
    return Claim(words, limit, ">" if sign > 0 else "<", 0, note=f"The correlation is {found}. {note}".strip())


def draw_curves(ax: Axes, steps: Table, column: str, contenders: Sequence[str] | None = None, log: bool = True) -> None:
    """Draws a column over the steps, a colour for each contender, the seeds after the first fainter."""
    names = list(dict.fromkeys(steps["contender"])) if contenders is None else list(contenders)
    for (name, seed), rows in steps.groupby(["contender", "seed"], sort=False):
        if name not in names:
            continue
        first = seed == steps["seed"].min()
        shown = rows.dropna(subset=column)
        colour = colours(names)[name]
        ax.plot(shown["step"], shown[column], color=colour, alpha=1 if first else 0.25, label=name if first else None)
    ax.set_xlabel("step")
    if log:
        ax.set_yscale("log")


def draw_means(ax: Axes, contenders: Table, column: str, names: Sequence[str] | None = None) -> None:
    """Draws the mean of a measure for each contender, with its spread over the seeds."""
    rows = contenders if names is None else contenders[contenders["contender"].isin(names)]
    place = range(len(rows))
    colour = [colours(list(contenders["contender"]))[name] for name in rows["contender"]]
    spread = rows[f"{column}_spread"]
    for x, y, error, shade in zip(place, rows[column], spread, colour, strict=True):
        ax.errorbar(x, y, error, fmt="o", color=shade, capsize=3)
    ax.set_xticks(list(place), list(rows["contender"]), rotation=40, ha="right", fontsize="small")


def colours(names: Sequence[str]) -> dict[str, str]:
    """Returns a colour for each contender: greys for fixed rates, darker for higher ones; DAL-p always has the same."""
    rates = [name for name in names if name.startswith(_FIXED)]
    others = [name for name in names if name not in rates and name not in _DAL_COLOURS]
    greys = matplotlib.colormaps["Greys"](np.linspace(0.95, 0.35, max(len(rates), 1))[::-1])
    return _DAL_COLOURS | dict(zip(rates, map(to_hex, greys), strict=False)) | dict(zip(others, cycle(_OTHER_COLOURS)))


def ratio(one: float, other: float) -> float:
    """Returns a ratio; 0 of nothing, otherwise NaN where it says nothing, since the other one is zero or diverged."""
    return 0.0 if one == 0 else one / other if 0 < other < np.inf else np.nan
