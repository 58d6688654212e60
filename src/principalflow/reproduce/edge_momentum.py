"""Momentum and Nesterov's method have edges of their own (beyond the paper; Cohen et al. 2021, appendix)."""

import dataclasses
from dataclasses import dataclass

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pandas
from jax import lax
from matplotlib.figure import Figure

from principalflow.objective import Objective, Vector
from principalflow.reproduce._edge import SQUARE, STAND_INS_SQUARE
from principalflow.reproduce._experiment import Claim, Experiment, Table, Tables
from principalflow.reproduce._flows import stack
from principalflow.reproduce._networks import sharpness
from principalflow.reproduce._trained import Training

HEAVY_BALL, NESTEROV = "momentum", "Nesterov"


@dataclass(frozen=True)
class Config:
    """The network and its rate, which is divided by 1 + momentum for both methods, and how often λ₀ is measured."""

    network: Training
    momentum: float = 0.9
    rates: tuple[float, float] = (0.02, 0.01)
    steps: int = 800
    every: int = 8
    seed: int = 0


def threshold(method: str, h: float, momentum: float) -> float:
    """Returns the curvature at which the method becomes unstable on a quadratic (Cohen et al. 2021, eq. 1)."""
    return (2 + 2 * momentum) / h if method == HEAVY_BALL else (2 + 2 * momentum) / ((1 + 2 * momentum) * h)


def run(config: Config) -> Tables:
    objective = dataclasses.replace(config.network, seed=config.seed).objective()
    tables = {}
    for method, h in zip((HEAVY_BALL, NESTEROV), config.rates, strict=True):
        tables[method] = _trained(objective, method, h, config).assign(
            h=h, threshold=threshold(method, h, config.momentum)
        )
    return {"steps": stack(tables, "method")}


def claims(config: Config, tables: Tables) -> list[Claim]:
    found = []
    for method, rows in tables["steps"].groupby("method", sort=False):
        relative = rows["sharpness"] / rows["threshold"]
        second_half = relative.iloc[len(relative) // 2 :]
        found += [
            Claim(
                f"{method}: λ₀ rises to the method's own edge: the largest λ₀ over it", float(relative.max()), ">=", 1
            ),
            Claim(
                f"{method}: there it stays: how far the mean of λ₀ over the edge, over the second half, is from 1",
                abs(float(second_half.mean()) - 1),
                "<=",
                0.15,
                note=f"The mean is {second_half.mean():.3f}. The edge is at {rows['threshold'].iloc[0]:.3g}; that of "
                f"descent would be at {2 / rows['h'].iloc[0]:.3g}.",
            ),
        ]
    return found


def draw(config: Config, tables: Tables) -> Figure:
    figure = Figure(figsize=(12, 4.5), layout="constrained")
    loss, curvature = figure.subplots(1, 2)
    for number, (method, rows) in enumerate(tables["steps"].groupby("method", sort=False)):
        colour = f"C{number}"
        loss.semilogy(rows["step"], rows["loss"], color=colour, label=f"{method}, h = {rows['h'].iloc[0]:g}")
        curvature.plot(rows["step"], rows["sharpness"], color=colour)
        curvature.axhline(rows["threshold"].iloc[0], color=colour, linestyle="--", linewidth=0.8)
    loss.set(title="loss", xlabel="step", ylabel="$E$")
    curvature.set(title="largest eigenvalue; dashed: the method's edge", xlabel="step", ylabel=r"$\lambda_0$")
    loss.legend()
    return figure


def _trained(objective: Objective, method: str, h: float, config: Config) -> Table:
    theta, velocity = objective.theta, jnp.zeros_like(objective.theta)
    thetas = [theta]
    for _ in range(config.steps // config.every):
        theta, velocity = _advance(objective, theta, velocity, h, config.momentum, method == NESTEROV, config.every)
        thetas.append(theta)
    return pandas.DataFrame(
        {
            "step": config.every * np.arange(len(thetas)),
            "loss": [float(objective.value(theta)) for theta in thetas],
            "sharpness": sharpness(objective, thetas),
        }
    )


@eqx.filter_jit
def _advance(
    objective: Objective, theta: Vector, velocity: Vector, h: float, momentum: float, nesterov: bool, steps: int
):
    def step(_, state):
        theta, velocity = state
        ahead = theta + momentum * velocity if nesterov else theta
        velocity = momentum * velocity - h * objective.gradient(ahead)
        return theta + velocity, velocity

    return lax.fori_loop(0, steps, step, (theta, velocity))


EXPERIMENT = Experiment(
    id="edge-momentum",
    title="Momentum and Nesterov's method train at edges of their own",
    figure="",
    paper_says="",
    we_add=(
        "The paper is about descent without momentum, but few train without. On a quadratic descent with momentum m "
        "becomes unstable at λ = (2 + 2m)/h, and with Nesterov's at (2 + 2m)/((1 + 2m) h). As Cohen et al. (2021) "
        "found, networks train at these edges as they do at 2/h."
    ),
    paper_setting="None: this is beyond the paper.",
    profiles={profile: Config(training) for profile, training in SQUARE.items()},
    run=run,
    claims=claims,
    draw=draw,
    stand_ins=STAND_INS_SQUARE,
)
