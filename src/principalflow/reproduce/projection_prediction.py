"""How well flows predict the gradient along the sharpest direction, one step ahead (figure 8)."""

import numpy as np
from matplotlib.figure import Figure

from principalflow._lab import Claim, Table, Tables
from principalflow.reproduce import _edge
from principalflow.reproduce._flows import COLOURS, stack

FLOWS = {"NGF": "next_projection_0_ngf", "IGR flow": "next_projection_0_igr", "PF": "next_projection_0_pf"}
MEASURED = "next_projection_0"


def run(config: _edge.Config) -> Tables:
    runs = _edge.all_trained(config)
    steps = {run.label: _edge.steps_of(run, "projection_0", MEASURED, *FLOWS.values()) for run in runs}
    return {"steps": stack(steps, "network"), "cost": _edge.costs(runs)}


def claims(config: _edge.Config, tables: Tables) -> list[Claim]:
    found = []
    for name, rows in tables["steps"].groupby("network", sort=False):
        errors, ranks = _errors(rows), _correlations(rows)
        best = min(("NGF", "IGR flow"), key=lambda flow: errors[flow])
        found += [
            Claim.below(
                f"{name}: the PF's median relative error over that of the better of the NGF and the IGR flow",
                errors["PF"] / errors[best],
                1,
                note=f"The medians: {_listed(errors)}.",
            ),
            Claim.above(
                f"{name}: the PF's rank correlation with what is measured, less the better one of the other two",
                ranks["PF"] - max(ranks["NGF"], ranks["IGR flow"]),
                0,
                note=f"The correlations: {_listed(ranks)}. A step past the valley's floor turns the sign of ∇Eᵀu₀ "
                "where h λ₀ > 1; the real flows keep it.",
            ),
        ]
    return [*found, _edge.cost_claim(tables["cost"])]


def draw(config: _edge.Config, tables: Tables) -> Figure:
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


SETTINGS = {profile: _edge.Config(sweep) for profile, sweep in _edge.SWEEP.items()}
trainings = _edge.trainings
STAND_INS = _edge.STAND_INS_SWEEP
