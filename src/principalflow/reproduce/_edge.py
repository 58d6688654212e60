"""The trainings of the experiments at the edge of stability, and what these have in common."""

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas
from matplotlib.axes import Axes
from scipy.stats import mannwhitneyu

from principalflow.reproduce._cost import PRODUCT
from principalflow.reproduce._experiment import Claim, Profile, Table
from principalflow.reproduce._trained import Trained, Training, trained
from principalflow.spectrum import top_eigenpairs

_DIGITS = Training("digits", 1000, "mlp", width=0.1, h=0.2, steps=300)

# The paper's VGG on CIFAR-10 at three rates.
SWEEP: dict[Profile, tuple[Training, ...]] = {
    "quick": tuple(dataclasses.replace(_DIGITS, h=h) for h in (0.16, 0.2, 0.25)),
}
# Its MLP on MNIST.
MLP: dict[Profile, Training] = {"quick": _DIGITS}
# A square loss, along which the curvature stays at the edge, and at a rate below, where it comes near a minimum.
SQUARE: dict[Profile, Training] = {
    "quick": dataclasses.replace(_DIGITS, loss="mean-square", samples=300, h=0.12, steps=500),
}
CONVERGED: dict[Profile, Training] = {
    "quick": dataclasses.replace(SQUARE["quick"], h=0.07),
}
# Its ResNet-18 on CIFAR-10.
RESNET: dict[Profile, tuple[Training, ...]] = {
    "quick": tuple(
        Training("digits", 128, "resnet18", width=0.0625, h=h, steps=100, precision="single") for h in (0.02, 0.01)
    ),
}

EULER_STEP = 5e-5  # the paper's, for every flow


@dataclass(frozen=True)
class Config:
    """The trainings, and the seed for their starting weights."""

    networks: tuple[Training, ...]
    seed: int = 0


def trainings(config: Config) -> Sequence[Training]:
    """Returns the trainings that the settings ask for."""
    return [dataclasses.replace(training, seed=config.seed) for training in config.networks]


def all_trained(config: Config) -> list[Trained]:
    """Returns what came out of them."""
    return [trained(training) for training in trainings(config)]


def label(training: Training) -> str:
    """Returns the training's name in figures and claims."""
    return f"{training.data}, {training.loss}, h = {training.h:g}"


def steps_of(run: Trained, *columns: str) -> Table:
    """Returns a row for each step of a training: `step`, `loss`, `loss_change`, `h_lambda` and further columns."""
    records = run.records
    rows = records[["step", "loss", "loss_change", *columns]]
    return rows.assign(h=run.training.h, h_lambda=run.training.h * records["eigenvalue_0"])


def area_under_curve(scores: Iterable[float], happened: Iterable[bool]) -> float:
    """Returns how well scores tell what happens: the area under the ROC curve, 1/2 for chance, NaN for one class.

    It is the share of the pairs, one that happens and one that doesn't, in which the first has the higher score.
    """
    scores, happened = np.asarray(list(scores)), np.asarray(list(happened))
    if happened.all() or not happened.any():
        return np.nan
    here, there = scores[happened], scores[~happened]
    return float(mannwhitneyu(here, there).statistic / (len(here) * len(there)))


def share(true: Table) -> float:
    """Returns the share that is true; NaN of none."""
    return float(np.mean(true)) if len(true) else np.nan


def costs(runs: Sequence[Trained], more: float = 0, more_by_paper: float = 0) -> Table:
    """Returns what a row costs in gradients, `ours` and by the `paper`'s methods.

    Args:
        runs: The trainings it looks at. Every step's eigenpairs start from the last step's here; started anew, as we
            take the paper to do, they cost what those of the last step then cost, which is measured.
        more: What else it costs.
        more_by_paper: The same by the paper's methods.
    """
    ours = theirs = 0.0
    for run in runs:
        anew = top_eigenpairs(run.objective, run.thetas[-1], run.training.directions, tol=run.training.tolerance)
        ours += run.cost
        theirs += len(run.losses) + PRODUCT * len(run.records) * anew.products
    return pandas.DataFrame({"ours": [ours + more], "paper": [theirs + more_by_paper]})


def cost_claim(costs: Table, note: str = "") -> Claim:
    """Returns the claim that a row costs less than with the paper's methods."""
    ours, paper = costs["ours"].iloc[0], costs["paper"].iloc[0]
    return Claim(
        "What it cost, in gradients, over what the paper's methods would have",
        ours / paper,
        "<",
        1,
        note=f"{ours:,.0f} against {paper:,.0f}. A Hessian product counts as {PRODUCT} gradients, and eigenpairs that "
        f"start anew at every step are taken for the paper's. {note}",
    )


def draw_threshold(ax: Axes, h: float, colour: str = "grey") -> None:
    """Draws the edge, 2/h."""
    ax.axhline(2 / h, color=colour, linestyle="--", linewidth=0.8)
