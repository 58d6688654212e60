"""A network of 321 parameters for two steps, in stable training and at the edge (figure 32)."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas
from matplotlib.figure import Figure

from principalflow import data, models
from principalflow._lab import Claim, Table, Tables
from principalflow.descent import descend
from principalflow.objective import Objective, Vector
from principalflow.reproduce._tracking import PRINCIPAL, draw_errors, errors_from, medians
from principalflow.spectrum import sharpness

STABLE, EDGE = "stability", "edge of stability"
FACTOR = 2  # what "by a significant margin" has to mean at least
_WHY = {
    STABLE: "What the IGR flow lacks is h³/3 ‖H²g‖ to leading order, and what both lack is the non-principal "
    "h³/12 ‖gᵀ(∇³E)g‖: the ratio depends on how they compare at the start.",
    EDGE: "Where h λ₀ is well above 2 training oscillates widely, and the PF's field jumps on the way.",
}


@dataclass(frozen=True)
class Config:
    """The network, and the rate of each area with the steps of training that are looked at for starts.

    Descent runs with the area's own rate. Of every tenth step those with h λ₀ < 2 are stable, the others at the edge,
    and `starts` of them are taken, evenly spaced.
    """

    hidden: int = 10
    activation: str = "elu"
    stable_h: float = 1.5
    edge_h: float = 5.0
    training_steps: int = 300
    starts: int = 5
    steps: int = 2
    euler_steps: int = 40
    seed: int = 0


def run(config: Config) -> Tables:
    objective = _objective(config)
    tables = []
    for area, h in ((STABLE, config.stable_h), (EDGE, config.edge_h)):
        for step, (theta, value) in _starts(config, objective, area, h).items():
            errors = errors_from(objective, theta, h, config.steps, config.euler_steps)
            tables.append(errors.assign(area=area, start=step, h=h, h_lambda=h * value))
    return {"errors": pandas.concat(tables, ignore_index=True)}


def claims(config: Config, tables: Tables) -> list[Claim]:
    found = []
    for area in (STABLE, EDGE):
        rows = _area(tables, area)
        for n in range(1, config.steps + 1):
            found.append(
                Claim.at_least(
                    f"{area.capitalize()}, after {n} step{'s' * (n > 1)}: the PF is nearer to descent than the IGR "
                    "flow by a wide margin: the IGR flow's error over the PF's (medians over starts)",
                    _ratio(rows, "IGR flow", "PF", n),
                    FACTOR,
                    note=f"{_of_starts(rows, n)} {_WHY[area]}",
                )
            )
    return [
        *found,
        Claim.at_least(
            f"{EDGE.capitalize()}, after {config.steps} steps: the principal branch is no nearer than the continuous "
            "one: its error over the other's",
            _ratio(_area(tables, EDGE), PRINCIPAL, "PF", config.steps),
            1,
        ),
    ]


def draw(config: Config, tables: Tables) -> Figure:
    figure = Figure(figsize=(12, 4.5), layout="constrained")
    axes = figure.subplots(1, 2)
    for ax, area in zip(axes, (STABLE, EDGE), strict=True):
        errors = _area(tables, area)
        if errors.empty:
            ax.set_title(f"{area}: no starts")
            continue
        draw_errors(ax, errors)
        low, high = errors["h_lambda"].min(), errors["h_lambda"].max()
        ax.set_title(rf"{area}: $h$ = {errors['h'].iloc[0]:g}, $h\lambda_0$ from {low:.2f} to {high:.2f}")
    axes[0].legend()
    return figure


def _area(tables: Tables, area: str) -> Table:
    errors = tables["errors"]
    return errors[errors["area"] == area]


def _ratio(errors: Table, flow: str, other: str, step: int) -> float:
    """Returns the ratio of two flows' median errors; NaN in an area without starts."""
    middle = medians(errors)
    return float(middle.loc[step, flow] / middle.loc[step, other]) if step in middle.index else np.nan


def _of_starts(errors: Table, step: int) -> str:
    rows = errors[errors["step"] == step].pivot(index=["h_lambda", "start"], columns="flow", values="error")
    ratios = (f"{one['IGR flow'] / one['PF']:.2g} (h λ₀ = {h_lambda:.2f})" for (h_lambda, _), one in rows.iterrows())
    return f"By start: {', '.join(ratios) or 'none'}."


def _objective(config: Config) -> Objective:
    cells = data.load("breast-cancer")
    network = models.MLP(
        cells.inputs.shape[1], (config.hidden,), 1, jax.random.key(config.seed), activation=config.activation
    )
    # elu's pieces are holomorphic, and so near to the real line as these flows stay they fit together well enough.
    batch = (jnp.asarray(cells.inputs, float), jnp.asarray(cells.labels))
    return Objective(_logistic, network, batch, holomorphic=True)


def _logistic(network: Any, batch: tuple[jax.Array, jax.Array]) -> jax.Array:
    """Cross-entropy of two classes from one output: the other's logit is 0."""
    logit = network(batch[0])
    return models.cross_entropy(jnp.concatenate([jnp.zeros_like(logit), logit], axis=1), batch[1])


def _starts(config: Config, objective: Objective, area: str, h: float) -> dict[int, tuple[Vector, float]]:
    """Returns starts in this area, with λ₀ there, by their steps of training."""
    steps = np.arange(10, config.training_steps + 1, 10)
    path = descend(objective, objective.theta, h, config.training_steps).thetas
    steps = steps[steps < len(path)]
    thetas = path[steps]
    values = sharpness(objective, thetas)
    inside = np.flatnonzero(np.isfinite(values) & ((h * values < 2) == (area == STABLE)))
    chosen = np.unique(np.linspace(0, len(inside) - 1, config.starts).round().astype(int)) if len(inside) else []
    return {int(steps[i]): (thetas[i], float(values[i])) for i in inside[chosen]}


_MORE = Config(starts=20, euler_steps=200)
SETTINGS = {"quick": Config(), "cpu": _MORE, "paper": _MORE}
