"""A valley of two parameters: the principal flow is descent itself (figure 5)."""

from dataclasses import dataclass

from matplotlib.figure import Figure

from principalflow import plot
from principalflow._lab import PROFILES, Claim, Tables
from principalflow.functions import quadratic
from principalflow.objective import Objective
from principalflow.reproduce._flows import COLOURS, DESCENT, at_steps, errors, follow, points, stack

FLOWS = ("NGF", "IGR flow", "PF")


@dataclass(frozen=True)
class Config:
    """The loss θᵀAθ for a diagonal A, so that the Hessian is 2A (erratum 8), and the rates."""

    diagonal: tuple[float, float] = (1.0, 0.01)
    rates: tuple[float, ...] = (0.5, 0.9, 1.05)
    start: tuple[float, float] = (1.0, 1.0)
    steps: int = 10


def valley(diagonal: tuple[float, float]) -> Objective:
    """Returns θᵀAθ as an objective."""
    a, b = diagonal
    return quadratic([[2 * a, 0.0], [0.0, 2 * b]])


def run(config: Config) -> Tables:
    objective = valley(config.diagonal)
    paths = {h: follow(objective, config.start, h, config.steps, FLOWS) for h in config.rates}
    return {"paths": stack(paths, "h")}


def claims(config: Config, tables: Tables) -> list[Claim]:
    found = []
    for h, paths in tables["paths"].groupby("h"):
        h_lambda = 2 * h * max(config.diagonal)
        closest = min(errors(paths, name).max() for name in ("NGF", "IGR flow"))
        found += [
            Claim.below(
                f"At h λ₀ = {h_lambda:g} the PF is descent at every step: its largest distance",
                errors(paths, "PF").max(),
                1e-8,
            ),
            Claim.above("There the NGF and the IGR flow are not: the smaller of their largest distances", closest, 0.1),
        ]
    return found


def draw(config: Config, tables: Tables) -> Figure:
    figure = Figure(figsize=(15, 4.5), layout="constrained")
    for ax, (h, paths) in zip(figure.subplots(1, len(config.rates)), tables["paths"].groupby("h"), strict=True):
        curves = {name: points(paths, name) for name in FLOWS}
        plot.trajectories(valley(config.diagonal), curves, at_steps(paths, DESCENT).real, ax=ax, colours=COLOURS)
        ax.set_title(rf"$h$ = {h}, $h\lambda_0$ = {2 * h * max(config.diagonal):g}")
    return figure


SETTINGS = dict.fromkeys(PROFILES, Config())
