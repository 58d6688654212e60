"""The flows of the experiments: their names and colours in figures, and their paths beside descent's."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas
from numpy.typing import NDArray

from principalflow import _checks
from principalflow._lab import Table
from principalflow.descent import descend
from principalflow.flows import (
    IGR,
    BackwardError,
    NegativeGradient,
    Principal,
    PrincipalThirdOrder,
    SpectralFlow,
    ThirdOrder,
    integrate,
)
from principalflow.objective import Objective

DESCENT = "gradient descent"
# Okabe and Ito's colours, the same for a flow in every figure; black is descent's.
COLOURS = {
    DESCENT: "#000000",
    "NGF": "#0072B2",
    "IGR flow": "#E69F00",
    "third-order flow": "#CC79A7",
    "PF": "#009E73",
    "PF, principal branch": "#D55E00",
    "PF, tracked branch": "#882255",
    "PF with third-order term": "#56B4E9",
}
# Of the adaptive solver: its tolerance, relative to descent's first step and to the parameters, and the steps it may
# take for one of descent.
_TOLERANCE, _FINEST, _STEPS = 1e-10, 1e-14, 100
_EULER_STEPS = 400  # for a step of descent


def named(h: float, names: Iterable[str]) -> dict[str, SpectralFlow]:
    """Returns the flows of these names for the learning rate h; "order n" is `BackwardError`'s."""
    flows = {
        "NGF": NegativeGradient(),
        "IGR flow": IGR(h),
        "third-order flow": ThirdOrder(h),
        "PF": Principal(h),
        "PF, principal branch": Principal(h, branch="principal"),
        "PF, tracked branch": Principal(h, branch="tracked"),
        "PF with third-order term": PrincipalThirdOrder(h),
        **{f"order {n}": BackwardError(h, order=n) for n in range(6)},
    }
    return {name: flows[name] for name in names}


def follow(
    objective: Objective, theta: _checks.Numbers, h: float, steps: int, flows: Iterable[str], saves: int = 20
) -> Table:
    """Returns descent's iterates and the flows' paths from one start, in the columns that `points` reads.

    Each of the `saves` points of a step has a row: `flow`, `time`, `step` (time over h), `loss` (its real part),
    `theta_0`, `theta_0_imaginary`, ... and `solver` ("euler" where an adaptive one got stuck).
    """
    path = descend(objective, theta, h, steps)
    parts = [_rows(objective, DESCENT, h * np.arange(len(path.thetas)), path.thetas, h).assign(solver="")]
    atol = _TOLERANCE * h * float(np.linalg.norm(objective.gradient(theta)))
    for name, flow in named(h, flows).items():
        solution = integrate(
            flow,
            objective,
            theta,
            steps * h,
            rtol=_FINEST,
            atol=atol,
            step=h / _EULER_STEPS,
            saves=steps * saves,
            max_steps=steps * _STEPS,
        )
        parts.append(_rows(objective, name, solution.times, solution.thetas, h).assign(solver=solution.solver))
    return pandas.concat(parts, ignore_index=True)


def stack(tables: Mapping[Any, Table], *columns: str) -> Table:
    """Returns tables one below the other, with their keys in columns of their own."""
    return pandas.concat(dict(tables), names=list(columns)).reset_index(columns).reset_index(drop=True)


def points(table: Table, flow: str) -> NDArray[np.complex128]:
    """Returns the path of a flow as an array (points, D), complex."""
    rows = table[table["flow"] == flow]
    size = sum(name.endswith("_imaginary") for name in table)
    real, imaginary = (rows[[f"theta_{i}{part}" for i in range(size)]].to_numpy() for part in ("", "_imaginary"))
    return real + 1j * imaginary


def at_steps(table: Table, flow: str) -> NDArray[np.complex128]:
    """Returns where a flow is at whole steps (steps, D); it is shorter where the path ended early."""
    steps = table.loc[table["flow"] == flow, "step"].to_numpy()
    return points(table, flow)[np.isclose(steps, np.round(steps), atol=1e-6)]


def errors(table: Table, flow: str) -> np.ndarray:
    """Returns the distance of a flow from descent after 1, 2, ... steps; NaN where either ended early."""
    descent, model = at_steps(table, DESCENT), at_steps(table, flow)
    steps = int(table["step"].round().max())
    reached = min(len(descent), len(model))
    distances = np.full(steps + 1, np.nan)
    distances[:reached] = np.linalg.norm(model[:reached] - descent[:reached], axis=1)
    return distances[1:]


def _rows(objective: Objective, name: str, times: Any, thetas: Any, h: float) -> Table:
    thetas, times = np.asarray(thetas), np.asarray(times)
    parameters: Mapping[str, np.ndarray] = {
        f"theta_{i}{part}": of(thetas[:, i])
        for i in range(thetas.shape[1])
        for part, of in (("", np.real), ("_imaginary", np.imag))
    }
    losses = [complex(objective.value(theta)).real for theta in thetas]
    return pandas.DataFrame({"flow": name, "time": times, "step": times / h, "loss": losses, **parameters})
