"""On a ResNet too the loss rises with the stability coefficient, as under the flow up the gradient.

Figures instabilities_resnet and edge_of_stability_results_cifar_resnet.
"""

from dataclasses import dataclass

from matplotlib.figure import Figure
from scipy.stats import spearmanr

from principalflow.reproduce import _edge
from principalflow.reproduce._edge import (
    RESNET,
    STAND_INS_RESNET,
    all_trained,
    area_under_curve,
    cost_claim,
    costs,
    label,
    share,
    steps_of,
    trainings,
)
from principalflow.reproduce._experiment import Claim, Experiment, Tables
from principalflow.reproduce._flows import stack
from principalflow.reproduce._local import local_flows

COEFFICIENT = "coefficient_0_real"


@dataclass(frozen=True)
class Config(_edge.Config):
    """Flows start at so many of the steps at which the loss rises, the first ones."""

    rises: int = 12


def run(config: Config) -> Tables:
    runs, changes, cost, by_paper = all_trained(config), {}, 0.0, 0.0
    for run in runs:
        records = run.records.iloc[:-1]
        rises = records.loc[records["loss_change"] > 0, "step"].head(config.rises)
        found = local_flows(run, rises)
        changes[label(run.training)] = found.changes
        cost, by_paper = cost + found.cost, by_paper + found.cost_by_paper
    return {
        "steps": stack({label(run.training): steps_of(run, COEFFICIENT) for run in runs}, "network"),
        "changes": stack(changes, "network"),
        "cost": costs(runs, cost, by_paper),
    }


def claims(config: Config, tables: Tables) -> list[Claim]:
    steps, changes = tables["steps"], tables["changes"].dropna()
    rises = steps["loss_change"] > 0
    by_coefficient, by_sharpness = (area_under_curve(steps[name], rises) for name in (COEFFICIENT, "h_lambda"))
    proportional = (
        spearmanr(changes["loss_change"], changes["loss_change_up"]).statistic if len(changes) > 2 else float("nan")
    )
    return [
        Claim(
            f"The loss rises where λ₀ > 2/h: share of the {rises.sum()} rises",
            share(steps.loc[rises, "h_lambda"] > 2),
            ">=",
            0.9,
        ),
        Claim(
            "Re sc₀ tells at which steps the loss rises: area under the ROC curve (1/2 is chance)",
            by_coefficient,
            ">=",
            0.9,
            note=f"By h λ₀ alone: {by_sharpness:.3f}.",
        ),
        Claim(
            f"A rise is the larger, the more the positive flow raises the loss from there: rank correlation over "
            f"{len(changes)} rises",
            float(proportional),
            ">",
            0.5,
        ),
        cost_claim(tables["cost"], f"The paper follows flows by Euler's steps of {_edge.EULER_STEP:g}."),
    ]


def draw(config: Config, tables: Tables) -> Figure:
    groups = list(tables["steps"].groupby("network", sort=False))
    figure = Figure(figsize=(15, 4 * len(groups)), layout="constrained")
    for (loss, coefficient, against), (name, rows) in zip(
        figure.subplots(len(groups), 3, squeeze=False), groups, strict=True
    ):
        rises = rows[rows["loss_change"] > 0]
        changes = tables["changes"][tables["changes"]["network"] == name]
        loss.semilogy(rows["step"], rows["loss"], color="black", linewidth=0.8)
        loss.semilogy(rises["step"], rises["loss"], "o", color="#D55E00", markersize=4, label="the loss rises")
        loss.set(title=f"{name}: loss", xlabel="step of descent")
        coefficient.plot(rows["step"], rows[COEFFICIENT], color="black", linewidth=0.8)
        coefficient.plot(rises["step"], rises[COEFFICIENT], "o", color="#D55E00", markersize=4)
        coefficient.axhline(0, color="grey", linewidth=0.5)
        coefficient.set(title=r"Re $sc_0$", xlabel="step of descent")
        against.loglog(changes["loss_change_up"], changes["loss_change"], "o", color="#D55E00", markersize=4)
        against.set(title="rises of the loss", xlabel="under the positive flow", ylabel="under descent")
        loss.legend()
    return figure


EXPERIMENT = Experiment(
    id="instabilities-resnet",
    title="A ResNet becomes unstable as the positive flow does",
    figure="Figures instabilities_resnet, section 5, and edge_of_stability_results_cifar_resnet, appendix D",
    paper_says=(
        "On a ResNet-18 the loss rises where the stability coefficient is large and positive, and it rises the more, "
        "the more the positive gradient flow would raise it."
    ),
    paper_setting="ResNet-18 on CIFAR-10, full batch, h = 0.03 and 0.01; Euler's steps of 5e-5.",
    profiles={profile: Config(sweep) for profile, sweep in RESNET.items()},
    run=run,
    claims=claims,
    draw=draw,
    trainings=trainings,
    stand_ins=STAND_INS_RESNET,
)
