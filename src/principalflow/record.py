"""All that governs stability, recorded along a run."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from principalflow import _checks, drift, stability
from principalflow.flows import Flow, as_flow
from principalflow.objective import Objective, Vector, as_objective
from principalflow.optimizers import Edge
from principalflow.spectrum import Eigenpairs, Trail

__all__ = ["Record", "Recording", "Row", "WarmStart", "row_of"]

Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Record:
    r"""What `descend` records, and how often; each record starts at the eigenpairs of the one before.

    The columns, i counting the directions of largest curvature from 0:

    - `step`, `learning_rate`, `loss`, `gradient_norm`;
    - `eigenvalue_i` with its `residual_i`; `projection_i`, $g^T u_i \ge 0$; the stability coefficient as
      `coefficient_i_real` and `coefficient_i_imag`; `regime_i`;
    - the step's measured `loss_change`, and its predictions `loss_change_continuous` and `loss_change_discrete`, in all
      and for each direction (`loss_change_i_continuous`, ...); `relative_progress`, NaN where it is only rounding;
    - `next_projection_i`, $g^T u_i$ after the step with the $u_i$ before it, and its predictions by the three flows,
      `next_projection_i_ngf`, `_igr` and `_pf` (paper, section 4.1);
    - `drift_estimate`, $\frac{h^2}2\|Hg\|$, and `drift`, measured against `flow` where one is given;
    - `products`, the Hessian products spent, and `converged`, whether all eigenpairs are within the tolerance.

    Changes and predictions are those of a step down the gradient at the rate, also where the run takes another, as with
    momentum.

    Given the edge of an optimiser that rescales gradients (`principalflow.optimizers.Edge`), eigenpairs, projections,
    coefficients and drift are those in its metric: of $P^{-1/2} (H + W) P^{-1/2}$ and $P^{-1/2} (g + W\theta)$. The
    step is then $-h P^{-1}(g + W\theta)$, and changes are those of the loss with the L2 weight decay W, if any.

    Args:
        every: Record every `every` steps, from the start on.
        k: How many directions; all, where there are fewer.
        tol: The eigenpairs' residual, relative to the largest |eigenvalue|.
        flow: The flow to measure the drift of each recorded step against: an integration each.
        on_host: Whether the vectors of the eigensolver are kept in the machine's memory, as for `top_eigenpairs`.

    Raises:
        ValueError: For every or k below 1, a tol not above 0 and below 1, or a flow that is none.

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
    on_host: bool = False

    def __post_init__(self):
        every, k = _checks.whole("every", self.every, least=1), _checks.whole("k", self.k, least=1)
        for name, number in dict(every=every, k=k, tol=_checks.tolerance("tol", self.tol)).items():
            object.__setattr__(self, name, number)  # NumPy's whole numbers would be traced as arrays
        if self.flow is not None:
            as_flow(self.flow)

    def start(self, objective: Objective) -> "Recording":
        """Returns what takes one record after another, called with the flat parameters and the learning rate.

        With it a run that `descend` didn't make can be recorded too, at rates that change.
        """
        return Recording(objective, self)


class WarmStart:
    """Where the next search for eigenpairs starts, to be kept and restored."""

    _eigenpairs: Eigenpairs | None = None

    @property
    def state(self) -> dict[str, Any]:
        """The arrays that the next record starts from, by name; none before the first, or where nothing is carried."""
        trail = self._eigenpairs and self._eigenpairs.trail
        return {} if trail is None else vars(trail)

    def restore(self, state: Mapping[str, Any]) -> None:
        """Makes the next record, bit for bit, what it would have been where `state` was read."""
        none = np.zeros(0)  # the search takes nothing of them but the trail
        trail = Trail(**state) if state else None
        self._eigenpairs = trail and Eigenpairs(none, trail.found, none, 0, True, "largest", "block", trail)


class Recording(WarmStart):
    """Takes one record after another, each starting at the eigenpairs of the one before; see `Record.start`.

    Attributes:
        gradient: Of the last record, for a step from there; not there before the first.
    """

    gradient: Vector

    def __init__(self, objective: Objective, record: Record):
        self._objective, self._record = as_objective(objective), record

    def __call__(self, theta: _checks.Numbers, h: float, edge: Edge | None = None) -> Row:
        """Returns one record, the columns of `Record` by their names; in the metric of `edge`, if one is given."""
        h, theta = _checks.rate("h", h), self._objective.flat("theta", theta)
        metric, r = {} if edge is None else edge.metric, self._record
        options = dict(guess=self._eigenpairs, tol=r.tol, on_host=r.on_host, **metric)
        measured = stability.measure(self._objective, theta, r.k, **options)
        self._eigenpairs, self.gradient = measured.eigenpairs, measured.gradient
        if metric:
            row = self._in_metric(theta, h, measured, **metric)
        else:
            next_loss, next_gradient = self._objective.value_and_gradient(theta - h * measured.gradient)
            row = row_of(h, measured, float(next_loss), next_gradient)
        if self._record.flow is not None:
            row["drift"] = drift.per_iteration(self._objective, theta, h, flow=self._record.flow)
        return row

    def _in_metric(self, theta: Vector, h: float, measured: stability.Measured, preconditioner: Any, decay: Any) -> Row:
        """Returns the record of a step in the metric of a preconditioner, on the loss with its L2 weight decay."""
        scale = 1.0 if preconditioner is None else 1 / jnp.sqrt(preconditioner)
        ahead = theta - h * scale * measured.gradient
        loss, gradient = self._objective.value_and_gradient(ahead)
        added = (ahead @ (decay * ahead) - theta @ (decay * theta)) / 2
        return row_of(h, measured, float(loss + added), scale * (gradient + decay * ahead))


def row_of(h: float, m: stability.Measured, next_loss: float, next_gradient: Any) -> Row:
    """Returns a record from what was measured, by JAX or by PyTorch, before and after a step of descent."""
    s, loss_change = stability.formulas(h, m), next_loss - m.loss
    eigenvalues = m.eigenpairs.values
    row: Row = {
        "learning_rate": h,
        "loss": m.loss,
        "gradient_norm": m.gradient_norm,
        "loss_change": loss_change,
        "loss_change_continuous": s["loss_change"].total_continuous,
        "loss_change_discrete": s["loss_change"].total_discrete,
        "relative_progress": stability.progress_ratio(h, m.loss, next_loss, m.gradient_square, m.eps),
        "drift_estimate": s["drift"],
        "products": m.eigenpairs.products,
        "converged": m.eigenpairs.converged,
    }
    z = h * eigenvalues
    with np.errstate(over="ignore"):  # in the closed forms of `predict_projection` after one step
        growth = {"ngf": np.exp(-z), "igr": np.exp(-z * (1 + z / 2)), "pf": 1 - z}
    by_direction = {
        "eigenvalue_{}": eigenvalues,
        "residual_{}": m.eigenpairs.residuals,
        "projection_{}": m.projections,
        "coefficient_{}_real": s["coefficients"].real,
        "coefficient_{}_imag": s["coefficients"].imag,
        "regime_{}": s["regimes"],
        "loss_change_{}_continuous": s["loss_change"].continuous,
        "loss_change_{}_discrete": s["loss_change"].discrete,
        "next_projection_{}": m.signs * stability.overlaps(m.eigenpairs.vectors, next_gradient),
        **{f"next_projection_{{}}_{name}": factor * m.projections for name, factor in growth.items()},
    }
    for label, values in by_direction.items():
        row |= {label.format(i): value for i, value in enumerate(np.asarray(values).tolist())}
    return row
