"""Why a model of descent needs complex numbers: a real path can't pass a minimum (figure 2)."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from principalflow._lab import PROFILES, Claim, Tables
from principalflow.functions import quadratic
from principalflow.reproduce._flows import COLOURS, DESCENT, at_steps, errors, follow, points

REAL_FLOWS = ("NGF", "IGR flow")


@dataclass(frozen=True)
class Config:
    """The loss (θ - minimum)²/2, where descent starts, its rate and its steps."""

    minimum: float = 0.6
    start: float = 0.0
    h: float = 1.2
    steps: int = 4


def run(config: Config) -> Tables:
    objective = quadratic([[1.0]], [-config.minimum])  # (θ - minimum)²/2 without its constant
    return {"paths": follow(objective, [config.start], config.h, config.steps, (*REAL_FLOWS, "PF"), saves=50)}


def claims(config: Config, tables: Tables) -> list[Claim]:
    paths = tables["paths"]
    descent = at_steps(paths, DESCENT).real
    furthest = max(points(paths, name).real.max() for name in REAL_FLOWS)
    return [
        Claim.above(
            "Descent passes the minimum in its first step, and lands beyond it by", descent[1, 0] - config.minimum, 0
        ),
        Claim.at_most("The NGF and the IGR flow never pass it: the furthest they get", furthest, config.minimum),
        Claim.below("The PF meets descent at every step: its largest distance there", errors(paths, "PF").max(), 1e-8),
        Claim.above(
            "On its way the PF leaves the real line: its largest imaginary part",
            np.abs(points(paths, "PF").imag).max(),
            0.1,
        ),
    ]


def draw(config: Config, tables: Tables) -> Figure:
    paths = tables["paths"]
    figure = Figure(figsize=(12, 4.5), layout="constrained")
    left, right = figure.subplots(1, 2)
    grid = np.linspace(config.start - 0.1, 2 * config.minimum - config.start + 0.1, 200)
    left.plot(grid, _loss(config, grid), color="lightgrey", label="E(θ)")
    for lift, name in enumerate(REAL_FLOWS, 1):  # the paths lie on the curve: each is drawn a little above it
        theta = points(paths, name)[:, 0].real
        left.plot(theta, _loss(config, theta) + 0.006 * lift, color=COLOURS[name], linewidth=3, label=name)
    descent = at_steps(paths, DESCENT)[:, 0].real
    left.plot(descent, _loss(config, descent), "o--", color="black", linewidth=0.8, label=DESCENT)
    left.axvline(config.minimum, color="grey", linestyle=":")
    left.set(
        title="real flows stop at the minimum (each drawn a little above E)", xlabel=r"$\theta$", ylabel=r"$E(\theta)$"
    )
    model = points(paths, "PF")[:, 0]
    right.plot(model.real, model.imag, color=COLOURS["PF"], label="PF")
    right.plot(descent, 0 * descent, "o", color="black", label=DESCENT)
    right.axvline(config.minimum, color="grey", linestyle=":")
    right.set(title="the principal flow goes round it", xlabel=r"Re $\theta$", ylabel=r"Im $\theta$")
    for ax in (left, right):
        ax.legend()
    return figure


def explore(config: Config, tables: Tables) -> dict[str, Any]:
    """The spiral in time: real part, imaginary part and time are the three axes."""
    import plotly.graph_objects as go

    paths = tables["paths"]
    figure = go.Figure()
    for name in (*REAL_FLOWS, "PF"):
        theta, times = points(paths, name)[:, 0], paths.loc[paths["flow"] == name, "step"]
        line = {"color": COLOURS[name], "width": 5}
        figure.add_scatter3d(x=times, y=theta.real, z=theta.imag, mode="lines", name=name, line=line)
    descent = at_steps(paths, DESCENT)[:, 0]
    marker = {"color": COLOURS[DESCENT], "size": 5}
    figure.add_scatter3d(
        x=np.arange(len(descent)), y=descent.real, z=descent.imag, mode="markers", name=DESCENT, marker=marker
    )
    figure.update_layout(scene={"xaxis_title": "steps (t/h)", "yaxis_title": "Re θ", "zaxis_title": "Im θ"})
    return {"The paths through time: turn the picture to see that the principal flow is a spiral.": figure}


def _loss(config: Config, theta: np.ndarray) -> np.ndarray:
    return (theta - config.minimum) ** 2 / 2


SETTINGS = dict.fromkeys(PROFILES, Config())
