"""Which flow models one step of descent at the edge of stability, with the whole spectrum at hand (iris)."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from principalflow import data, models
from principalflow._lab import Claim, Table, Tables
from principalflow.descent import Descent, descend
from principalflow.objective import Objective
from principalflow.reproduce._flows import COLOURS, DESCENT
from principalflow.reproduce._tracking import FLOWS, MARKERS, PRINCIPAL, errors_from, spectra

REAL_FLOWS = ["NGF", "IGR flow"]
_LINES = 12  # the largest eigenvalues, drawn over training


@dataclass(frozen=True)
class Config:
    """The network, descent's rate, and the steps from which flows start.

    These are one in `every` steps, and the consecutive ones of a `window` that begins a little before the loss first
    rises, once the `first_steps` are over.
    """

    layers: int = 5
    units: int = 10
    activation: str = "elu"
    h: float = 0.18
    training_steps: int = 1300
    every: int = 200
    first_steps: int = 100
    window: int = 10
    euler_steps: int = 40
    seed: int = 0


def run(config: Config) -> Tables:
    objective = _objective(config)
    path = descend(objective, objective.theta, config.h, config.training_steps)
    steps = _steps(config, path)
    eigenvalues = spectra(objective, path.thetas[steps])
    errors = [
        errors_from(objective, path.thetas[step], config.h, 1, config.euler_steps).assign(
            training_step=step, start_loss=float(path.losses[step]), sharpness=values[0]
        )
        for step, values in zip(steps, eigenvalues, strict=True)
    ]
    index = pandas.MultiIndex.from_product([steps, range(eigenvalues.shape[1])], names=["training_step", "index"])
    return {
        "training": pandas.DataFrame({"training_step": np.arange(len(path.losses)), "loss": np.asarray(path.losses)}),
        "errors": pandas.concat(errors, ignore_index=True),
        "spectrum": pandas.DataFrame({"eigenvalue": eigenvalues.ravel()}, index).reset_index(),
    }


def claims(config: Config, tables: Tables) -> list[Claim]:
    errors = _by_flow(tables, "error")
    losses = _by_flow(tables, "loss")
    descent = _of_step(tables)
    at_edge = errors.index[descent["sharpness"] >= 2 / config.h]
    rise = at_edge[(descent["descent_loss"] > descent["start_loss"])[at_edge]]
    change = losses.loc[rise].sub(descent["start_loss"][rise], axis=0)
    nearest_real = errors[REAL_FLOWS].min(axis=1)
    branches = (errors["PF"] / errors[PRINCIPAL])[at_edge]
    values = tables["spectrum"].set_index("training_step")["eigenvalue"]
    positive, sizes = (part.groupby("training_step").sum() for part in (values.clip(lower=0), values.abs()))
    share = positive / sizes
    return [
        Claim.at_least(
            "Training comes to the edge: the largest λ₀ over 2/h", float(descent["sharpness"].max() * config.h / 2), 1
        ),
        Claim.at_least(
            f"At the edge (λ₀ ≥ 2/h, {len(at_edge)} steps) the PF's error of one step is below the NGF's and the IGR "
            "flow's: share of steps",
            float((errors["PF"] < nearest_real)[at_edge].mean()),
            0.9,
        ),
        Claim.below(
            "There, the PF's error over the smaller of the two: median",
            float((errors["PF"] / nearest_real)[at_edge].median()),
            0.5,
        ),
        Claim.at_least(
            f"Where descent raises the loss at the edge ({len(rise)} steps) the NGF and the IGR flow both predict a "
            "decrease: share of steps",
            float((change[REAL_FLOWS] < 0).all(axis=1).mean()),
            0.9,
        ),
        Claim.at_least("There the PF predicts an increase: share of steps", float((change["PF"] > 0).mean()), 0.9),
        Claim.below(
            "The continuous branch of the PF is nearer to descent at the edge than the principal one: ratio of their "
            "errors, geometric mean",
            float(np.exp(np.log(branches).mean())),
            1,
            note=f"At {int((branches > 0.99).sum())} of the {len(branches)} steps the path stays on one side of the "
            "jump, and both branches are the same.",
        ),
        Claim.at_least(
            "The Hessian's eigenvalues are largely positive: the positive ones' share of the sum of all sizes",
            float(positive.sum() / sizes.sum()),
            0.9,
            note=f"All steps together. At the start it is {share.iloc[0]:.2f}; afterwards from "
            f"{share.iloc[1:].min():.2f} to {share.iloc[1:].max():.2f}.",
        ),
    ]


def draw(config: Config, tables: Tables) -> Figure:
    figure = Figure(figsize=(15, 8), layout="constrained")
    (training, error, loss), *below = figure.subplots(2, 3)
    _draw_training(training, config, tables)
    descent = _of_step(tables)
    errors, losses = (_by_flow(tables, column) for column in ("error", "loss"))
    for name in FLOWS:
        style = {"color": COLOURS[name], "marker": MARKERS[name], "markersize": 3, "linewidth": 0.7, "label": name}
        # One place for each start, not to scale: the consecutive ones would fall together.
        error.semilogy(errors[name].to_numpy(), **style)
        loss.plot((losses[name] - descent["descent_loss"]).to_numpy(), **style)
    loss.axhline(0, color=COLOURS[DESCENT], linewidth=0.8)
    loss.set_yscale("symlog", linthresh=1e-4)
    error.set(title="error of one step", ylabel=r"$\|\theta_t - \theta(h;\,\theta_{t-1})\|$")
    loss.set(title="predicted loss less descent's", ylabel=r"$E(\theta(h;\,\theta_{t-1})) - E(\theta_t)$")
    error.legend()
    places = range(0, len(errors), max(len(errors) // 8, 1))
    for ax in (error, loss):
        ax.set_xticks(places, [str(errors.index[place]) for place in places], rotation=45)
    for ax in (training, error, loss):
        ax.set_xlabel("gradient descent step")
    for ax, (moment, step) in zip(below[0], _moments(config, descent["sharpness"]).items(), strict=True):
        _draw_spectrum(ax, config, tables, step)
        ax.set_title(f"eigenvalues {moment}, step {step}")
    return figure


def explore(config: Config, tables: Tables) -> dict[str, Any]:
    """The largest eigenvalues over training."""
    import plotly.graph_objects as go

    figure = go.Figure()
    for index, line in tables["spectrum"].query(f"index < {_LINES}").groupby("index"):
        figure.add_scatter(x=line["training_step"], y=line["eigenvalue"], mode="lines+markers", name=f"λ {index}")
    for height, name in ((2 / config.h, "2/h"), (1 / config.h, "1/h")):
        figure.add_hline(y=height, line_dash="dash", annotation_text=name)
    figure.update_layout(xaxis_title="gradient descent step", yaxis_title="eigenvalue of the Hessian")
    return {f"The {_LINES} largest eigenvalues over training, with 1/h and 2/h.": figure}


def _objective(config: Config) -> Objective:
    flowers = data.load("iris")
    hidden = (config.units,) * (config.layers - 1)
    key = jax.random.key(config.seed)
    network = models.MLP(flowers.inputs.shape[1], hidden, 3, key, activation=config.activation)
    # elu's pieces are holomorphic, and so near to the real line as one step stays they fit together well enough.
    batch = (jnp.asarray(flowers.inputs, float), jnp.asarray(flowers.labels))
    return Objective(models.loss("cross-entropy"), network, batch, holomorphic=True)


def _steps(config: Config, path: Descent) -> np.ndarray:
    rises = np.flatnonzero(np.diff(path.losses) > 0)
    rises = rises[rises >= config.first_steps]
    begin = max(rises[0] - config.window // 4, 0) if len(rises) else config.first_steps
    steps = np.union1d(np.arange(0, config.training_steps, config.every), np.arange(begin, begin + config.window))
    return steps[steps < len(path.losses) - 1]


def _by_flow(tables: Tables, column: str) -> Table:
    """Returns a row for each step of training and a column for each flow."""
    return tables["errors"].pivot(index="training_step", columns="flow", values=column)


def _of_step(tables: Tables) -> Table:
    """Returns what belongs to a step of training whichever the flow: losses before and after, and λ₀."""
    return tables["errors"].groupby("training_step")[["start_loss", "descent_loss", "sharpness"]].first()


def _moments(config: Config, sharpness: Table) -> dict[str, int]:
    """Returns a step before the edge, one near it and one at it; the last ones if the edge is never reached."""
    at_edge = sharpness.index[sharpness >= 2 / config.h]
    at_edge = at_edge if len(at_edge) else sharpness.index[-1:]
    earlier = sharpness.index[sharpness.index < at_edge[0]]
    near = earlier[-1] if len(earlier) else at_edge[0]
    return {"before": sharpness.index[0], "near the edge": near, "at the edge": at_edge[-1]}


def _draw_training(ax: Axes, config: Config, tables: Tables) -> None:
    training, sharpness = tables["training"], _of_step(tables)["sharpness"]
    ax.semilogy(training["training_step"], training["loss"], color=COLOURS[DESCENT], label="loss")
    ax.set(title="loss and largest eigenvalue", ylabel="loss $E$")
    right = ax.twinx()
    right.plot(sharpness.index, sharpness, "o-", color="#CC79A7", markersize=3, linewidth=0.7)
    right.axhline(2 / config.h, color="#CC79A7", linestyle="--")
    right.set_ylabel(r"$\lambda_0$, dashed: $2/h$", color="#CC79A7")


def _draw_spectrum(ax: Axes, config: Config, tables: Tables, step: int) -> None:
    spectrum = tables["spectrum"]
    values = spectrum.loc[spectrum["training_step"] == step, "eigenvalue"].to_numpy()
    ax.plot(values, "o", color=COLOURS["NGF"], markersize=3)
    ax.axhline(2 / config.h, color="black", linestyle="--", linewidth=0.8, label="$2/h$")
    ax.axhline(0, color="black", linewidth=0.5)
    ax.set_yscale("symlog", linthresh=1e-3)
    ax.set(xlabel="index", ylabel="eigenvalue")
    ax.legend()


_MORE = Config(every=10, window=100, euler_steps=200)
SETTINGS = {"quick": Config(), "cpu": _MORE, "paper": _MORE}
