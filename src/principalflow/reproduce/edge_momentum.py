"""Momentum and Nesterov's method have edges of their own (beyond the paper; Cohen et al. 2021, appendix)."""

from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from matplotlib.figure import Figure

from principalflow._lab import Claim, Tables
from principalflow.descent import descend
from principalflow.record import Record
from principalflow.reproduce._edge import SQUARE
from principalflow.reproduce._flows import stack
from principalflow.reproduce._trained import rate as rate_of
from principalflow.reproduce._trained import recorded
from principalflow.training import Options
from principalflow.training import objective as objective_of

HEAVY_BALL, NESTEROV = "momentum", "Nesterov"


@dataclass(frozen=True)
class Config:
    """A few steps of descent on `network`, then each method from there, at the rate that puts its edge at `edge`.

    The loss and λ₀ are recorded once in `every` steps.
    """

    network: Options
    edge: float
    momenta: tuple[float, ...] = (0.5, 0.9)
    steps: int = 1600
    every: int = 8
    seed: int = 0


def rate(method: str, momentum: float, edge: float) -> float:
    """Returns the rate at which the method becomes unstable on a quadratic of this curvature (Cohen et al. 2021)."""
    return (2 + 2 * momentum) / (edge if method == HEAVY_BALL else (1 + 2 * momentum) * edge)


def run(config: Config) -> Tables:
    training = replace(config.network, seed=config.seed)
    objective = objective_of(training)
    start = descend(objective, objective.theta, rate_of(training), training.steps, keep="last").thetas[0]
    tables = {}
    for method, momentum in product((HEAVY_BALL, NESTEROV), config.momenta):
        h = rate(method, momentum, config.edge)
        how = dict(momentum=momentum, nesterov=method == NESTEROV, keep="last")
        record = Record(every=config.every, k=1, tol=1e-2)
        rows = recorded(objective, start, h, config.steps, record, **how).records
        tables[f"{method} {momentum:g}"] = rows[["step", "loss"]].assign(sharpness=rows["eigenvalue_0"], h=h)
    return {"steps": stack(tables, "method")}


def claims(config: Config, tables: Tables) -> list[Claim]:
    found = []
    for method, rows in tables["steps"].groupby("method", sort=False):
        relative = rows["sharpness"] / config.edge
        second_half = relative.iloc[len(relative) // 2 :]
        found += [
            Claim.at_least(
                f"{method}: λ₀ rises from below to the method's own edge: the largest λ₀ over it",
                float(relative.max()) if relative.iloc[0] < 1 else np.nan,
                1,
                note=f"At the start it is {relative.iloc[0]:.3f}.",
            ),
            Claim.at_most(
                f"{method}: there it stays: how far the mean of λ₀ over the edge, over the second half, is from 1",
                abs(float(second_half.mean()) - 1),
                0.15,
                note=f"The mean is {second_half.mean():.3f}. Without momentum the edge at this rate would be at "
                f"{2 / rows['h'].iloc[0]:.3g}, not at {config.edge:g}.",
            ),
        ]
    return found


def draw(config: Config, tables: Tables) -> Figure:
    figure = Figure(figsize=(12, 4.5), layout="constrained")
    loss, curvature = figure.subplots(1, 2)
    for number, (method, rows) in enumerate(tables["steps"].groupby("method", sort=False)):
        colour = f"C{number}"
        loss.semilogy(rows["step"], rows["loss"], color=colour, label=f"{method}, h = {rows['h'].iloc[0]:.3g}")
        curvature.plot(rows["step"], rows["sharpness"], color=colour, linewidth=0.8)
    curvature.axhline(config.edge, color="black", linestyle="--", linewidth=0.8)
    loss.set(title="loss", xlabel="step", ylabel="$E$")
    curvature.set(title="largest eigenvalue; dashed: the edge of each method", xlabel="step", ylabel=r"$\lambda_0$")
    loss.legend()
    return figure


SETTINGS = {
    "quick": Config(replace(SQUARE["quick"], learning_rate=0.05, steps=60), edge=30.0),
    "cpu": Config(replace(SQUARE["cpu"], steps=100), edge=100.0),
    "paper": Config(replace(SQUARE["paper"], learning_rate=0.03, steps=200), edge=40.0, steps=3000),
}
