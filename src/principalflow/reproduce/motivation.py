"""Descent crosses a valley at every step; flows that stay real do not (figure 1)."""

from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from principalflow import plot
from principalflow._lab import PROFILES, Claim, Table, Tables
from principalflow.functions import banana
from principalflow.objective import Objective
from principalflow.reproduce._flows import COLOURS, DESCENT, at_steps, follow, points, stack
from principalflow.reproduce.quadratic_2d import valley

FLOWS = ("NGF", "IGR flow")
QUADRATIC, BANANA = "quadratic", "banana"


@dataclass(frozen=True)
class Config:
    """The two valleys, where descent starts in them, and its rates; the paper gives those of the quadratic only."""

    diagonal: tuple[float, float] = (1.0, 0.01)
    quadratic_start: tuple[float, float] = (1.0, 1.0)
    quadratic_h: float = 0.9
    banana_start: tuple[float, float] = (1.3, 1.5)
    banana_h: float = 0.0012
    steps: int = 10


def run(config: Config) -> Tables:
    paths = {
        QUADRATIC: follow(valley(config.diagonal), config.quadratic_start, config.quadratic_h, config.steps, FLOWS),
        BANANA: follow(banana(), config.banana_start, config.banana_h, config.steps, FLOWS),
    }
    return {"paths": stack(paths, "loss_function")}


def claims(config: Config, tables: Tables) -> list[Claim]:
    crossings = {
        (case, name): _crossings(case, points(paths, name).real)
        for case, paths in tables["paths"].groupby("loss_function")
        for name in (DESCENT, *FLOWS)
    }
    most = {case: max(crossings[case, name] for name in FLOWS) for case in (QUADRATIC, BANANA)}
    return [
        Claim.equal(
            "Descent crosses the floor of the quadratic valley at every step: crossings per step",
            crossings[QUADRATIC, DESCENT] / config.steps,
            1,
        ),
        Claim.equal("The NGF and the IGR flow never cross it: crossings", most[QUADRATIC], 0),
        Claim.equal(
            "Descent crosses the floor of the banana's valley at every step: crossings per step",
            crossings[BANANA, DESCENT] / config.steps,
            1,
        ),
        Claim.at_most(
            "The NGF and the IGR flow cross it at most once: crossings",
            most[BANANA],
            1,
            note="In a curved valley a flow runs beside the floor y = x², on the outer side of the bend. Coming from "
            "the inner side it crosses the floor once; it never oscillates.",
        ),
    ]


def draw(config: Config, tables: Tables) -> Figure:
    figure = Figure(figsize=(15, 4.5), layout="constrained")
    drift, left, right = figure.subplots(1, 3)
    paths = dict(list(tables["paths"].groupby("loss_function")))
    _draw_drift(drift, paths[QUADRATIC])
    for ax, case, objective in ((left, QUADRATIC, valley(config.diagonal)), (right, BANANA, banana())):
        _draw_paths(ax, objective, paths[case])
    left.set_title(rf"quadratic, $h$ = {config.quadratic_h}")
    right.set_title(rf"banana function, $h$ = {config.banana_h}")
    return figure


def _crossings(case: str, theta: np.ndarray) -> int:
    height = theta[:, 0] if case == QUADRATIC else theta[:, 1] - theta[:, 0] ** 2
    side = np.sign(height[np.abs(height) > 1e-8])  # nearer than that a flow has arrived
    return int(np.sum(side[1:] != side[:-1]))


def _draw_drift(ax: Axes, paths: Table) -> None:
    """Draws what discretisation drift is: the gap after one step."""
    step, flow = at_steps(paths, DESCENT)[:2].real, points(paths[paths["step"] < 1 + 1e-6], "NGF").real
    ax.plot(*flow.T, color=COLOURS["NGF"], label="NGF for the time h")
    ax.plot(*step.T, "o--", color="black", label="one step of descent")
    ax.annotate("", flow[-1], step[-1], arrowprops={"arrowstyle": "<->", "color": "grey"})
    ax.annotate("drift", (flow[-1] + step[-1]) / 2, xytext=(0, 6), textcoords="offset points", color="grey")
    ax.set(title="what drift is", xlabel=r"$\theta_0$", ylabel=r"$\theta_1$")
    ax.legend()


def _draw_paths(ax: Axes, objective: Objective, paths: Table) -> None:
    plot.trajectories(
        objective, {name: points(paths, name) for name in FLOWS}, at_steps(paths, DESCENT).real, ax=ax, colours=COLOURS
    )


SETTINGS = dict.fromkeys(PROFILES, Config())
