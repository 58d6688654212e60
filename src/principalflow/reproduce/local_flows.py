"""Descent goes with the flow down the gradient while it is stable, and with the flow up where it is not.

Figures edge_of_stability_results_local and edge_of_stability_results_lambda.
"""

from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from principalflow._lab import Claim, Table, Tables
from principalflow.reproduce import _edge
from principalflow.reproduce._edge import MLP, STAND_INS_BOTH, SWEEP, all_trained, cost_claim, costs
from principalflow.reproduce._flows import COLOURS, DESCENT, stack
from principalflow.reproduce._local import DOWN, UP, agreement, local_flows

QUANTITIES = {"loss_change": "the loss", "sharpness_change": "λ₀"}
_STYLES = {"": (DESCENT, COLOURS[DESCENT]), DOWN: ("NGF", COLOURS["NGF"]), UP: ("positive flow", "#D55E00")}


@dataclass(frozen=True)
class Config(_edge.Config):
    """Flows start at consecutive steps: so many around the first rise of the loss, and half as many from the start.

    They start at the first so many `rises` as well, and are followed for `time`, in steps of descent.
    """

    window: int = 30
    rises: int = 0
    time: float = 1.0


def run(config: Config) -> Tables:
    tables, cost, by_paper, runs = {}, 0.0, 0.0, all_trained(config)
    for run in runs:
        found = local_flows(run, _steps(config, run.records), config.time)
        tables[run.label] = found.changes.assign(h=run.h)
        cost, by_paper = cost + found.cost, by_paper + found.cost_by_paper
    return {"changes": stack(tables, "network"), "cost": costs(runs, cost, by_paper)}


def claims(config: Config, tables: Tables) -> list[Claim]:
    changes = tables["changes"]
    stable, unstable = changes[changes["coefficient"] <= 0], changes[changes["predicted"] > 0]
    found = []
    for quantity, words in QUANTITIES.items():
        found += [
            Claim.at_least(
                f"Where Re sc₀ ≤ 0 ({len(stable)} steps) descent changes {words} in the direction of the NGF: share of "
                "the steps",
                agreement(stable, quantity, DOWN),
                0.9,
            ),
            Claim.at_least(
                f"Where Re sc₀ is large ({len(unstable)} steps) it changes {words} in the direction of the positive "
                "flow: share of the steps",
                agreement(unstable, quantity, UP),
                0.9,
                note="Large is taken to mean that it outweighs the other directions: by the PF the loss should rise. "
                f"With the NGF descent agrees in {agreement(unstable, quantity, DOWN):.2f} of them. The medians of the "
                f"change: {_medians(unstable, quantity)}.",
            ),
        ]
    return [*found, cost_claim(tables["cost"], f"The paper follows flows by Euler's steps of {_edge.EULER_STEP:g}.")]


def draw(config: Config, tables: Tables) -> Figure:
    groups = list(tables["changes"].groupby("network", sort=False))
    figure = Figure(figsize=(15, 4 * len(groups)), layout="constrained")
    for (loss, sharpness, coefficient), (name, rows) in zip(
        figure.subplots(len(groups), 3, squeeze=False), groups, strict=True
    ):
        _draw(loss, rows, "loss", "loss_change")
        _draw(sharpness, rows, "sharpness", "sharpness_change")
        _edge.draw_threshold(sharpness, rows["h"].iloc[0])
        _plot(coefficient, rows, rows["coefficient"], "black")
        coefficient.axhline(0, color="grey", linewidth=0.5)
        loss.set(title=f"{name}\nloss after a step or a flow{_time(config)}", yscale="log")
        sharpness.set_title(r"$\lambda_0$ after it; dashed: 2/h")
        coefficient.set_title(r"Re $sc_0$")
        places = range(0, len(rows), max(len(rows) // 8, 1))
        for ax in (loss, sharpness, coefficient):
            ax.set_xticks(places, [str(rows["step"].iloc[place]) for place in places])
            ax.set_xlabel("step of descent (the places are not to scale)")
        loss.legend()
    return figure


def _time(config: Config) -> str:
    return "" if config.time == 1 else f" for {config.time:g} of its time"


def _medians(changes: Table, quantity: str) -> str:
    middle = {name: changes[f"{quantity}_{flow}" if flow else quantity].median() for flow, (name, _) in _STYLES.items()}
    return ", ".join(f"{name} {value:.3g}" for name, value in middle.items())


def _steps(config: Config, records: Table) -> list[int]:
    """The first steps, a window that begins a little before the loss rises at the edge, and further such rises."""
    last = int(records["step"].max())
    edge = records["eigenvalue_0"] * records["learning_rate"] > 2
    rises = records.loc[edge & (records["loss_change"] > 0), "step"]
    begin = int(rises.iloc[0]) - config.window // 4 if len(rises) else last - config.window
    windows = np.union1d(np.arange(config.window // 2), np.arange(begin, begin + config.window))
    return [int(step) for step in np.union1d(windows, rises.head(config.rises)) if 0 <= step < last]


def _draw(ax: Axes, rows: Table, quantity: str, change: str) -> None:
    for flow, (name, colour) in _STYLES.items():
        column = f"{change}_{flow}" if flow else change
        _plot(ax, rows, rows[quantity] + rows[column], colour, name)


def _plot(ax: Axes, rows: Table, values: Table, colour: str, name: str | None = None) -> None:
    """Plots values at equal distances, with a gap in the line where steps are left out."""
    gaps = np.flatnonzero(np.diff(rows["step"]) > 1) + 1
    places, values = (np.insert(np.array(each, float), gaps, np.nan) for each in (range(len(rows)), values))
    ax.plot(places, values, "o-", color=colour, markersize=3, linewidth=0.8, label=name)


SETTINGS = {
    "quick": Config((MLP["quick"], SWEEP["quick"][-1])),
    "cpu": Config((MLP["cpu"], SWEEP["cpu"][-1]), window=12, time=0.25),
    "paper": Config((MLP["paper"], SWEEP["paper"][0])),
}
trainings = _edge.trainings
STAND_INS = STAND_INS_BOTH
