"""The trainings of the experiments at the edge of stability, and what these have in common."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas
from matplotlib.axes import Axes

from principalflow._lab import Claim, Profile, Table
from principalflow.flows import PRODUCT_COST
from principalflow.reproduce._sweeps import Sweep
from principalflow.reproduce._trained import Trained, trained
from principalflow.spectrum import top_eigenpairs
from principalflow.training import Options

_DIGITS = Options(
    data="digits",
    samples=1000,
    test_samples=0,
    width=0.1,
    learning_rate=0.2,
    steps=300,
    record_every=1,
    directions=1,
    evaluate_every=0,
    keep_every=1,
    precision="float64",
)
_MNIST = replace(_DIGITS, data="mnist", samples=5000, width=1.0, learning_rate=0.1, steps=200, precision="float32")
_VGG = replace(
    _MNIST,
    data="cifar10",
    samples=1000,
    model="vgg11",
    width=0.0625,
    normalization="group",
    learning_rate=0.04,
    steps=70,
    chunk=100,
)
_RESNET = replace(_VGG, model="resnet18", normalization="none", stem="imagenet")
_SMALL_RESNET = replace(_RESNET, data="digits", samples=128, steps=90, stem="auto", chunk=None)
_FULL = replace(
    _MNIST, data="cifar10", samples=50_000, model="vgg16", learning_rate=0.05, steps=3000, chunk=1000, keep_every=100
)

# The paper's VGG on CIFAR-10 at three rates.
SWEEP: dict[Profile, tuple[Options, ...]] = {
    "quick": tuple(replace(_DIGITS, learning_rate=h) for h in (0.16, 0.2, 0.25)),
    "cpu": tuple(replace(_VGG, learning_rate=h) for h in (0.04, 0.06, 0.08)),
    "paper": tuple(replace(_FULL, learning_rate=h) for h in (0.01, 0.03, 0.05)),
}
# Its MLP on MNIST.
MLP: dict[Profile, Options] = {
    "quick": _DIGITS,
    "cpu": _MNIST,
    "paper": replace(_MNIST, samples=60_000, learning_rate=0.05, steps=3000, chunk=10_000, keep_every=100),
}
# Its ResNet-18 on CIFAR-10.
RESNET: dict[Profile, tuple[Options, ...]] = {
    "quick": tuple(replace(_SMALL_RESNET, learning_rate=h) for h in (0.05, 0.1)),
    "cpu": tuple(replace(_RESNET, learning_rate=h) for h in (0.1, 0.2)),
    "paper": tuple(
        replace(_FULL, model="resnet18", normalization="group", stem="imagenet", learning_rate=h) for h in (0.03, 0.01)
    ),
}
# A square loss, along which the curvature stays at the edge, and so long that it comes near a minimum.
SQUARE: dict[Profile, Options] = {
    "quick": replace(_DIGITS, loss="mean-square", samples=300, learning_rate=0.12, steps=500),
    "cpu": replace(_MNIST, loss="mean-square", samples=1000, learning_rate=0.02, steps=1500, keep_every=50),
    "paper": replace(_FULL, loss="mean-square"),
}
CONVERGED: dict[Profile, Options] = {
    "quick": replace(SQUARE["quick"], samples=100, learning_rate=0.05, steps=15_000),
    "cpu": replace(SQUARE["cpu"], learning_rate=0.015, steps=12_000),
    "paper": replace(SQUARE["paper"], learning_rate=0.1, steps=10_000),
}
# What stands in for the paper's data and networks in these.
STAND_INS_SWEEP: dict[Profile, str] = {
    "quick": "Digits of 8 x 8 pixels stand in for CIFAR-10, and an MLP of 3 x 10 units for the VGG.",
    "cpu": "1,000 images of CIFAR-10, and a VGG-11 of a sixteenth of the channels with group normalisation, "
    "at rates at which it comes to the edge within 70 steps.",
}
STAND_INS_MLP: dict[Profile, str] = {
    "quick": "Digits of 8 x 8 pixels stand in for MNIST, and an MLP of 3 x 10 units for one of 3 x 100.",
    "cpu": "5,000 images of MNIST, with h = 0.1 since λ₀ gets to 27 only on so few.",
}
STAND_INS_BOTH: dict[Profile, str] = {
    "quick": "Digits of 8 x 8 pixels stand in for MNIST and CIFAR-10, an MLP of 3 x 10 units for both networks.",
    "cpu": f"{STAND_INS_MLP['cpu']} {STAND_INS_SWEEP['cpu']}",
}
STAND_INS_RESNET: dict[Profile, str] = {
    "quick": "128 digits of 8 x 8 pixels stand in for CIFAR-10; a ResNet-18 of a sixteenth of the channels, without "
    "normalisation, at higher rates.",
    "cpu": "1,000 images of CIFAR-10, and a ResNet-18 of a sixteenth of the channels without normalisation, whose "
    "first layers halve the images twice, as on ImageNet; at higher rates.",
    "paper": "The ResNet-18 has group normalisation in place of batch normalisation, which can't be taken in chunks.",
}
_RIGHT_AT_EDGE = 0.1  # of h λ₀ above 2
EULER_STEP = 5e-5  # the paper's, for every flow


def unrecorded(network: Options, keep_every: int, **changes: Any) -> Options:
    """Returns a training that records nothing and keeps every n-th iterate."""
    return replace(network, record_every=0, keep_every=keep_every, **changes)


@dataclass(frozen=True)
class Config:
    """The trainings, and the seed for their starting weights."""

    networks: tuple[Options, ...]
    seed: int = 0


def networks(config: Config) -> list[Options]:
    """Returns the options of the trainings that the settings ask for."""
    return [replace(network, seed=config.seed) for network in config.networks]


def trainings(config: Config) -> list[Sweep]:
    """Returns these trainings, to be made."""
    return [Sweep(network) for network in networks(config)]


def all_trained(config: Config) -> list[Trained]:
    """Returns what came out of them."""
    return [trained(network) for network in networks(config)]


def at_edge(run: Trained) -> int:
    """Returns the middle one of the steps right at the edge, away from its spikes; the nearest one if there is none."""
    distance = (run.h * run.records["eigenvalue_0"] - 2).to_numpy()
    edge = np.flatnonzero((distance > 0) & (distance < _RIGHT_AT_EDGE))
    return int(edge[len(edge) // 2]) if len(edge) else int(np.abs(distance).argmin())


def steps_of(run: Trained, *columns: str) -> Table:
    """Returns a row for each step of a training: `step`, `loss`, `loss_change`, `h_lambda` and further columns."""
    records = run.records
    rows = records[["step", "loss", "loss_change", *columns]]
    return rows.assign(h=run.h, h_lambda=run.h * records["eigenvalue_0"])


def share(true: Table) -> float:
    """Returns the share that is true; NaN of none."""
    return float(np.mean(true)) if len(true) else np.nan


def costs(runs: Sequence[Trained], more: float = 0, more_by_paper: float = 0) -> Table:
    """Returns what a row costs in gradients, `ours` and by the `paper`'s methods.

    Args:
        runs: The trainings it looks at. Every step's eigenpairs start from the last step's here; started anew, as we
            take the paper to do, they cost what those of the last iterate that is kept then cost, which is measured.
        more: What else it costs.
        more_by_paper: The same by the paper's methods.
    """
    ours = theirs = 0.0
    for run in runs:
        anew = top_eigenpairs(run.objective, run.kept[-1], run.training.directions, tol=run.training.tolerance)
        ours += run.cost
        theirs += len(run.records) + PRODUCT_COST * len(run.records) * anew.products
    return pandas.DataFrame({"ours": [ours + more], "paper": [theirs + more_by_paper]})


def cost_claim(table: Table, note: str = "") -> Claim:
    """Returns the claim that a row costs less than with the paper's methods."""
    ours, paper = table["ours"].iloc[0], table["paper"].iloc[0]
    return Claim.below(
        "What it cost, in gradients, over what the paper's methods would have",
        ours / paper,
        1,
        note=f"{ours:,.0f} against {paper:,.0f}. A Hessian product counts as {PRODUCT_COST} gradients, and eigenpairs "
        f"that start anew at every step are taken for the paper's. {note}",
    )


def draw_threshold(ax: Axes, h: float, colour: str = "grey") -> None:
    """Draws the edge, 2/h."""
    ax.axhline(2 / h, color=colour, linestyle="--", linewidth=0.8)
