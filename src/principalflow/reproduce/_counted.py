"""How far flows are from descent, step by step, and what following them costs, counted at every evaluation.

`principalflow.compare` measures the same errors inside one compiled solver for each flow and loss, which takes longer
to compile than a small problem takes to solve, and can't see how many products the Krylov method spends. Here only
the field is compiled, and scipy's solver calls it.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas
from numpy.typing import NDArray
from scipy.integrate import RK45

from principalflow import _checks
from principalflow.descent import descend
from principalflow.flows import IGR, BackwardError, Flow, Principal, PrincipalThirdOrder, ThirdOrder
from principalflow.objective import Objective, Vector
from principalflow.reproduce._experiment import Table

# Prices in gradients, as forward and reverse mode have them: a product is a derivative of the gradient along one
# direction, a contraction of third derivatives one of a product, and a complex multiplication four real ones.
PRODUCT, CONTRACTION, COMPLEX = 2, 4, 4
COMPLETED, EULER, STUCK = "completed", "euler", "stuck"
# Euler's steps are dear: where they are needed, they are made for so many steps of descent.
_STEPS_BY_EULER = 2

Field = Callable[[float, NDArray], NDArray]


class _TooManyError(Exception):
    """The solver asks for more evaluations than it may have; at a field that isn't finite it would for ever."""


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
    euler_steps: int,
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
            so wherever it jumps, is followed by Euler's steps instead, in the paper's way, but only in the first two
            steps of descent; the evaluations that were in vain count.
        euler_steps: How many of them make one step of descent. Each turns by pi over their number at the edge, so that
            their own relative error is about 5 over their number.

    Returns:
        A row for each flow and step: `flow`, `step`, `relative_error` (the distance over the length of descent's step,
        imaginary part included; NaN where the flow ended early), `evaluations` of the field, `most_products`
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
    if jumps:  # where it does not, it takes no more than the other flows; where it does, any number is in vain
        max_evaluations //= 3
    theta, status = path[0].astype(complex if flow.is_complex else float), COMPLETED
    for step, (before, after) in enumerate(pairwise(path)):
        spent = Spent()
        field = counting(flow, objective, spent)
        length = np.linalg.norm(after - before)
        # The solver bounds the root mean square of its error, so the tolerance is shared by all entries.
        atol = tolerance * length / np.sqrt(theta.size)
        end = solve(field, theta, h, atol, max_evaluations) if status == COMPLETED else None
        if end is None:
            status = EULER if jumps and step < _STEPS_BY_EULER else STUCK
            end = euler(field, theta, h, euler_steps) if status == EULER else np.full_like(theta, np.nan)
        theta = end
        yield {"relative_error": np.linalg.norm(theta - after) / length, **vars(spent), "status": status}
        if status == STUCK:
            return


def counting(flow: Flow, objective: Objective, spent: Spent) -> Field:
    """Returns the flow's field, which adds what it costs to `spent`."""
    flow = jax.tree.map(jnp.asarray, flow)  # a rate in an array compiles once for all rates

    def field(_: float, theta: NDArray) -> NDArray:
        vector, products, converged = _field(flow, objective, jnp.asarray(theta))
        spent.evaluations += 1
        spent.most_products = max(spent.most_products, int(products))
        spent.converged &= bool(converged)
        spent.cost += _price(flow, int(products))
        return np.asarray(vector)

    return field


def solve(field: Field, theta: NDArray, h: float, atol: float, max_evaluations: int) -> NDArray | None:
    """Returns where the field leads from `theta` within the time h, or None if that takes too many evaluations."""
    left = iter(range(max_evaluations))

    def bounded(time: float, theta: NDArray) -> NDArray:
        if next(left, None) is None:
            raise _TooManyError
        return field(time, theta)

    finest = 100 * np.finfo(float).eps  # the finest relative tolerance that the solver takes
    try:
        with np.errstate(all="ignore"):  # a step that overflows is rejected
            solver = RK45(bounded, 0.0, theta, h, first_step=h, rtol=finest, atol=atol)
            while solver.status == "running":
                solver.step()
    except _TooManyError:
        return None
    return solver.y if solver.status == "finished" else None


def euler(field: Field, theta: NDArray, h: float, steps: int) -> NDArray:
    """Returns where so many of Euler's steps lead from `theta` within the time h."""
    for _ in range(steps):
        theta = theta + h / steps * field(0.0, theta)
    return theta


@eqx.filter_jit
def _field(flow: Flow, objective: Objective, theta: Vector):
    """Returns the field at `theta`, the Hessian products that a principal flow took for it, and if they were enough."""
    if not isinstance(flow, Principal):
        return flow.field(objective, theta), 0, True
    principal = flow.evaluate(objective, theta)
    others = flow.non_principal(objective, theta) if isinstance(flow, PrincipalThirdOrder) else 0
    return principal.vector + others, principal.products, principal.converged


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
        case _:
            return 1
