"""A cosine beside a flat valley: what descent and flows do there, as printed and as meant (figure 30)."""

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from principalflow._lab import PROFILES, Claim, Table, Tables
from principalflow.functions import cosine_valley
from principalflow.objective import Objective, Vector
from principalflow.reproduce._flows import COLOURS, DESCENT, at_steps, errors, follow, points, stack

FLOWS = ("NGF", "IGR flow", "PF")
PRINTED, MIRRORED = "as printed", "mirrored"


@dataclass(frozen=True)
class Config:
    """Starts and rates on the loss as the paper prints it, and on its mirror image, which has a valley to escape to."""

    printed_start: float = -0.5
    printed_rates: tuple[float, ...] = (0.5, 0.85)
    mirrored_start: float = 4.2
    mirrored_rate: float = 1.5
    steps: int = 16


def run(config: Config) -> Tables:
    printed = cosine_valley()
    paths = {
        (PRINTED, h): follow(printed, [config.printed_start], h, config.steps, FLOWS) for h in config.printed_rates
    }
    h = config.mirrored_rate
    paths[MIRRORED, h] = follow(mirrored_valley(), [config.mirrored_start], h, config.steps, FLOWS)
    return {"paths": stack(paths, "function", "h")}


def mirrored_valley() -> Objective:
    """Returns the loss with its two pieces on each other's side.

    The parabola then has its minimum at -3/4, in reach of a descent that comes from the cosine.
    """

    def loss(theta: Vector):
        (x,) = theta
        return jnp.where(x.real > 0, jnp.cos(x) + x, 2 * (x / 3) ** 2 + 1 + x / 3)

    return Objective(loss, jnp.array([4.2]), holomorphic=True)


def claims(config: Config, tables: Tables) -> list[Claim]:
    cases = dict(list(tables["paths"].groupby(["function", "h"])))
    found = []
    for h in config.printed_rates:
        paths = cases[PRINTED, h]
        best = min(errors(paths, name).mean() for name in ("NGF", "IGR flow"))
        found += [
            Claim.above(
                f"As printed, h = {h}: descent escapes to the valley right of zero: it ends at",
                at_steps(paths, DESCENT)[-1, 0].real,
                0,
                note="The loss as printed has no such valley: its slope is 1 − sin θ left of zero and at least 1/3 "
                "right of it, so it never falls to the right, and descent at this rate stops where flows do, at the "
                "inflection −3π/2 (erratum 11). The figure must have been drawn with another function.",
            ),
            Claim.below(
                f"As printed, h = {h}: the PF's mean error over the smaller of the NGF's and the IGR flow's",
                errors(paths, "PF").mean() / best,
                1,
            ),
        ]
    paths = cases[MIRRORED, config.mirrored_rate]
    real_flows = min(points(paths, name).real.min() for name in ("NGF", "IGR flow"))
    return [
        *found,
        Claim.below(
            f"Mirrored, h = {config.mirrored_rate}: descent leaves the cosine for the flat valley: it ends at",
            at_steps(paths, DESCENT)[-1, 0].real,
            0,
            note="Ours, to show what the paper means: with the two pieces on each other's side there is a flat valley "
            "with its minimum at −3/4, and a step that passes the cosine's inflection at π/2 needs h > 1.38.",
        ),
        Claim.above(
            "Mirrored: the NGF and the IGR flow stop before the inflection at π/2: they get to", real_flows, np.pi / 2
        ),
        Claim.above(
            "Mirrored: the PF stays on the cosine's side too, as the paper says of it: its real part gets to",
            points(paths, "PF").real.min(),
            0,
        ),
    ]


def draw(config: Config, tables: Tables) -> Figure:
    figure = Figure(figsize=(16, 4.5), layout="constrained")
    groups = list(tables["paths"].groupby(["function", "h"], sort=False))
    axes = figure.subplots(1, len(groups))
    for ax, ((case, h), paths) in zip(axes, groups, strict=True):
        _draw_paths(ax, cosine_valley() if case == PRINTED else mirrored_valley(), paths)
        ax.set(title=f"{case}, h = {h}", xlabel=r"Re $\theta$", ylabel=r"$E$ (each path a little above it)")
    axes[-1].legend()
    return figure


def _draw_paths(ax: Axes, objective: Objective, paths: Table) -> None:
    descent = at_steps(paths, DESCENT)[:, 0].real
    low, high = descent.min() - 1, descent.max() + 1
    grid = np.linspace(low, high, 300)
    ax.plot(grid, _losses(objective, grid), color="lightgrey", linewidth=4)
    for lift, name in enumerate(FLOWS, 1):  # the paths lie on the curve: each is drawn a little above it
        theta = points(paths, name)[:, 0].real
        ax.plot(theta, _losses(objective, theta) + 0.12 * lift, color=COLOURS[name], linewidth=2, label=name)
    ax.plot(descent, _losses(objective, descent), "o--", color="black", linewidth=0.8, markersize=4, label=DESCENT)


def _losses(objective: Objective, theta: np.ndarray) -> np.ndarray:
    return np.array([float(objective.value([x])) for x in theta])


SETTINGS = dict.fromkeys(PROFILES, Config())
