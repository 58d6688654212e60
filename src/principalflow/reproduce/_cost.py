"""How far flows are from descent, step by step, and what following them costs, counted at every evaluation."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

import jax.numpy as jnp
import numpy as np
import pandas
from numpy.typing import NDArray

from principalflow import _checks
from principalflow.descent import descend
from principalflow.flows import IGR, BackwardError, FlippedDirection, Flow, Principal, PrincipalThirdOrder, ThirdOrder
from principalflow.objective import Objective
from principalflow.reproduce._experiment import Table
from principalflow.reproduce._solve import EULER, Field, euler, field_of, solve

# Prices in gradients, as forward and reverse mode have them: a product is a derivative of the gradient along one
# direction, a contraction of third derivatives one of a product, and a complex multiplication four real ones.
PRODUCT, CONTRACTION, COMPLEX = 2, 4, 4
COMPLETED, STUCK = "completed", "stuck"
# Euler's steps are dear: where they are needed, they are made for so many steps of descent.
_STEPS_BY_EULER = 2
# The part of its evaluations that the adaptive solver may take on the principal branch: more than a smooth path needs.
_SHARE_OF_JUMPING = 4


@dataclass
class Spent:
    """What fields have cost since the last count."""

    evaluations: int = 0
    most_products: int = 0
    converged: bool = True
    cost: float = 0.0


def measure(
    objective: Objective,
    theta: _checks.Numbers,
    h: float,
    steps: int,
    flows: Mapping[str, Flow],
    tolerance: float,
    max_evaluations: int,
    euler_steps: int = 0,
) -> Table:
    """Returns each flow's distance from descent after 1, 2, ... steps, and what each step of it cost.

    Args:
        objective: The loss.
        theta: The start, of descent and of the flows.
        h: Descent's learning rate.
        steps: How many steps of descent.
        flows: Flows by name.
        tolerance: Of the solver, relative to the length of descent's step.
        max_evaluations: A flow that asks for more of them within one step ends there. The principal branch, which does
            so wherever it jumps, has a quarter of them. It is then followed by Euler's steps, in the paper's way, but
            only in the first two steps of descent; the evaluations that were in vain count.
        euler_steps: How many of them make one step of descent. Each turns by pi over their number at the edge, so that
            their own relative error is about 5 over their number. Only the principal branch needs them.

    Returns:
        A row for each flow and step: `flow`, `step`, `error` (the distance, imaginary part included; NaN where the flow
        ended early), `relative_error` (over the length of descent's step), `evaluations` of the field, `most_products`
        (Hessian products of the Krylov method in one field), `converged` (whether all of its fields were), `cost` (in
        gradients), `status` ("completed", "euler" or "stuck"). After it was stuck a flow has no rows.
    """
    path = np.asarray(descend(objective, theta, h, steps).thetas)
    rows = [
        {"flow": name, "step": step, **row}
        for name, flow in flows.items()
        for step, row in enumerate(_follow(flow, objective, path, h, tolerance, max_evaluations, euler_steps), 1)
    ]
    return pandas.DataFrame(rows)


def _follow(
    flow: Flow, objective: Objective, path: NDArray, h: float, tolerance: float, max_evaluations: int, euler_steps: int
) -> Iterator[dict]:
    jumps = isinstance(flow, Principal) and flow.branch == "principal"
    if jumps:  # where it does, any number is in vain
        max_evaluations //= _SHARE_OF_JUMPING
    theta, status = np.asarray(flow.start(objective, jnp.asarray(path[0]))), COMPLETED
    for step, (before, after) in enumerate(pairwise(path)):
        spent = Spent()
        field = counting(flow, objective, spent)
        length = np.linalg.norm(after - before)
        # The solver bounds the root mean square of its error, so the tolerance is shared by all entries.
        atol = tolerance * length / np.sqrt(theta.size)
        states = solve(field, theta, [0, h], atol, max_evaluations if status == COMPLETED else 0)
        if len(states) == 1:
            status = EULER if jumps and euler_steps and step < _STEPS_BY_EULER else STUCK
            states = euler(field, theta, [0, h], euler_steps) if status == EULER else states
        if len(states) == 1:  # nor did Euler's steps stay finite
            status, states = STUCK, [np.full_like(theta, np.nan)]
        theta = states[-1]
        error = np.linalg.norm(theta - after)
        yield {"error": error, "relative_error": error / length, **vars(spent), "status": status}
        if status == STUCK:
            return


def counting(flow: Flow, objective: Objective, spent: Spent) -> Field:
    """Returns the flow's field, which adds what it costs to `spent`."""

    def count(products: int, converged: bool) -> None:
        spent.evaluations += 1
        spent.most_products = max(spent.most_products, products)
        spent.converged &= converged
        spent.cost += _price(flow, products)

    return field_of(flow, objective, count)


def _price(flow: Flow, products: int) -> float:
    """Returns what one field costs, in gradients at real parameters."""
    match flow:
        case PrincipalThirdOrder():
            return COMPLEX * (1 + products * PRODUCT + CONTRACTION)
        case Principal():
            return COMPLEX * (1 + products * PRODUCT)
        case BackwardError():
            return flow.order + 1
        case ThirdOrder():
            return 1 + 2 * PRODUCT + CONTRACTION
        case IGR():
            return 1 + PRODUCT
        case FlippedDirection():
            return 1 + products * PRODUCT
        case _:
            return 1
