"""Following flows from Python: only the field is compiled, and scipy's solvers call it.

`principalflow.integrate` compiles the whole solver for each flow and loss, which takes longer than a small problem
takes to solve, and can't see how many products the Krylov method spends.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from scipy.integrate import RK45

from principalflow._compiled import compiled
from principalflow.flows import FlippedDirection, Flow, Principal, PrincipalThirdOrder
from principalflow.objective import Objective, Vector

ADAPTIVE, EULER = "adaptive", "euler"
_FINEST = 100 * np.finfo(float).eps  # the finest relative tolerance that scipy's solvers take

Field = Callable[[float, NDArray], NDArray]


class _TooManyError(Exception):
    """The solver asks for more evaluations than it may have; at a field that isn't finite it would for ever."""


def field_of(flow: Flow, objective: Objective, tell: Callable[[int, bool], None] | None = None) -> Field:
    """Returns the flow's field as a function of time and parameters.

    Each evaluation tells how many Hessian products the Krylov method took, and whether they were enough.
    """
    flow = jax.tree.map(jnp.asarray, flow)  # a rate in an array compiles once for all rates

    def field(_: float, theta: NDArray) -> NDArray:
        vector, products, converged = _field(flow, objective, jnp.asarray(theta))
        if tell:
            tell(int(products), bool(converged))
        return np.asarray(vector)

    return field


def adaptive_or_euler(
    field: Field,
    theta: NDArray,
    times: Sequence[float] | NDArray,
    tolerance: float,
    most: int,
    euler_steps: int,
    solver: Callable[..., Any] = RK45,
) -> tuple[NDArray, str]:
    """Returns where the field leads from `theta` at these times, and by which solver: "adaptive", or else "euler".

    Adaptive solvers get stuck where a field jumps. Euler's steps then begin again at the start, as in the paper.

    Args:
        field: The field.
        theta: The start.
        times: Increasing, from 0.
        tolerance: Of the adaptive solver: of one of its steps, as a root mean square over the entries.
        most: How many evaluations the adaptive solver may take; 0 to have Euler's steps at once.
        euler_steps: How many of Euler's steps there are from one time to the next.
        solver: The adaptive one; at tight tolerances, on smooth fields, DOP853 is quicker.

    Returns:
        The states, as many as were finite, and the solver's name.
    """
    states = solve(field, theta, times, tolerance, most, solver)
    if len(states) == len(times):
        return states, ADAPTIVE
    return euler(field, theta, times, euler_steps), EULER


def solve(
    field: Field,
    theta: NDArray,
    times: Sequence[float] | NDArray,
    tolerance: float,
    most: int,
    solver: Callable[..., Any] = RK45,
) -> NDArray:
    """Returns where an adaptive solver gets at these times, the first of them 0; fewer states if it gets stuck."""
    left, states = iter(range(most)), [theta]
    if len(times) == 1:
        return np.array(states)

    def bounded(time: float, theta: NDArray) -> NDArray:
        if next(left, None) is None:
            raise _TooManyError
        return field(time, theta)

    try:
        with np.errstate(all="ignore"):  # a step that overflows is rejected
            run = solver(bounded, 0.0, theta, times[-1], first_step=times[1] - times[0], rtol=_FINEST, atol=tolerance)
            while run.status == "running":
                run.step()
                passed = [time for time in times[len(states) :] if time <= run.t]
                between = run.dense_output() if passed and passed[0] < run.t else None
                states += [between(time) if between and time < run.t else run.y for time in passed]
    except _TooManyError:
        pass
    return np.array(states)


def euler(field: Field, theta: NDArray, times: Sequence[float] | NDArray, steps: int) -> NDArray:
    """Returns where so many of Euler's steps from one time to the next lead, as long as that is finite."""
    states = [theta]
    with np.errstate(all="ignore"):
        for span in np.diff(times):
            for _ in range(steps):
                theta = theta + span / steps * field(0.0, theta)
            if not np.isfinite(theta).all():
                break
            states.append(theta)
    return np.array(states)


@compiled
def _field(flow: Flow, objective: Objective, theta: Vector):
    """Returns the field at `theta`, the Hessian products that its Krylov method took, and if they were enough."""
    if isinstance(flow, FlippedDirection):
        found = flow.direction(objective, theta)
        return flow.field(objective, theta), found.products, found.converged
    if not isinstance(flow, Principal):
        return flow.field(objective, theta), 0, True
    principal = flow.evaluate(objective, theta)
    others = flow.non_principal(objective, theta) if isinstance(flow, PrincipalThirdOrder) else 0
    return principal.vector + others, principal.products, principal.converged
