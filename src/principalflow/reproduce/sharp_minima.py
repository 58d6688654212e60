"""A minimum that is too sharp for the rate is left (figure 33)."""

from dataclasses import dataclass, replace

import numpy as np
import pandas
from matplotlib.figure import Figure

from principalflow._lab import Claim, Tables
from principalflow.descent import descend
from principalflow.flows import PRODUCT_COST
from principalflow.reproduce._edge import CONVERGED, cost_claim, draw_threshold
from principalflow.reproduce._trained import cost, rate, record_of, recorded
from principalflow.spectrum import top_eigenpairs
from principalflow.training import Options
from principalflow.training import objective as objective_of

LOWER, HIGHER = "lower rate", "higher rate"


@dataclass(frozen=True)
class Config:
    """After training the rate is raised to h λ₀ = `h_lambda` for so many steps, and for comparison left as it is."""

    network: Options
    h_lambda: float = 2.2
    steps: int = 150
    seed: int = 0


def run(config: Config) -> Tables:
    training = replace(config.network, seed=config.seed)
    objective = objective_of(training)
    start = descend(objective, objective.theta, rate(training), training.steps, keep="last").thetas[0]
    anew = top_eigenpairs(objective, start, training.directions, tol=training.tolerance)
    parts, ours = [], training.steps + PRODUCT_COST * float(anew.products)
    for name, h in ((LOWER, rate(training)), (HIGHER, config.h_lambda / float(anew.values[0]))):
        path = recorded(objective, start, h, config.steps, record_of(training))
        rows, thetas = path.records, path.thetas[: len(path.records)]
        ours += cost(rows)
        parts.append(
            pandas.DataFrame(
                {
                    "part": name,
                    "step": rows["step"],
                    "h": h,
                    "loss": rows["loss"],
                    "gradient_norm": rows["gradient_norm"],
                    "sharpness": rows["eigenvalue_0"],
                    "moved": np.linalg.norm(thetas - start, axis=1),
                }
            )
        )
    first = float(np.linalg.norm(objective.gradient(objective.theta)))
    steps = sum(map(len, parts))
    theirs = training.steps + steps * (1 + PRODUCT_COST * anew.products)
    return {
        "steps": pandas.concat(parts, ignore_index=True),
        "start": pandas.DataFrame({"gradient_norm": [first]}),
        "cost": pandas.DataFrame({"ours": [ours], "paper": [theirs]}),
    }


def claims(config: Config, tables: Tables) -> list[Claim]:
    lower, higher = (tables["steps"][tables["steps"]["part"] == name] for name in (LOWER, HIGHER))
    first = tables["start"]["gradient_norm"].iloc[0]
    loss, rates = higher["loss"].to_numpy(), higher["h"].iloc[0] / lower["h"].iloc[0]
    return [
        Claim.below(
            "The first training ends where the gradient is small: its norm over that at the start",
            float(lower["gradient_norm"].iloc[0] / first),
            0.1,
        ),
        Claim.above(
            f"At the rate with h λ₀ = {config.h_lambda:g} the loss rises: its largest value over the one at the change",
            float(loss.max() / loss[0]),
            1.1,
        ),
        Claim.above(
            "The minimum is left: the way that descent goes at the higher rate over that at the lower one, both over "
            "the time it has",
            float(higher["moved"].max() / lower["moved"].max() / rates),
            2,
            note=f"The rates have the ratio {rates:.3g}.",
        ),
        Claim.below(
            "It comes to where it is flat enough: the mean of λ₀ over the last tenth of the steps, over 2/h of the "
            "higher rate",
            float(higher["sharpness"].iloc[-config.steps // 10 :].mean() * higher["h"].iloc[0] / 2),
            1.05,
            note=f"At the change it is {config.h_lambda / 2:g}.",
        ),
        cost_claim(tables["cost"]),
    ]


def draw(config: Config, tables: Tables) -> Figure:
    figure = Figure(figsize=(15, 4.5), layout="constrained")
    axes = figure.subplots(1, 3)
    for ax, column, title in zip(
        axes,
        ("loss", "gradient_norm", "sharpness"),
        ("loss", r"norm of the gradient", r"$\lambda_0$; dashed: 2/h"),
        strict=True,
    ):
        for (_, rows), colour in zip(tables["steps"].groupby("part", sort=False), ("black", "#D55E00"), strict=True):
            h = rows["h"].iloc[0]
            ax.plot(rows["step"], rows[column], color=colour, label=f"h = {h:.3g}")
            if column == "sharpness":
                draw_threshold(ax, h, colour)
        ax.set(title=title, xlabel="step after the first training")
    axes[0].set_yscale("log")
    axes[1].set_yscale("log")
    axes[0].legend()
    return figure


SETTINGS = {profile: Config(training) for profile, training in CONVERGED.items()}
