"""How far each flow is from gradient descent."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from principalflow import _checks
from principalflow._progress import progress as progress_bar
from principalflow.descent import Descent, descend
from principalflow.flows._flow import Flow, as_flow
from principalflow.flows._integrate import Spent, StateField, check_start, check_step, follow, solver_for
from principalflow.objective import Objective, checked_theta
from principalflow.status import Status

if TYPE_CHECKING:
    import pandas

Kind = Literal["local", "global"]

_AT_REST = Status.COMPLETED, "descent doesn't move, so there is no relative error"
_NO_DESCENT = Status.DIVERGED, "descent diverged"
_NOT_OF_ONE = Status.COMPLETED, "a flow of several steps has no error of a single one"


def compare(
    objective: Objective,
    theta: _checks.Numbers | PyTree,
    h: float,
    steps: int,
    flows: Iterable[Flow] | Mapping[str, Flow],
    *,
    rtol: float = 1e-6,
    step: float | None = None,
    max_steps: int = 1000,
    kinds: Sequence[Kind] = ("local", "global"),
    progress: bool | None = None,
) -> "pandas.DataFrame":
    r"""Returns a table of each flow's error against gradient descent, per step, and of what it costs.

    The `"global"` error after n steps is $\|\theta_n - \theta(nh)\|$, both from the same start (paper, fig. small MLP);
    the `"local"` one restarts the flow at each iterate, $\|\theta_n - \theta(h;\, \theta_{n-1})\|$. For complex
    flows the norm is that of the complex vector, imaginary part included. Between the periods of a flow of several
    steps, descent's steps from its last whole period are compared; it has no local error. Ctrl-C ends it with the rows
    it has.

    Args:
        objective: The loss.
        theta: The starting point, flat or as the parameters that the objective was made with.
        h: Descent's learning rate, and that of the flows that have one.
        steps: How many steps of descent.
        flows: Flows, or a mapping from names to flows; without names their class names are used.
        rtol: Tolerance of the integration, relative to the length of descent's step; below 1.
        step: Euler's step, for flows whose field jumps: where the adaptive solver gets stuck or runs out of
            `max_steps`, the step of descent is
            followed by Euler's steps of this length, and so are those after it. Without it such a flow ends there.
        max_steps: The most solver steps for one step of descent.
        kinds: Which kinds of error to compute.
        progress: Whether to show how far it is; None for where there is a terminal.

    Returns:
        One row per flow, step and kind of error, as a pandas DataFrame: `flow`, `step`, `kind`, `error`,
        `relative_error` (over the length of descent's step; below `rtol` it is the solver's own), `loss` (its real
        part) where the flow is, `descent_loss`, and of this step `evaluations` of the field, `products` (Hessian ones;
        `most_products` for one field), `cost` in gradients, `converged` (whether all of its fields were), `solver`,
        `status` (the word of a `Status`) and `message`, the same in a sentence where there is something to say. Where
        descent or the flow ended early the error is NaN, and where descent doesn't move the relative error.

    Raises:
        ValueError: As `descend` and `integrate` do; for what are no flows, two flows of one name, flows for another h,
            or unknown kinds.

    Example:
        >>> import principalflow as pf
        >>> bowl = pf.functions.quadratic([[1.0]])
        >>> flows = [pf.flows.NegativeGradient(), pf.flows.Principal(h=1.5)]
        >>> table = pf.compare(bowl, [1.0], h=1.5, steps=1, flows=flows)
        >>> [f"{e:.3f}" for e in table["error"]]
        ['0.723', '0.723', '0.000', '0.000']
    """
    named, kinds = _named(flows), _checked_kinds(kinds)
    h, rtol = _checks.rate("h", h), _checks.tolerance("rtol", rtol)
    steps, max_steps = _checks.whole("steps", steps, least=1), _checks.whole("max_steps", max_steps, least=1)
    step = None if step is None else check_step(step, h)
    start = checked_theta(objective, theta)
    for name, flow in named.items():
        if not math.isclose(of_flow := getattr(flow, "h", h), h, rel_tol=1e-6):
            raise ValueError(f"flows must model descent at h={h:g}, got {name} for h={of_flow:g}.")
        check_start(flow, objective, start)
    with _checks.renamed(keep="steps"):
        path = descend(objective, start, h, steps)
    rtol = _checks.resolvable("rtol", rtol, start.dtype)

    rows, total = [], len(named) * len(kinds) * steps
    try:
        with progress_bar(total, progress) as show:
            for name, flow in named.items():
                for row in _rows(flow, objective, path, h, steps, kinds, rtol, step, max_steps):
                    rows.append({"flow": name, **row})
                    show(len(rows), name)
    except KeyboardInterrupt:
        if not rows:
            raise
    import pandas  # here, since importing it takes long

    return pandas.DataFrame(rows)


def _rows(
    flow: Flow,
    objective: Objective,
    path: Descent,
    h: float,
    steps: int,
    kinds: Sequence[Kind],
    rtol: float,
    step: float | None,
    max_steps: int,
) -> Iterator[dict[str, Any]]:
    """Yields the rows of one flow."""
    field = StateField(flow, objective, flow.start(objective, path.thetas[0]))
    solver, finest = solver_for(rtol, flow), _checks.resolution(path.thetas.dtype)
    step = step if flow.euler_step is None else flow.euler_step
    first = None
    for kind in kinds:
        state, used = field.start, solver
        ended = _NOT_OF_ONE if kind == "local" and flow.period > 1 else None
        states = [state]
        for n in range(1, steps + 1):
            ended = ended if n < len(path.thetas) else _NO_DESCENT
            row: dict[str, Any] = {"step": n, "kind": kind, "error": np.nan, "relative_error": np.nan, "loss": np.nan}
            row["descent_loss"] = float(path.losses[n].real) if n < len(path.losses) else np.nan
            if ended:
                yield row | _spent(Spent(), used, *ended)
                continue
            before, after = path.thetas[n - 1], path.thetas[n]
            length = float(jnp.linalg.norm(after - before))
            if kind == "local":
                state, used = field.state(flow.start(objective, before)), solver
                states = [state]
            # The solver bounds the root mean square of its error, so the tolerance is shared by all entries.
            atol = max(rtol * length, finest) / math.sqrt(after.size)
            if n > 1 or first is None:  # both kinds have the first step in common
                field.spent = Spent()
                followed = follow(field, state, np.array([0.0, h]), finest, atol, used, step, max_steps)
                first = first or (followed, field.spent)
            else:
                followed, field.spent = first
            ending = followed.status, "" if followed.status is Status.COMPLETED else followed.message
            if followed.status is Status.INTERRUPTED:
                raise KeyboardInterrupt
            if reached := len(followed.states) == 2:
                state, used = followed.states[1], followed.solver
                states = [*states, state][-flow.period - 1 :]
                theta = flow.at_step(
                    objective, [field.unravelled(each) for each in states], n if kind == "global" else 1
                )
                row["error"] = float(jnp.linalg.norm(theta - after))
                row["relative_error"] = row["error"] / length if length else np.nan
                row["loss"] = float(objective.value(theta).real)
                if not field.spent.error <= rtol:
                    known = f"the field is only known to {field.spent.error:.1e}"
                    ending = Status.INEXACT, f"{known}: {flow.advice(field.spent.error)}"
                ending = ending if length else _AT_REST
            yield row | _spent(field.spent, followed.solver, *ending)
            ended = None if reached or kind == "local" else ending


def _spent(spent: Spent, solver: str, status: Status, message: str) -> dict[str, Any]:
    """Returns the columns on what a step took and how it ended."""
    columns = {name: value for name, value in vars(spent).items() if name not in ("error", "trials", "settled")}
    return columns | {"solver": solver, "status": str(status), "message": message}


def _named(flows: Iterable[Flow] | Mapping[str, Flow]) -> dict[str, Flow]:
    flows = flows if isinstance(flows, Iterable) else [flows]
    pairs = list(flows.items()) if isinstance(flows, Mapping) else [(type(flow).__name__, flow) for flow in flows]
    for _, flow in pairs:
        as_flow(flow, name="flows")
    names = [str(name) for name, _ in pairs]
    if not names or len(set(names)) < len(names):
        raise ValueError(f"flows must be one or more flows of different names, got {names}; give a dict of names.")
    return dict(zip(names, [flow for _, flow in pairs], strict=True))


def _checked_kinds(kinds: Any) -> tuple[Kind, ...]:
    kinds = (kinds,) if isinstance(kinds, str) else kinds
    if not isinstance(kinds, Sequence) or not kinds:
        raise ValueError(f"kinds must be one or more of 'local' and 'global', got {_checks.shown(kinds)}.")
    for kind in kinds:
        _checks.one_of("kinds", kind, ("local", "global"))
    return tuple(dict.fromkeys(kinds))
