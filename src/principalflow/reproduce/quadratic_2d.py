"""A valley of two parameters: the principal flow is descent itself (figure intuition_quadratic_2d)."""

from dataclasses import dataclass

from matplotlib.figure import Figure

from principalflow import plot
from principalflow.functions import quadratic
from principalflow.objective import Objective
from principalflow.reproduce._experiment import PROFILES, Claim, Experiment, Tables
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
            Claim(
                f"At h λ₀ = {h_lambda:g} the PF is descent at every step: its largest distance",
                errors(paths, "PF").max(),
                "<",
                1e-8,
            ),
            Claim("There the NGF and the IGR flow are not: the smaller of their largest distances", closest, ">", 0.1),
        ]
    return found


def draw(config: Config, tables: Tables) -> Figure:
    figure = Figure(figsize=(15, 4.5), layout="constrained")
    for ax, (h, paths) in zip(figure.subplots(1, len(config.rates)), tables["paths"].groupby("h"), strict=True):
        curves = {name: points(paths, name) for name in FLOWS}
        plot.trajectories(valley(config.diagonal), curves, at_steps(paths, DESCENT).real, ax, COLOURS)
        ax.set_title(rf"$h$ = {h}, $h\lambda_0$ = {2 * h * max(config.diagonal):g}")
    return figure


EXPERIMENT = Experiment(
    id="quadratic-2d",
    title="On quadratics the principal flow is descent",
    figure="Figure intuition_quadratic_2d, section 3.1",
    paper_says=(
        "On quadratic losses the principal flow describes descent exactly, whether it converges, oscillates or "
        "diverges; the NGF and the IGR flow slide down one side of the valley in all three cases."
    ),
    paper_setting="E = θᵀAθ with A = diag(1, 0.01), h = 0.5, 0.9 and 1.05; the start is not given.",
    profiles=dict.fromkeys(PROFILES, Config()),
    run=run,
    claims=claims,
    draw=draw,
)
