"""A lower rate brings stability back, and λ₀ grows again (figure 35)."""

from dataclasses import dataclass

import pandas
from matplotlib.figure import Figure

from principalflow._lab import Claim, Table, Tables
from principalflow.reproduce import _edge
from principalflow.reproduce._edge import STAND_INS_SWEEP, SWEEP, all_trained, at_edge, cost_claim, costs
from principalflow.reproduce._trained import record_of, recorded

BEFORE, AFTER = "before", "after"


@dataclass(frozen=True)
class Config(_edge.Config):
    """Descent at the edge goes on at the rate over `divisor` for so many steps."""

    divisor: float = 5.0
    steps: int = 150


def run(config: Config) -> Tables:
    (run,) = all_trained(config)
    start, h = at_edge(run), run.h / config.divisor
    after = recorded(run.objective, run.theta(start), h, config.steps, record_of(run.training), keep="last").records
    parts = [_rows(run.records[run.records["step"] <= start], BEFORE, 0), _rows(after, AFTER, start)]
    return {"steps": pandas.concat(parts, ignore_index=True), "cost": costs([run, run._replace(records=after)])}


def claims(config: Config, tables: Tables) -> list[Claim]:
    before, after = (_part(tables, name) for name in (BEFORE, AFTER))
    grown = after["sharpness"].iloc[-1] / after["sharpness"].iloc[0]
    return [
        Claim.above(
            "Before the change the loss rises at some steps: how many", int((before["loss_change"] > 0).sum()), 0
        ),
        Claim.above("Right before it λ₀ is above 2/h: h λ₀", float(before["h_lambda"].iloc[-1]), 2),
        Claim.equal(
            "After it the loss rises no more: steps at which it does", int((after["loss_change"] > 0).sum()), 0
        ),
        Claim.above("λ₀ grows again: at the end over at the change", float(grown), 1),
        cost_claim(tables["cost"]),
    ]


def draw(config: Config, tables: Tables) -> Figure:
    figure = Figure(figsize=(12, 4.5), layout="constrained")
    loss, curvature = figure.subplots(1, 2)
    for name, colour in ((BEFORE, "black"), (AFTER, "#0072B2")):
        rows = _part(tables, name)
        h = rows["h"].iloc[0]
        loss.semilogy(rows["step"], rows["loss"], color=colour, label=f"h = {h:g}")
        curvature.plot(rows["step"], rows["sharpness"], color=colour)
        _edge.draw_threshold(curvature, h, colour)
    loss.set(title="loss", xlabel="step of descent", ylabel="$E$")
    highest = tables["steps"]["sharpness"].max()
    curvature.set(title="largest eigenvalue; dashed: 2/h", xlabel="step of descent", ylabel=r"$\lambda_0$")
    curvature.set_ylim(0, 1.3 * max(highest, 2 / _part(tables, BEFORE)["h"].iloc[0]))
    loss.legend()
    return figure


def _rows(records: Table, name: str, start: int) -> Table:
    return pandas.DataFrame(
        {
            "part": name,
            "step": records["step"] + start,
            "h": records["learning_rate"],
            "loss": records["loss"],
            "loss_change": records["loss_change"],
            "sharpness": records["eigenvalue_0"],
            "h_lambda": records["learning_rate"] * records["eigenvalue_0"],
        }
    )


def _part(tables: Tables, name: str) -> Table:
    return tables["steps"][tables["steps"]["part"] == name]


SETTINGS = {
    "quick": Config((SWEEP["quick"][-1],)),
    "cpu": Config((SWEEP["cpu"][-1],), steps=80),
    "paper": Config((SWEEP["paper"][-1],), steps=1000),
}
trainings = _edge.trainings
STAND_INS = STAND_INS_SWEEP
