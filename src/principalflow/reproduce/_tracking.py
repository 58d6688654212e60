"""Flows beside descent on small networks: how far each is after 1, 2, ... steps, and which loss it predicts."""

import dataclasses
import itertools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from principalflow._compiled import compiled
from principalflow.descent import descend
from principalflow.flows import Principal
from principalflow.objective import Objective, Vector
from principalflow.reproduce._experiment import Table
from principalflow.reproduce._flows import COLOURS, named
from principalflow.reproduce._solve import adaptive_or_euler, field_of

PRINCIPAL = "PF, principal branch"
FLOWS = ("NGF", "IGR flow", "PF", PRINCIPAL)
MARKERS = dict(zip(FLOWS, "osDv", strict=True))
# A path without jumps needs fewer evaluations for one step of descent; where it needs more, its field jumps.
_EVALUATIONS = 90
# Of a flow's path, relative to descent's step.
_TOLERANCE = 1e-6
# Hessian products for one field: more than any of these networks needs (24), and no more, since they are paid for.
_PRODUCTS = 30


class Start(NamedTuple):
    """Where flows start: the parameters, and the largest eigenvalue of the Hessian there."""

    theta: Vector
    sharpness: float


def spectra(objective: Objective, thetas: Any) -> np.ndarray:
    """Returns all eigenvalues of the Hessian at each of the points (points, D), the largest first."""
    return np.stack([np.asarray(_spectrum(objective, theta)) for theta in jnp.asarray(thetas)])


def errors_from(start: Start, objective: Objective, h: float, steps: int, euler_steps: int) -> Table:
    """Returns each flow's distance from descent, both from one start.

    A flow is followed by an adaptive solver while its field is smooth. Where the field jumps (the principal branch
    as soon as h λ₀ > 1; the continuous one where an eigenvalue passes 1/h off the real line) adaptive solvers get
    stuck, and the flow is followed by Euler's steps from the start, as the paper does. Below h λ₀ = 1 both branches
    are the same real flow, which is followed once.

    Args:
        start: Where both start.
        objective: The loss.
        h: The learning rate.
        steps: How many steps of descent, and of time h.
        euler_steps: Euler's steps for one step of descent.

    Returns:
        A row for each flow and step: `flow`, `step`, `error` ‖θₙ − θ(nh)‖, `length` (that of descent's step n), `loss`
        after the step (of a complex flow the real part), `descent_loss` and `solver` ("adaptive" or "euler").
    """
    path = descend(objective, start.theta, h, steps)
    lengths = np.linalg.norm(np.diff(path.thetas, axis=0), axis=1)
    tolerance = _TOLERANCE * lengths[0] / np.sqrt(start.theta.size)  # shared by all entries
    solutions: dict[str, tuple[NDArray, str]] = {}
    for name, flow in named(h, FLOWS).items():
        most = steps * _EVALUATIONS if isinstance(flow, Principal) else 100 * steps * _EVALUATIONS
        if name == PRINCIPAL:
            if h * start.sharpness < 1:
                solutions[name] = solutions["PF"]
                continue
            most = 0  # any number would be in vain
        if isinstance(flow, Principal):
            flow = dataclasses.replace(flow, rtol=0.1 * _TOLERANCE, max_products=_PRODUCTS)
        theta = np.asarray(flow.start(objective, start.theta))
        times = h * np.arange(steps + 1)
        solutions[name] = adaptive_or_euler(field_of(flow, objective), theta, times, tolerance, most, euler_steps)
    rows = []
    for (name, (states, solver)), n in itertools.product(solutions.items(), range(1, steps + 1)):
        reached = n < min(len(states), len(path.thetas))
        rows.append(
            {
                "flow": name,
                "step": n,
                "error": float(np.linalg.norm(states[n] - path.thetas[n])) if reached else np.nan,
                "length": lengths[n - 1] if n <= len(lengths) else np.nan,
                "loss": float(objective.value(states[n]).real) if reached else np.nan,
                "descent_loss": float(path.losses[n]) if n < len(path.losses) else np.nan,
                "solver": solver,
            }
        )
    return pandas.DataFrame(rows)


def medians(table: Table, column: str = "error") -> Table:
    """Returns the median over starts, a row for each step and a column for each flow; a path that ended is infinite."""
    return table.fillna({column: np.inf}).pivot_table(index="step", columns="flow", values=column, aggfunc="median")


def draw_errors(ax: Axes, errors: Table) -> None:
    """Draws each flow's median error over the steps, and every start's thinly."""
    middle = medians(errors)
    for name in FLOWS:
        style = {"color": COLOURS[name], "marker": MARKERS[name], "markersize": 5}
        for _, one in errors[errors["flow"] == name].groupby("start"):
            ax.plot(one["step"], one["error"], color=COLOURS[name], linewidth=0.5, alpha=0.4)
        ax.plot(middle.index, middle[name], **style, label=name)
    ax.set_yscale("log")
    ax.set(xlabel="gradient descent step n", ylabel=r"$\|\theta_n - \theta(nh)\|$")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))


@compiled
def _spectrum(objective: Objective, theta: Vector) -> jax.Array:
    return jnp.linalg.eigvalsh(objective.hessian(theta))[::-1]
