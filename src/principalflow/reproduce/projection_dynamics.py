"""The gradient along u₀ shrinks below 2/h and grows above it (figure 15)."""

import numpy as np
from matplotlib.figure import Figure

from principalflow._lab import Claim, Table, Tables
from principalflow.reproduce import _edge
from principalflow.reproduce._flows import COLOURS, stack

NEAR = 0.1  # of h λ₀ to 2


def run(config: _edge.Config) -> Tables:
    runs = _edge.all_trained(config)
    columns = "projection_0", "next_projection_0", "next_projection_0_pf"
    return {
        "steps": stack({run.label: _edge.steps_of(run, *columns) for run in runs}, "network"),
        "cost": _edge.costs(runs),
    }


def claims(config: _edge.Config, tables: Tables) -> list[Claim]:
    rows = _grown(tables)
    below, above = rows[rows["h_lambda"] < 2], rows[rows["h_lambda"] > 2]
    near = rows[(rows["h_lambda"] - 2).abs() < NEAR]
    return [
        Claim.at_least(
            f"Below 2/h the size of ∇Eᵀu₀ shrinks: share of the {len(below)} steps",
            _edge.share(below["growth"] < 1),
            0.9,
        ),
        Claim.at_least(
            f"Above 2/h it grows: share of the {len(above)} steps",
            _edge.share(above["growth"] > 1),
            0.9,
            note="By the PF it grows by |1 − hλ₀|, which is next to 1 near the edge. Further up λ₀ and u₀ change "
            f"within the step: there (hλ₀ > 2.5) the median error is {_error_above(rows, 2.5):.2g} of its size before.",
        ),
        Claim.below(
            f"Near 2/h (|hλ₀ − 2| < {NEAR}) the PF predicts it closely: the median error over the size before the step",
            float(near["error"].median()),
            0.1,
            note=f"Over the {len(near)} steps there; over all others it is "
            f"{rows.drop(near.index)['error'].median():.3g}.",
        ),
        Claim.at_least(
            "Above 2/h ∇Eᵀu₀ turns its sign in a step: share of the steps",
            _edge.share(above["next_projection_0"] < 0),
            0.9,
            note="It is taken as positive before the step.",
        ),
        _edge.cost_claim(tables["cost"]),
    ]


def draw(config: _edge.Config, tables: Tables) -> Figure:
    figure = Figure(figsize=(15, 4.5), layout="constrained")
    predicted, measured, error = figure.subplots(1, 3)
    rows = _grown(tables)
    grid = np.linspace(0, max(2.5, rows["h_lambda"].max()), 200)
    predicted.plot(grid, np.abs(1 - grid), color=COLOURS["PF"], label=r"PF: $|1 - h\lambda_0|$")
    predicted.plot(rows["h_lambda"], rows["growth"], "o", color="black", markersize=2, alpha=0.4, label="measured")
    predicted.axhline(1, color="grey", linewidth=0.5)
    predicted.set(title=r"growth of $|\nabla E^T u_0|$ in one step", ylim=(0, 3), ylabel="factor")
    predicted.legend()
    _, last = list(rows.groupby("network", sort=False))[-1]
    measured.plot(last["step"], last["projection_0"], color="black", linewidth=0.8)
    above = [(step - 0.5, 1) for step in last["step"][last["h_lambda"] > 2]]
    measured.broken_barh(above, (0, 1), transform=measured.get_xaxis_transform(), color="gold", alpha=0.4, linewidth=0)
    measured.set(title=r"$|\nabla E^T u_0|$; shaded: $\lambda_0 > 2/h$", xlabel="step of descent")
    error.semilogy(rows["h_lambda"], rows["error"], "o", color=COLOURS["PF"], markersize=3, alpha=0.5)
    error.set(title="error of the PF's prediction", ylabel=r"over $|\nabla E^T u_0|$ before the step")
    for ax in (predicted, error):
        ax.axvline(2, color="grey", linestyle="--", linewidth=0.8)
        ax.set_xlabel(r"$h\lambda_0$")
    return figure


def _error_above(rows: Table, h_lambda: float) -> float:
    return float(rows.loc[rows["h_lambda"] > h_lambda, "error"].median())


def _grown(tables: Tables) -> Table:
    rows = tables["steps"]
    return rows.assign(
        growth=rows["next_projection_0"].abs() / rows["projection_0"],
        error=(rows["next_projection_0"] - rows["next_projection_0_pf"]).abs() / rows["projection_0"],
    )


SETTINGS = {
    "quick": _edge.Config((_edge.SWEEP["quick"][1],)),
    "cpu": _edge.Config((_edge.SWEEP["cpu"][1],)),
    "paper": _edge.Config((_edge.SWEEP["paper"][0],)),
}
trainings = _edge.trainings
STAND_INS = _edge.STAND_INS_SWEEP
