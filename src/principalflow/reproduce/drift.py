"""The norm of Hg tells the drift of a step (figures 16 and 17)."""

from typing import Any

import numpy as np
import pandas
from matplotlib.figure import Figure

from principalflow import drift
from principalflow._lab import Claim, Table, Tables
from principalflow.reproduce._edge import MLP, SWEEP, Config, networks, unrecorded
from principalflow.reproduce._statistics import rank_correlation
from principalflow.reproduce._trained import trained
from principalflow.training import Options

# What may tell the drift: a column, and its name in figures.
_NORMS = {"product": r"$\|Hg\|$", "curvature": r"$\|H\hat g\|$", "gradient": r"$\|g\|$"}
_COLOURS = {"product": "#D55E00", "curvature": "#0072B2", "gradient": "#999999"}
# Of the flow's solver, relative to descent's step.
_TOLERANCE = 1e-3


def run(config: Config) -> Tables:
    steps = pandas.concat([_steps(network) for network in networks(config)], ignore_index=True)
    rows = [
        {"data": key[0], "h": key[1], "norm": norm, **rank_correlation(some[norm], some["drift"])._asdict()}
        for key, some in list[Any](steps.groupby(["data", "h"], sort=False))
        for norm in _NORMS
    ]
    return {"steps": steps, "correlations": pandas.DataFrame(rows)}


def claims(config: Config, tables: Tables) -> list[Claim]:
    return [
        claim
        for data, rows in tables["correlations"].groupby("data", sort=False)
        for claim in _claims(data, rows, tables["steps"][tables["steps"]["data"] == data])
    ]


def draw(config: Config, tables: Tables) -> Figure:
    parts = list(tables["steps"].groupby("data", sort=False))
    figure = Figure(figsize=(15, 4.2 * len(parts)), layout="constrained")
    for axes, (data, steps) in zip(figure.subplots(len(parts), 3, squeeze=False), parts, strict=True):
        along, against, correlations = axes
        h = steps["h"].unique()[len(steps["h"].unique()) // 2]
        one = steps[steps["h"] == h]
        along.semilogy(one["step"], one["drift"], color="black", label="measured")
        along.semilogy(
            one["step"], one["estimate"], color=_COLOURS["product"], linestyle="--", label=r"$\frac{h^2}{2}\|Hg\|$"
        )
        dots = against.scatter(steps["product"], steps["drift"], c=steps["h"], s=12, cmap="viridis")
        figure.colorbar(dots, ax=against, label="$h$")
        found = tables["correlations"]
        for norm, name in _NORMS.items():
            rows = found[(found["data"] == data) & (found["norm"] == norm)]
            interval = rows["value"] - rows["low"], rows["high"] - rows["value"]
            correlations.errorbar(
                rows["h"], rows["value"], interval, color=_COLOURS[norm], label=name, marker="o", capsize=3
            )
        along.set(title=f"{data}, h = {h:g}: drift of a step", xlabel="step of descent")
        against.set(title="at all rates", xscale="log", yscale="log", xlabel=_NORMS["product"], ylabel="drift")
        correlations.set(title="rank correlation with the drift", xlabel="$h$", ylim=(-1.05, 1.05))
        along.legend()
        correlations.legend()
    return figure


def _steps(network: Options) -> Table:
    """Returns the drift of a step from every so many iterates, and the norms there."""
    run, rows = trained(network), []
    objective, h = run.objective, run.h
    for step, theta in zip(run.steps, run.kept, strict=True):
        measured = drift.per_iteration(objective, theta, h, rtol=_TOLERANCE)
        estimate, gradient = drift.estimate(objective, theta, h), float(np.linalg.norm(objective.gradient(theta)))
        product = 2 * estimate / h**2
        norms = {"product": product, "curvature": product / gradient, "gradient": gradient}
        rows.append({"step": step, "drift": measured, "estimate": estimate, **norms})
    return pandas.DataFrame(rows).assign(data=network.data, h=h)


def _claims(data: str, correlations: Table, steps: Table) -> list[Claim]:
    of = {norm: correlations[correlations["norm"] == norm] for norm in _NORMS}
    worst = of["product"].loc[of["product"]["value"].idxmin()]
    together, ratio = rank_correlation(steps["estimate"], steps["drift"]), steps["estimate"] / steps["drift"]
    told = "; ".join(
        f"h = {row['h']:g}: {row['value']:.3f} ({row['low']:.3f} to {row['high']:.3f})"
        for _, row in of["product"].iterrows()
    )
    return [
        Claim.above(
            f"{data}: ‖Hg‖ goes with the drift of a step: the rank correlation along training, at the rate where it is "
            "least",
            worst["value"],
            0.9,
            note=f"With 95% intervals: {told}. Iterates follow each other, so the intervals are too narrow.",
        ),
        Claim.above(
            f"{data}: over all rates together: the rank correlation of h²/2 ‖Hg‖ with the drift",
            together.value,
            0.9,
            note=f"{together}.",
        ),
        Claim.above(
            f"{data}: so does ‖Hĝ‖, which DAL takes: the rank correlation, at the rate where it is least",
            of["curvature"]["value"].min(),
            0.5,
            note=f"With ‖g‖ alone it is {of['gradient']['value'].min():.2f} at the least.",
        ),
        Claim.below(
            f"{data}: the estimate has the drift's size: how far the logarithm (base 10) of their ratio is from 0, at "
            "the median",
            float(np.abs(np.log10(ratio)).median()),
            0.3,
            note=f"The ratio is {ratio.min():.2g} to {ratio.max():.2g}.",
        ),
    ]


SETTINGS = {
    "quick": Config(
        tuple(unrecorded(MLP["quick"], 10, learning_rate=round(0.02 * i, 2), steps=150) for i in range(1, 11))
    ),
    "cpu": Config(
        (
            *(unrecorded(MLP["cpu"], 10, learning_rate=h) for h in (0.02, 0.04, 0.06, 0.08, 0.1)),
            *(unrecorded(SWEEP["cpu"][0], 6, learning_rate=h, steps=60) for h in (0.02, 0.04, 0.08)),
        )
    ),
    "paper": Config(
        tuple(
            unrecorded(training, 25, learning_rate=round(0.01 * i, 2))
            for training in (MLP["paper"], SWEEP["paper"][0])
            for i in range(1, 11)
        )
    ),
}
