"""One unstable direction is enough (figures 14, 36)."""

from dataclasses import dataclass

import numpy as np
import pandas
from matplotlib.figure import Figure

from principalflow._lab import Claim, Table, Tables
from principalflow.flows import FlippedDirection, NegativeGradient, integrate
from principalflow.reproduce import _edge
from principalflow.reproduce._flows import COLOURS
from principalflow.reproduce._trained import rate
from principalflow.spectrum import sharpness

FLIPPED, NGF = "one direction turned", "NGF"
_COLOURS = {FLIPPED: "#D55E00", NGF: COLOURS["NGF"]}


@dataclass(frozen=True)
class Config(_edge.Config):
    """How long the flows are followed, in steps of descent, and how often they are looked at in a step.

    `tolerance` is the adaptive solver's, relative to descent's step, and `max_steps` what it may take. Where it
    gets stuck, as the turned direction jumps where λ₀ meets λ₁, so many of Euler's steps are taken between two looks.
    """

    time: int = 4
    looks: int = 4
    tolerance: float = 1e-2
    max_steps: int = 50
    euler_steps: int = 10


def run(config: Config) -> Tables:
    (run,) = _edge.all_trained(config)
    start = _edge.at_edge(run)
    theta, h = run.theta(start), run.h
    length = h * run.records["gradient_norm"][start]
    times = h * np.linspace(0, config.time, config.time * config.looks + 1)
    parts, cost, by_paper = [], 0.0, 0.0
    for name, flow in ((NGF, NegativeGradient()), (FLIPPED, FlippedDirection(rtol=config.tolerance))):
        solution = integrate(
            flow,
            run.objective,
            theta,
            times[-1],
            rtol=config.tolerance,
            atol=config.tolerance * length / np.sqrt(theta.size),
            step=h / (config.looks * config.euler_steps),
            saves=times,
            max_steps=config.max_steps,
        )
        cost += solution.cost
        by_paper += float(solution.times[-1]) / _edge.EULER_STEP * solution.cost / solution.evaluations
        parts.append(
            pandas.DataFrame(
                {
                    "flow": name,
                    "solver": solution.solver,
                    "step": solution.times / h,
                    "loss": [float(run.objective.value(theta)) for theta in solution.thetas],
                    "sharpness": sharpness(run.objective, solution.thetas),
                }
            )
        )
    before = run.records[["step", "loss"]].assign(sharpness=run.records["eigenvalue_0"])
    return {
        "before": before[before["step"] <= start],
        "flows": pandas.concat(parts, ignore_index=True),
        "cost": _edge.costs([run], cost, by_paper),
    }


def claims(config: Config, tables: Tables) -> list[Claim]:
    flipped, ngf = (_of(tables, name) for name in (FLIPPED, NGF))
    start = float(ngf["loss"].iloc[0])
    change = flipped["sharpness"].iloc[-1] / flipped["sharpness"].iloc[0] - 1
    return [
        Claim.above(
            "With one direction turned the loss rises: its largest value over the one at the start",
            float(flipped["loss"].max()) / start,
            2,
            note=f"It was followed for {flipped['step'].iloc[-1]:.3g} of {config.time} steps; the solver was "
            f"{flipped['solver'].iloc[0]}.",
        ),
        Claim.below(
            "From the same point the NGF lowers it: its last value over the one at the start",
            float(ngf["loss"].iloc[-1]) / start,
            1,
        ),
        Claim.above(
            "With one direction turned λ₀ changes: the size of its relative change",
            abs(float(change)),
            0.1,
            note=f"From {flipped['sharpness'].iloc[0]:.3g} to {flipped['sharpness'].iloc[-1]:.3g}.",
        ),
        Claim.above(
            "Along the NGF λ₀ grows: at the end over at the start",
            float(ngf["sharpness"].iloc[-1] / ngf["sharpness"].iloc[0]),
            1,
        ),
        _edge.cost_claim(
            tables["cost"],
            f"The paper takes Euler's steps of {_edge.EULER_STEP:g}; each is counted with as many products as ours.",
        ),
    ]


def draw(config: Config, tables: Tables) -> Figure:
    figure = Figure(figsize=(12, 4.5), layout="constrained")
    loss, curvature = figure.subplots(1, 2)
    before = tables["before"].tail(10 * config.time)
    start = before["step"].iloc[-1]
    for ax, column in ((loss, "loss"), (curvature, "sharpness")):
        ax.plot(before["step"], before[column], color="black", linewidth=0.8, label="gradient descent")
        for name, colour in _COLOURS.items():
            rows = _of(tables, name)
            ax.plot(start + rows["step"], rows[column], color=colour, label=name)
        ax.axvline(start, color="grey", linewidth=0.5)
        ax.set_xlabel("time in steps of descent")
    loss.set(title="loss", yscale="log", ylabel="$E$")
    curvature.set(title="largest eigenvalue; dashed: 2/h", ylabel=r"$\lambda_0$")
    _edge.draw_threshold(curvature, rate(*_edge.networks(config)))
    loss.legend()
    return figure


def _of(tables: Tables, name: str) -> Table:
    return tables["flows"][tables["flows"]["flow"] == name]


SETTINGS = {profile: Config((training,)) for profile, training in _edge.MLP.items()}
trainings = _edge.trainings
STAND_INS = {profile: f"{_edge.STAND_INS_MLP.get(profile, '')} The VGG is left out.".strip() for profile in _edge.MLP}
