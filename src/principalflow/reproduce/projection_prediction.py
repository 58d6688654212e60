"""How well flows predict the gradient along the sharpest direction, one step ahead (figure prediction_grad_u)."""

import numpy as np
from matplotlib.figure import Figure

from principalflow.reproduce._edge import (
    STAND_INS_SWEEP,
    SWEEP,
    Config,
    all_trained,
    cost_claim,
    costs,
    steps_of,
    trainings,
)
from principalflow.reproduce._experiment import Claim, Experiment, Table, Tables
from principalflow.reproduce._flows import COLOURS, stack

FLOWS = {"NGF": "next_projection_0_ngf", "IGR flow": "next_projection_0_igr", "PF": "next_projection_0_pf"}
MEASURED = "next_projection_0"


def run(config: Config) -> Tables:
    runs = all_trained(config)
    steps = {run.label: steps_of(run, "projection_0", MEASURED, *FLOWS.values()) for run in runs}
    return {"steps": stack(steps, "network"), "cost": costs(runs)}


def claims(config: Config, tables: Tables) -> list[Claim]:
    found = []
    for name, rows in tables["steps"].groupby("network", sort=False):
        errors, ranks = _errors(rows), _correlations(rows)
        best = min(("NGF", "IGR flow"), key=lambda flow: errors[flow])
        found += [
            Claim(
                f"{name}: the PF's median relative error over that of the better of the NGF and the IGR flow",
                errors["PF"] / errors[best],
                "<",
                1,
                note=f"The medians: {_listed(errors)}.",
            ),
            Claim(
                f"{name}: the PF's rank correlation with what is measured, less the better one of the other two",
                ranks["PF"] - max(ranks["NGF"], ranks["IGR flow"]),
                ">",
                0,
                note=f"The correlations: {_listed(ranks)}. A step past the valley's floor turns the sign of ∇Eᵀu₀ "
                "where h λ₀ > 1; the real flows keep it.",
            ),
        ]
    return [*found, cost_claim(tables["cost"])]


def draw(config: Config, tables: Tables) -> Figure:
    groups = list(tables["steps"].groupby("network", sort=False))
    figure = Figure(figsize=(5 * len(groups), 4.5), layout="constrained")
    axes = figure.subplots(1, len(groups), squeeze=False)[0]
    for ax, (name, rows) in zip(axes, groups, strict=True):
        for flow, column in FLOWS.items():
            ax.plot(rows[MEASURED], rows[column], "o", color=COLOURS[flow], markersize=3, alpha=0.6, label=flow)
        ends = [rows[MEASURED].min(), rows[MEASURED].max()]
        ax.plot(ends, ends, color="black", linewidth=0.8, label="exact match")
        reach = 1.2 * np.abs(ends).max()
        ax.set(title=name, xlabel=r"$\nabla E^T u_0$, measured", ylabel="predicted", ylim=(-reach, reach))
    axes[0].legend()
    return figure


def _errors(rows: Table) -> dict[str, float]:
    """Median over steps of the distance from what is measured, over its size before the step.

    The size after the step would make much of steps that end on the valley's floor.
    """
    return {
        flow: float(((rows[column] - rows[MEASURED]).abs() / rows["projection_0"]).median())
        for flow, column in FLOWS.items()
    }


def _correlations(rows: Table) -> dict[str, float]:
    return {flow: float(rows[column].corr(rows[MEASURED], method="spearman")) for flow, column in FLOWS.items()}


def _listed(numbers: dict[str, float]) -> str:
    return ", ".join(f"{name} {number:.3f}" for name, number in numbers.items())


EXPERIMENT = Experiment(
    id="projection-prediction",
    title="The principal flow predicts the gradient along the sharpest direction",
    figure="Figure prediction_grad_u, section 4.1",
    paper_says=(
        "With λ₀ and u₀ taken to stay as they are for one step, each flow predicts ∇Eᵀu₀ after it. The PF's prediction "
        "is much better than those of the NGF and the IGR flow, which shrink to nothing where λ₀ is large. It is worse "
        "where ∇Eᵀu₀ is large, at large rates: there λ₀ and u₀ do change."
    ),
    paper_setting="VGG on CIFAR-10, full batch, h = 0.01, 0.03 and 0.05.",
    profiles={profile: Config(sweep) for profile, sweep in SWEEP.items()},
    run=run,
    claims=claims,
    draw=draw,
    trainings=trainings,
    stand_ins=STAND_INS_SWEEP,
)
