"""Flows beside descent on small networks: how far each is after 1, 2, ... steps, and which loss it predicts."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from principalflow._lab import Table
from principalflow.flows import compare
from principalflow.objective import Objective, Vector
from principalflow.reproduce._flows import COLOURS, named

PRINCIPAL, TRACKED = "PF, principal branch", "PF, tracked branch"
FLOWS = ("NGF", "IGR flow", "PF", PRINCIPAL)
MARKERS = dict(zip((*FLOWS, TRACKED), "osDv^", strict=True))
# A path without jumps needs fewer steps for one of descent; where it needs more, its field jumps.
_STEPS = 20
# The tracked branch goes from sheet to sheet within a fraction of a step of descent, which takes so many times more.
_TRACKED_STEPS = 5
# Of a flow's path, relative to descent's step.
_TOLERANCE = 2e-6
# Hessian products for one field: more than any of these networks needs (24), and no more, since they are paid for.
_PRODUCTS = 30


def spectra(objective: Objective, thetas: Any) -> np.ndarray:
    """Returns all eigenvalues of the Hessian at each of the points (points, D), the largest first."""
    return np.stack([np.linalg.eigvalsh(objective.hessian(theta))[::-1] for theta in thetas])


def errors_from(
    objective: Objective,
    theta: Vector,
    h: float,
    steps: int,
    euler_steps: int,
    names: Sequence[str] = FLOWS,
) -> Table:
    """Returns each flow's distance from descent, both from one start, in the rows of `compare`.

    A flow is followed by an adaptive solver while its field is smooth. Where the field jumps (the principal branch
    as soon as h λ₀ > 1; the continuous one where an eigenvalue passes 1/h off the real line) adaptive solvers get
    stuck, and the flow is followed by Euler's steps, so many for one of descent, as the paper does.
    """
    flows = {
        name: dataclasses.replace(flow, rtol=0.1 * _TOLERANCE, max_products=_PRODUCTS) if flow.is_complex else flow
        for name, flow in named(h, names).items()
    }
    tables = [
        compare(
            objective,
            theta,
            h,
            steps,
            {name: flow},
            rtol=_TOLERANCE,
            step=h / (times * euler_steps),
            max_steps=times * _STEPS,
            kinds=["global"],
            progress=False,
        )
        for name, flow in flows.items()
        for times in [_TRACKED_STEPS if name == TRACKED else 1]
    ]
    return pandas.concat(tables, ignore_index=True)


def medians(table: Table, column: str = "error") -> Table:
    """Returns the median over starts, a row for each step and a column for each flow; a path that ended is infinite."""
    return table.fillna({column: np.inf}).pivot_table(index="step", columns="flow", values=column, aggfunc="median")


def draw_errors(ax: Axes, errors: Table) -> None:
    """Draws each flow's median error over the steps, and every start's thinly."""
    middle = medians(errors)
    for name in middle.columns:
        style = {"color": COLOURS[name], "marker": MARKERS[name], "markersize": 5}
        for _, one in errors[errors["flow"] == name].groupby("start"):
            ax.plot(one["step"], one["error"], color=COLOURS[name], linewidth=0.5, alpha=0.4)
        ax.plot(middle.index, middle[name], **style, label=name)
    ax.set_yscale("log")
    ax.set(xlabel="gradient descent step n", ylabel=r"$\|\theta_n - \theta(nh)\|$")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
