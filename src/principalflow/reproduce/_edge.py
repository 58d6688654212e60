"""The trainings of the experiments at the edge of stability, and what these have in common."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas
from matplotlib.axes import Axes

from principalflow.flows import PRODUCT_COST
from principalflow.reproduce._experiment import Claim, Profile, Table
from principalflow.reproduce._trained import Trained, Training, trained
from principalflow.spectrum import top_eigenpairs

_DIGITS = Training("digits", 1000, "mlp", width=0.1, h=0.2, steps=300)
_MNIST = Training("mnist", 5000, "mlp", width=1.0, h=0.1, steps=200, precision="single")
_VGG = Training(
    "cifar10",
    1000,
    "vgg11",
    width=0.0625,
    h=0.04,
    steps=70,
    precision="single",
    options=(("normalization", "group"),),
    chunk=100,
)
_RESNET = replace(_VGG, model="resnet18", options=(("normalization", "none"), ("stem", "imagenet")))
_SMALL_RESNET = replace(_RESNET, data="digits", samples=128, steps=90, options=(("normalization", "none"),), chunk=None)
_FULL = Training("cifar10", 50_000, "vgg16", width=1.0, h=0.05, steps=3000, precision="single", chunk=1000, keep=100)

# The paper's VGG on CIFAR-10 at three rates.
SWEEP: dict[Profile, tuple[Training, ...]] = {
    "quick": tuple(replace(_DIGITS, h=h) for h in (0.16, 0.2, 0.25)),
    "cpu": tuple(replace(_VGG, h=h) for h in (0.04, 0.06, 0.08)),
    "paper": tuple(replace(_FULL, h=h) for h in (0.01, 0.03, 0.05)),
}
# Its MLP on MNIST.
MLP: dict[Profile, Training] = {
    "quick": _DIGITS,
    "cpu": _MNIST,
    "paper": replace(_MNIST, samples=60_000, h=0.05, steps=3000, chunk=10_000, keep=100),
}
# Its ResNet-18 on CIFAR-10.
RESNET: dict[Profile, tuple[Training, ...]] = {
    "quick": tuple(replace(_SMALL_RESNET, h=h) for h in (0.05, 0.1)),
    "cpu": tuple(replace(_RESNET, h=h) for h in (0.1, 0.2)),
    "paper": tuple(
        replace(_FULL, model="resnet18", h=h, options=(("normalization", "group"), ("stem", "imagenet")))
        for h in (0.03, 0.01)
    ),
}
# A square loss, along which the curvature stays at the edge, and so long that it comes near a minimum.
SQUARE: dict[Profile, Training] = {
    "quick": replace(_DIGITS, loss="mean-square", samples=300, h=0.12, steps=500),
    "cpu": replace(_MNIST, loss="mean-square", samples=1000, h=0.02, steps=1500, keep=50),
    "paper": replace(_FULL, loss="mean-square"),
}
CONVERGED: dict[Profile, Training] = {
    "quick": replace(SQUARE["quick"], samples=100, h=0.05, steps=15_000, keep=500),
    "cpu": replace(SQUARE["cpu"], h=0.015, steps=12_000, keep=500),
    "paper": replace(SQUARE["paper"], h=0.1, steps=10_000),
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


@dataclass(frozen=True)
class Config:
    """The trainings, and the seed for their starting weights."""

    networks: tuple[Training, ...]
    seed: int = 0


def trainings(config: Config) -> Sequence[Training]:
    """Returns the trainings that the settings ask for."""
    return [replace(training, seed=config.seed) for training in config.networks]


def all_trained(config: Config) -> list[Trained]:
    """Returns what came out of them."""
    return [trained(training) for training in trainings(config)]


def at_edge(run: Trained) -> int:
    """Returns the middle one of the steps right at the edge, away from its spikes; the nearest one if there is none."""
    distance = (run.training.h * run.records["eigenvalue_0"] - 2).to_numpy()
    edge = np.flatnonzero((distance > 0) & (distance < _RIGHT_AT_EDGE))
    return int(edge[len(edge) // 2]) if len(edge) else int(np.abs(distance).argmin())


def steps_of(run: Trained, *columns: str) -> Table:
    """Returns a row for each step of a training: `step`, `loss`, `loss_change`, `h_lambda` and further columns."""
    records = run.records
    rows = records[["step", "loss", "loss_change", *columns]]
    return rows.assign(h=run.training.h, h_lambda=run.training.h * records["eigenvalue_0"])


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
    return Claim(
        "What it cost, in gradients, over what the paper's methods would have",
        ours / paper,
        "<",
        1,
        note=f"{ours:,.0f} against {paper:,.0f}. A Hessian product counts as {PRODUCT_COST} gradients, and eigenpairs "
        f"that start anew at every step are taken for the paper's. {note}",
    )


def draw_threshold(ax: Axes, h: float, colour: str = "grey") -> None:
    """Draws the edge, 2/h."""
    ax.axhline(2 / h, color=colour, linestyle="--", linewidth=0.8)
