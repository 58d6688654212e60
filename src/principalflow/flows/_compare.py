"""How far each flow is from gradient descent."""

from collections.abc import Iterable, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from principalflow import _checks
from principalflow.descent import descend
from principalflow.flows._flow import Flow
from principalflow.flows._integrate import check_start, solve, solver_for
from principalflow.objective import Objective


def compare(
    objective: Objective,
    theta: _checks.Numbers,
    h: float,
    steps: int,
    flows: Iterable[Flow] | Mapping[str, Flow],
    rtol: float = 1e-9,
    atol: float = 1e-12,
    max_steps: int = 4096,
) -> Any:
    r"""Returns a table of each flow's error against gradient descent, per step.

    The `"global"` error after n steps is $\|\theta_n - \theta(nh)\|$, both from the same start (paper, fig. small MLP);
    the `"local"` one restarts the flow at each iterate, $\|\theta_n - \theta(h;\, \theta_{n-1})\|$.

    Args:
        objective: The loss.
        theta: The flat starting point.
        h: Descent's learning rate. The flows bring their own, usually the same.
        steps: How many steps of descent.
        flows: Flows, or a mapping from names to flows; without names their class names are used.
        rtol: Relative tolerance of the integration.
        atol: Absolute tolerance of the integration.
        max_steps: The most solver steps for one step of descent.

    Returns:
        One row per flow, step and kind of error, as a pandas DataFrame, or as a dict of columns where
        pandas isn't installed: `flow`, `step`, `kind`, `error`, `relative_error` (over the length of
        descent's step), `evaluations` (of the field, up to this row), `status`. Where descent or the flow
        ended early the error is NaN and `status` says why.

    Raises:
        ValueError: As `descend` and `integrate` do, or for two flows of one name.

    Example:
        >>> import principalflow as pf
        >>> bowl = pf.functions.quadratic([[1.0]])
        >>> flows = [pf.flows.NegativeGradient(), pf.flows.Principal(h=1.5)]
        >>> table = pf.compare(bowl, [1.0], h=1.5, steps=1, flows=flows)
        >>> [f"{e:.3f}" for e in table["error"]]
        ['0.723', '0.723', '0.000', '0.000']
    """
    named = _named(flows)
    rtol, atol = _checks.positive("rtol", rtol), _checks.non_negative("atol", atol)
    steps, max_steps = _checks.whole("steps", steps, least=1), _checks.whole("max_steps", max_steps, least=1)
    start = objective.flat("theta", theta)
    for flow in named.values():
        start = check_start(flow, objective, start)
    path = descend(objective, start, h, steps)
    _checks.warn_if_coarse("rtol", rtol, start.dtype)

    def follow(flow, theta, times, limit):
        return solve(flow, objective, theta, times, rtol, atol, solver_for(rtol), None, limit)

    rows = []
    lengths = np.linalg.norm(np.diff(path.thetas, axis=0), axis=1)
    for name, flow in named.items():
        whole = follow(flow, start, h * np.arange(steps + 1), steps * max_steps)
        for n in range(1, steps + 1):
            if n >= len(path.thetas):
                rows += [(name, n, kind, np.nan, np.nan, 0, "descent diverged") for kind in ("local", "global")]
                continue
            one = follow(flow, path.thetas[n - 1], np.array([0.0, h]), max_steps)
            local = _distance(path.thetas[n], one.thetas, 1)
            rows.append((name, n, "local", local, local / lengths[n - 1], one.evaluations, one.status))
            total = _distance(path.thetas[n], whole.thetas, n)
            rows.append((name, n, "global", total, total / lengths[n - 1], whole.evaluations, whole.status))
    columns = ("flow", "step", "kind", "error", "relative_error", "evaluations", "status")
    return _table(columns, rows)


def _distance(theta: Array, thetas: Array, index: int) -> float:
    return float(jnp.linalg.norm(thetas[index] - theta)) if index < len(thetas) else float("nan")


def _named(flows: Iterable[Flow] | Mapping[str, Flow]) -> dict[str, Flow]:
    if isinstance(flows, Flow):
        flows = [flows]
    pairs = flows.items() if isinstance(flows, Mapping) else [(type(flow).__name__, flow) for flow in flows]
    names = [str(name) for name, _ in pairs]
    if not names or len(set(names)) < len(names):
        raise ValueError(f"flows must be one or more flows of different names, got {names}; give a dict of names.")
    return dict(zip(names, [flow for _, flow in pairs], strict=True))


def _table(columns: tuple[str, ...], rows: list[tuple]) -> Any:
    table = {name: np.array(column) for name, column in zip(columns, zip(*rows, strict=True), strict=True)}
    try:
        import pandas
    except ImportError:
        return table
    return pandas.DataFrame(table)
