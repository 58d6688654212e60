"""The negative gradient flow over a whole training: descent follows it to the edge, and no further."""

import jax.numpy as jnp
import numpy as np
import pandas
from matplotlib.figure import Figure

from principalflow._lab import Claim, Tables
from principalflow.flows import NegativeGradient, integrate
from principalflow.reproduce._edge import MLP, STAND_INS_MLP, Config, draw_threshold, networks, unrecorded
from principalflow.reproduce._flows import COLOURS, DESCENT
from principalflow.reproduce._trained import rate, trained
from principalflow.spectrum import sharpness

NGF = "NGF"
# Of the flow's solver: its tolerance for a parameter, and the steps it may take for one of descent.
_TOLERANCE, _STEPS = 1e-5, 35


def run(config: Config) -> Tables:
    (network,) = networks(config)
    run = trained(network)
    objective, descent, times = run.objective, run.kept, run.h * run.steps
    flow = integrate(
        NegativeGradient(),
        objective,
        objective.theta,
        times[-1],
        rtol=_TOLERANCE,
        atol=_TOLERANCE,
        saves=times,
        max_steps=_STEPS * network.steps,
    ).thetas
    paths = pandas.concat(
        pandas.DataFrame(
            {
                "path": name,
                "time": times[: len(thetas)],
                "loss": [float(objective.value(theta)) for theta in thetas],
                "sharpness": sharpness(objective, thetas),
                "moved": [float(jnp.linalg.norm(theta - objective.theta)) for theta in thetas],
            }
        )
        for name, thetas in ((DESCENT, descent), (NGF, flow))
    )
    both = list(zip(descent, flow, strict=False))  # the flow is shorter where its solver gave up
    errors = [float(jnp.linalg.norm(theta - model)) for theta, model in both]
    return {
        "paths": paths.reset_index(drop=True),
        "errors": pandas.DataFrame({"time": times[: len(errors)], "error": errors}),
    }


def claims(config: Config, tables: Tables) -> list[Claim]:
    descent, flow = (_path(tables, name) for name in (DESCENT, NGF))
    h = rate(*networks(config))
    at_descent, at_flow = (h * path["sharpness"].to_numpy() for path in (descent, flow))
    complete = len(flow) == len(descent)  # if not, the flow's solver gave up
    relative = (tables["errors"]["error"] / descent["moved"]).to_numpy()
    reached = at_descent >= 2
    edge = int(np.argmax(reached)) if reached.any() else len(reached)
    last_third = slice(-(len(at_descent) // 3), None)
    return [
        Claim.below(
            "Until λ₀ reaches 2/h descent follows the NGF: the most it is away from it, over the way it has come",
            np.max(relative[1:edge], initial=np.nan if edge < 2 else 0),
            0.1,
            note=f"“Closely” is taken to be a tenth of the way. λ₀ reaches 2/h at the time {_time(descent, edge)}. "
            f"At the start hλ₀ is {at_descent[0]:.2f}; the nearer that is to 2, the more the first steps drift.",
        ),
        Claim.above(
            "After that it doesn't: the distance at the end, over the one when λ₀ reached 2/h",
            tables["errors"]["error"].iloc[-1] / tables["errors"]["error"].get(edge, np.nan) if complete else np.nan,
            2,
        ),
        Claim.above("Along the NGF λ₀ grows past 2/h: its largest hλ₀", at_flow.max(), 2),
        Claim.above(
            "It grows most of the time: the share of the intervals between two looks in which it does",
            float(np.mean(np.diff(at_flow) > 0)),
            0.5,
            note="With the cross-entropy λ₀ falls again, along the flow too, once the samples are fit.",
        ),
        Claim.above(
            "At the end λ₀ is larger along the NGF than along descent: the ratio",
            at_flow[-1] / at_descent[-1] if complete else np.nan,
            1,
        ),
        Claim.below(
            "Descent's λ₀ settles at 2/h: how far the mean of hλ₀/2 over the last third is from 1",
            abs(float(np.mean(at_descent[last_third])) / 2 - 1),
            0.1,
        ),
    ]


def draw(config: Config, tables: Tables) -> Figure:
    figure = Figure(figsize=(15, 4.5), layout="constrained")
    error, eigenvalue, loss = figure.subplots(1, 3)
    error.plot(tables["errors"]["time"], tables["errors"]["error"], color=COLOURS[NGF])
    error.set(title="global error of the NGF", ylabel=r"$\|\theta_n - \theta(nh)\|$")
    for name in (DESCENT, NGF):
        path = _path(tables, name)
        eigenvalue.plot(path["time"], path["sharpness"], color=COLOURS[name], label=name)
        loss.semilogy(path["time"], path["loss"], color=COLOURS[name], label=name)
    draw_threshold(eigenvalue, rate(*networks(config)))
    eigenvalue.set(title="largest eigenvalue of the Hessian; dashed: 2/h", ylabel=r"$\lambda_0$")
    loss.set(title="loss", ylabel=r"$E(\theta)$")
    for ax in (error, eigenvalue, loss):
        ax.set_xlabel(r"time $t = nh$")
    for ax in (eigenvalue, loss):
        ax.legend()
    return figure


def _path(tables: Tables, name: str) -> pandas.DataFrame:
    return tables["paths"][tables["paths"]["path"] == name].reset_index(drop=True)


def _time(path: pandas.DataFrame, index: int) -> str:
    return f"{path['time'][index]:.3g}" if index < len(path) else "that this run doesn't get to"


SETTINGS = {
    "quick": Config((unrecorded(MLP["quick"], 8, steps=240),)),
    "cpu": Config((unrecorded(MLP["cpu"], 2, precision="float64"),)),
    "paper": Config((unrecorded(MLP["paper"], 25, precision="float64"),)),
}
STAND_INS = STAND_INS_MLP
