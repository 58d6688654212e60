"""All that governs stability, recorded along a run."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from principalflow import _checks, drift, stability
from principalflow.flows import IGR, Flow, NegativeGradient, Principal
from principalflow.flows._flow import as_flow
from principalflow.objective import Objective, Vector

Row = dict[str, Any]


@dataclass(frozen=True)
class Record:
    r"""What `descend` records, and how often; each record starts at the eigenpairs of the one before.

    The columns, i counting the directions of largest curvature from 0:

    - `step`, `learning_rate`, `loss`, `gradient_norm`;
    - `eigenvalue_i` with its `residual_i`; `projection_i`, $g^T u_i \ge 0$; the stability coefficient as
      `coefficient_i_real` and `coefficient_i_imag`; `regime_i`;
    - the step's measured `loss_change`, and its predictions `loss_change_continuous` and `loss_change_discrete`, in all
      and for each direction (`loss_change_i_continuous`, ...); `relative_progress`;
    - `next_projection_i`, $g^T u_i$ after the step with the $u_i$ before it, and its predictions by the three flows,
      `next_projection_i_ngf`, `_igr` and `_pf` (paper, section 4.1);
    - `drift_estimate`, $\frac{h^2}2\|Hg\|$, and `drift`, measured against `flow` where one is given;
    - `products`, the Hessian products spent, and `converged`, whether all eigenpairs are within the tolerance.

    Args:
        every: Record every so many steps, from the start on.
        k: How many directions; all, where there are fewer.
        tol: The eigenpairs' residual, relative to the largest |eigenvalue|.
        flow: The flow to measure the drift of each recorded step against: an integration each.

    Raises:
        ValueError: For every or k below 1, a tol not above 0, or a flow that is none.

    Example:
        >>> import principalflow as pf
        >>> bowl = pf.functions.quadratic([[1.0]])
        >>> path = pf.descend(bowl, [1.0], h=1.5, steps=4, record=pf.Record(every=2))
        >>> path.records["projection_0"].tolist()
        [1.0, 0.25, 0.0625]
    """

    every: int = 1
    k: int = 4
    tol: float = 1e-2
    flow: Flow | None = None

    def __post_init__(self):
        _checks.whole("every", self.every, least=1)
        _checks.whole("k", self.k, least=1)
        _checks.positive("tol", self.tol)
        if self.flow is not None:
            as_flow(self.flow)

    def start(self, objective: Objective, h: float) -> Callable[[Vector], Row]:
        """Returns the function that takes one record after another, at learning rate h.

        With it a run that `descend` didn't make can be recorded too: call it with the flat parameters.
        """
        eigenpairs = None

        def take(theta: Vector) -> Row:
            nonlocal eigenpairs
            s = stability.analyse(objective, theta, h, self.k, eigenpairs, self.tol)
            eigenpairs = s.eigenpairs
            row = _row(objective, theta, h, s)
            if self.flow is not None:
                row["drift"] = drift.per_iteration(objective, theta, h, self.flow)
            return row

        return take


def _row(objective: Objective, theta: Vector, h: float, s: stability.Stability) -> Row:
    next_loss, next_gradient = objective.value_and_gradient(theta - h * s.gradient)
    loss_change = float(next_loss) - s.loss
    row: Row = {
        "learning_rate": h,
        "loss": s.loss,
        "gradient_norm": float(jnp.linalg.norm(s.gradient)),
        "loss_change": loss_change,
        "loss_change_continuous": s.loss_change.total_continuous,
        "loss_change_discrete": s.loss_change.total_discrete,
        "relative_progress": stability.progress_ratio(loss_change, h, s.gradient),
        "drift_estimate": s.drift,
        "products": s.eigenpairs.products,
        "converged": s.eigenpairs.converged,
    }
    flows = {"ngf": NegativeGradient(), "igr": IGR(h), "pf": Principal(h)}
    predicted = {
        name: stability.predict_projection(flow, s.eigenvalues, s.projections, h).real for name, flow in flows.items()
    }
    by_direction = {
        "eigenvalue_{}": s.eigenvalues,
        "residual_{}": s.eigenpairs.residuals,
        "projection_{}": s.projections,
        "coefficient_{}_real": np.real(s.coefficients),
        "coefficient_{}_imag": np.imag(s.coefficients),
        "regime_{}": np.array(s.regimes),
        "loss_change_{}_continuous": s.loss_change.continuous,
        "loss_change_{}_discrete": s.loss_change.discrete,
        "next_projection_{}": s.vectors.T @ next_gradient,
        **{f"next_projection_{{}}_{name}": values for name, values in predicted.items()},
    }
    for label, values in by_direction.items():
        row |= {label.format(i): value for i, value in enumerate(np.asarray(values).tolist())}
    return row
