"""Where the loss rises, Re sc₀ is large and positive (figures 12, 37)."""

from dataclasses import replace

from matplotlib.figure import Figure

from principalflow._lab import Claim, Tables
from principalflow.reproduce import _edge
from principalflow.reproduce._flows import stack
from principalflow.reproduce._statistics import area_under_curve

COEFFICIENT = "coefficient_0_real"


def run(config: _edge.Config) -> Tables:
    runs = _edge.all_trained(config)
    steps = {run.label: _edge.steps_of(run, COEFFICIENT, "gradient_norm") for run in runs}
    return {"steps": stack(steps, "network"), "cost": _edge.costs(runs)}


def claims(config: _edge.Config, tables: Tables) -> list[Claim]:
    found = []
    for name, rows in tables["steps"].groupby("network", sort=False):
        rises = rows["loss_change"] > 0
        by_coefficient = area_under_curve(rows[COEFFICIENT], rises)
        by_sharpness = area_under_curve(rows["h_lambda"], rises)
        normalised = area_under_curve(rows[COEFFICIENT] / rows["gradient_norm"], rises)
        found += [
            Claim.at_least(
                f"{name}: the loss rises where Re sc₀ > 0: share of the {rises.sum()} rises",
                _edge.share(rows.loc[rises, COEFFICIENT] > 0),
                0.9,
            ),
            Claim.at_least(
                f"{name}: Re sc₀ tells at which steps the loss rises: area under the ROC curve (1/2 is chance)",
                by_coefficient,
                0.9,
                note=f"Re sc₀ over the gradient's norm, which takes that out as a cause: {normalised:.3f}.",
            ),
            Claim.above(
                f"{name}: it tells it better than h λ₀ alone: the difference of the areas",
                by_coefficient - by_sharpness,
                0,
                note=f"By h λ₀: {by_sharpness:.3f}.",
            ),
        ]
    return [*found, _edge.cost_claim(tables["cost"])]


def draw(config: _edge.Config, tables: Tables) -> Figure:
    groups = list(tables["steps"].groupby("network", sort=False))
    figure = Figure(figsize=(15, 4 * len(groups)), layout="constrained")
    for (loss, coefficient, normalised), (name, rows) in zip(
        figure.subplots(len(groups), 3, squeeze=False), groups, strict=True
    ):
        rises = rows[rows["loss_change"] > 0]
        loss.semilogy(rows["step"], rows["loss"], color="black", linewidth=0.8)
        loss.semilogy(rises["step"], rises["loss"], "o", color="#D55E00", markersize=4, label="the loss rises")
        loss.set(title=f"{name}: loss", ylabel="$E$")
        loss.legend()
        for ax, over, title in (
            (coefficient, 1, r"Re $sc_0$"),
            (normalised, rows["gradient_norm"], r"Re $sc_0 / \|\nabla E\|$"),
        ):
            values = rows[COEFFICIENT] / over
            ax.plot(rows["step"], values, color="black", linewidth=0.8)
            ax.plot(rises["step"], values[rises.index], "o", color="#D55E00", markersize=4)
            ax.axhline(0, color="grey", linewidth=0.5)
            ax.set_title(title)
        for ax in (loss, coefficient, normalised):
            ax.set_xlabel("step of descent")
    return figure


SETTINGS = {
    "quick": _edge.Config((_edge.MLP["quick"], _edge.SWEEP["quick"][-1])),
    "cpu": _edge.Config((_edge.MLP["cpu"], _edge.SWEEP["cpu"][-1])),
    "paper": _edge.Config((_edge.MLP["paper"], replace(_edge.SWEEP["paper"][0], learning_rate=0.02))),
}
trainings = _edge.trainings
STAND_INS = _edge.STAND_INS_BOTH
