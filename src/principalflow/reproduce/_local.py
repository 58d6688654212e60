"""From iterates of descent, the flows down and up the gradient for about the time of a step: loss and λ₀ after it."""

import contextlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas

from principalflow._checks import NonFiniteError
from principalflow._lab import Table
from principalflow.flows import PRODUCT_COST, Flow, NegativeGradient, PositiveGradient, integrate
from principalflow.reproduce._edge import EULER_STEP
from principalflow.reproduce._trained import Trained
from principalflow.spectrum import top_eigenpairs

DOWN, UP = "down", "up"
_FLOWS: dict[str, Flow] = {DOWN: NegativeGradient(), UP: PositiveGradient()}
# Of a flow's path: its tolerance, relative to descent's step and to the parameters, and the solver's most steps.
_TOLERANCE, _FINEST, _STEPS = 1e-3, 1e-5, 35


class Local(NamedTuple):
    """The flows' changes, and what they cost in gradients: `cost`, and with the paper's Euler steps `cost_by_paper`."""

    changes: Table
    cost: float
    cost_by_paper: float


def local_flows(run: Trained, steps: Sequence[int], time: float = 1.0) -> Local:
    """Follows the negative and the positive gradient flow from iterates, each for the time of a step or a part of it.

    Args:
        run: The training.
        steps: From which steps; each but the last of a training.
        time: For how long, in steps. The positive flow may leave the finite numbers in less than one.

    Returns:
        A row for each step: `step`, `loss`, `sharpness`, `coefficient` (Re sc₀), `predicted` (the PF's change of the
        loss), and for descent, the flow `down` and the flow `up` the changes of the loss and of λ₀: `loss_change`,
        `loss_change_down`, ..., `sharpness_change_up`; NaN where a flow could not be followed.
    """
    rows, cost, by_paper = [], 0.0, 0.0
    h, objective = run.h, run.objective
    records, eigenpairs = run.records.set_index("step"), None
    for step in steps:
        here, after, theta = records.loc[step], records.loc[step + 1], run.theta(step)
        row = {
            "step": step,
            "loss": here["loss"],
            "sharpness": here["eigenvalue_0"],
            "coefficient": here["coefficient_0_real"],
            "predicted": here["loss_change_continuous"],
            "loss_change": here["loss_change"],
            "sharpness_change": after["eigenvalue_0"] - here["eigenvalue_0"],
        }
        for name, flow in _FLOWS.items():
            atol = _TOLERANCE * h * here["gradient_norm"] / np.sqrt(theta.size)
            solution = integrate(flow, objective, theta, time * h, rtol=_FINEST, atol=atol, max_steps=_STEPS)
            cost, by_paper = cost + solution.cost, by_paper + time * h / EULER_STEP
            row |= {f"loss_change_{name}": np.nan, f"sharpness_change_{name}": np.nan}
            if len(solution.thetas) < 2:
                continue
            end = solution.thetas[1]
            row[f"loss_change_{name}"] = float(objective.value(end)) - here["loss"]
            with contextlib.suppress(NonFiniteError):  # the flow may get to where the loss is finite, but nothing else
                eigenpairs = top_eigenpairs(objective, end, 1, guess=eigenpairs, tol=run.training.tolerance)
                row[f"sharpness_change_{name}"] = float(eigenpairs.values[0]) - here["eigenvalue_0"]
                cost, by_paper = (total + PRODUCT_COST * eigenpairs.products for total in (cost, by_paper))
        rows.append(row)
    return Local(pandas.DataFrame(rows), cost, by_paper)


def agreement(changes: Table, quantity: str, flow: str) -> float:
    """Returns the share of the steps at which descent and a flow change a quantity in the same direction."""
    both = changes[[quantity, f"{quantity}_{flow}"]].dropna()
    return float(np.mean(np.sign(both.iloc[:, 0]) == np.sign(both.iloc[:, 1]))) if len(both) else np.nan
