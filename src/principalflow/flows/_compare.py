"""How far each flow is from gradient descent."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np
import pandas

from principalflow import _checks
from principalflow.descent import descend
from principalflow.flows._flow import Flow, as_flow
from principalflow.flows._integrate import check_start, solve, solver_for
from principalflow.objective import Objective, as_objective

Kind = Literal["local", "global"]

_AT_REST = "descent doesn't move"


def compare(
    objective: Objective,
    theta: _checks.Numbers,
    h: float,
    steps: int,
    flows: Iterable[Flow] | Mapping[str, Flow],
    rtol: float = 1e-6,
    max_steps: int = 1000,
    kinds: Sequence[Kind] = ("local", "global"),
) -> pandas.DataFrame:
    r"""Returns a table of each flow's error against gradient descent, per step.

    The `"global"` error after n steps is $\|\theta_n - \theta(nh)\|$, both from the same start (paper, fig. small MLP);
    the `"local"` one restarts the flow at each iterate, $\|\theta_n - \theta(h;\, \theta_{n-1})\|$. For complex
    flows the norm is that of the complex vector, imaginary part included.

    Args:
        objective: The loss.
        theta: The flat starting point.
        h: Descent's learning rate. The flows bring their own, usually the same.
        steps: How many steps of descent.
        flows: Flows, or a mapping from names to flows; without names their class names are used.
        rtol: Tolerance of the integration, relative to the length of descent's step; below 1.
        max_steps: The most solver steps for one step of descent.
        kinds: Which kinds of error to compute.

    Returns:
        One row per flow, step and kind of error, as a pandas DataFrame: `flow`, `step`, `kind`, `error`,
        `relative_error` (over the length of descent's step; below `rtol` it is the solver's own), `evaluations` (of
        the field, for this step), `status`. Where descent or the flow ended early the error is NaN, and where descent
        doesn't move the relative error; `status` says why.

    Raises:
        ValueError: As `descend` and `integrate` do, for what are no flows, two flows of one name, or unknown kinds.

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
    start = as_objective(objective).flat("theta", theta)
    for flow in named.values():
        check_start(flow, objective, start)
    with _checks.renamed(keep="steps"):
        path = descend(objective, start, h, steps)
    rtol = _checks.resolvable("rtol", rtol, start.dtype)

    solver, finest = solver_for(rtol), _checks.resolution(start.dtype)

    def follow(flow: Flow, kind: str) -> Iterator[tuple]:
        state, ended = flow.start(objective, start), None
        for n in range(1, steps + 1):
            ended = "descent diverged" if n >= len(path.thetas) else ended
            if ended:
                yield n, kind, np.nan, np.nan, 0, ended
                continue
            if kind == "local":
                state = flow.start(objective, path.thetas[n - 1])
            length = float(jnp.linalg.norm(path.thetas[n] - path.thetas[n - 1]))
            # The solver bounds the root mean square of its error, so the tolerance is shared by all entries.
            atol = max(rtol * length, finest) / np.sqrt(start.size)
            times = np.array([0.0, h])
            solution, state = solve(flow, objective, state, times, finest, atol, solver, None, max_steps, rtol)
            reached = len(solution.thetas) == 2
            error = float(jnp.linalg.norm(solution.thetas[1] - path.thetas[n])) if reached else np.nan
            relative, status = (error / length, solution.status) if length else (np.nan, _AT_REST)
            yield n, kind, error, relative, solution.evaluations, status if reached else solution.status
            ended = None if reached or kind == "local" else solution.status

    rows = [(name, *row) for name, flow in named.items() for kind in kinds for row in follow(flow, kind)]
    columns = ("flow", "step", "kind", "error", "relative_error", "evaluations", "status")
    return pandas.DataFrame(rows, columns=columns)


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
