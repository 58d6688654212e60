"""What a monitor has to tell: events, which are values with a sentence, and what changed from row to row."""

import math
from dataclasses import dataclass, field
from typing import Literal

from principalflow.optimizers import Edge
from principalflow.record import Row

Kind = Literal[
    "above",
    "below",
    "rising",
    "falling",
    "unconverged",
    "nonfinite",
    "unmeasured",
    "unknown",
    "inexact",
    "spike",
    "setback",
]
Cause = Literal["rate", "sharpening", "stale", "batch", "burst", "unknown"]

# Before this step Adam's metric is that of few gradients and changes as fast as the parameters do: thresholds are those
# of a metric that stays, and to be above one for a moment says nothing yet.
EARLY = 20


@dataclass(frozen=True)
class Event:
    r"""Something that changed in a training loop; `str(event)` tells it in a sentence.

    | kind | what happened | value | limit |
    |---|---|---|---|
    | `"above"`, `"below"` | $\lambda_0$ got above the threshold, or back below it | $\lambda_0$ | the threshold |
    | `"rising"`, `"falling"` | the next step is predicted to raise the loss, or no longer | the loss's change | 0 |
    | `"unconverged"` | the eigenpairs did not converge | the largest residual | the one that was asked for |
    | `"nonfinite"` | the loss is not finite | the loss | infinity |
    | `"unmeasured"` | nothing but the loss could be measured | the loss | NaN |
    | `"unknown"` | no threshold is known for the optimiser | $\lambda_0$ | NaN |
    | `"inexact"` | Hessian products are differences of gradients | their estimated error | 0 |
    | `"spike"` | the loss spiked, for a `cause` | its highest | its level before |
    | `"setback"` | the loss rose and stayed up, for a `cause` | its highest | its best level before |

    Attributes:
        kind: What happened.
        step: When.
        value: What was measured.
        limit: What it is compared with.
        sentence: It in words.
        cause: Of a spike or setback, else empty: `"rate"` (too high, from the start or since it was raised),
            `"sharpening"` (the curvature grew beyond the edge), `"stale"` (squared gradients left Adam's average of
            them behind), `"batch"` (a bad one), `"burst"` (of the gradient) or `"unknown"`.

    Example:
        >>> import jax.numpy as jnp
        >>> import principalflow as pf
        >>> monitor = pf.Monitor(pf.functions.quadratic(jnp.diag(jnp.array([1.0, 4.0]))), k=1)
        >>> monitor.observe(0, jnp.ones(2), 0.8)["events"][0]
        Event(kind='above', step=0, value=4.0, limit=2.5)
        >>> print(monitor.events[0])
        lambda_0 is above 2/h at step 0: 4 against 2.5
    """

    kind: Kind
    step: int
    value: float
    limit: float
    sentence: str = field(repr=False)
    cause: Cause | Literal[""] = field(default="", repr=False, kw_only=True)

    def __str__(self) -> str:
        return self.sentence


def in_words(row: Row) -> Row:
    """Returns a row as files hold it, with its events as sentences, and without them where there are none."""
    sentences = [str(event) for event in row.get("events", [])]
    rest = {name: value for name, value in row.items() if name != "events"}
    return rest | {"events": sentences} if sentences else rest


def is_settling(step: int, edge: Edge) -> bool:
    """Whether an optimiser's metric is that of so few gradients that it changes as fast as the parameters."""
    return edge.second_moment is not None and step < EARLY


class Changes:
    """Compares each row with what was before.

    Attributes:
        states: What holds at the moment, by name; empty before the first row.
    """

    def __init__(self, tol: float):
        self.states: dict[str, bool] = {}
        self._tol = tol

    def events(self, row: Row, failure: str, edge: Edge | None) -> list[Event]:
        """Returns what is new in a row.

        Args:
            row: The row.
            failure: Why it has nothing but the loss, empty where it has all that was asked for.
            edge: That of the optimiser; None where the curvature wasn't to be measured.
        """
        events = self._nonfinite(row)
        if edge is not None:
            events += self._unmeasured(row, failure)
        if edge is not None and "eigenvalue_0" in row:
            events += [*self._unknown(row, edge), *self._inexact(row), *self._crossing(row, edge)]
            events += [*self._prediction(row, edge), *self._convergence(row)]
        return events

    def _nonfinite(self, row: Row) -> list[Event]:
        step, events = row["step"], []
        for name, words in (("loss", "the loss"), ("batch_loss", "the loss of the step's batch")):
            broken = name in row and not math.isfinite(row[name])
            if name in row and self._change(f"broken_{name}", broken) and broken:
                events.append(Event("nonfinite", step, row[name], math.inf, f"{words} is not finite at step {step}"))
        return events

    def _unmeasured(self, row: Row, failure: str) -> list[Event]:
        if not self._change("failing", bool(failure)) or not failure or not math.isfinite(row["loss"]):
            return []
        sentence = f"only the loss could be measured at step {row['step']}: {failure}"
        return [Event("unmeasured", row["step"], row["loss"], math.nan, sentence)]

    def _unknown(self, row: Row, edge: Edge) -> list[Event]:
        if not self._change("unknown", bool(edge.unknown)) or not edge.unknown:
            return []
        return [Event("unknown", row["step"], row["eigenvalue_0"], math.nan, edge.unknown)]

    def _inexact(self, row: Row) -> list[Event]:
        error = row.get("products_error")
        if not self._change("inexact", error is not None) or error is None:
            return []
        sentence = (
            f"Hessian products are differences of gradients from step {row['step']} on, since the model has no second "
            f"derivatives; their relative error is about {error:.0e}"
        )
        return [Event("inexact", row["step"], error, 0.0, sentence)]

    def _crossing(self, row: Row, edge: Edge) -> list[Event]:
        if edge.unknown or is_settling(row["step"], edge):
            return []
        step, sharpness, limit = row["step"], row["eigenvalue_0"], row["threshold"]
        known, above = "above" in self.states, sharpness > limit
        if not self._change("above", above):
            return []
        verb = "fell below" if not above else "crossed" if known else "is above"
        formula = edge.formula + edge.why
        sentence = f"lambda_0 {verb} {formula} at step {step}: {sharpness:.4g} against {limit:.4g}"
        return [Event("above" if above else "below", step, sharpness, limit, sentence)]

    def _prediction(self, row: Row, edge: Edge) -> list[Event]:
        if edge.has_momentum or edge.unknown:  # the optimiser's own next step is another one
            return []
        change, loss = row["loss_change_discrete"], row["loss"]
        rising = change > 0
        if not self._change("rising", rising):
            return []
        verb = "raise the loss" if rising else "lower the loss again"
        sentence = f"the next step is predicted to {verb} (by {abs(change):.2g}, from {loss:.4g})"
        return [Event("rising" if rising else "falling", row["step"], change, 0.0, sentence)]

    def _convergence(self, row: Row) -> list[Event]:
        if not self._change("unconverged", not row["converged"]) or row["converged"]:
            return []
        worst = max(value for name, value in row.items() if name.startswith("residual_"))
        limit = self._tol * max(abs(value) for name, value in row.items() if name.startswith("eigenvalue_"))
        sentence = f"the eigenpairs did not converge at step {row['step']}: they are known to {worst:.2g} only"
        return [Event("unconverged", row["step"], worst, limit, sentence)]

    def _change(self, state: str, now: bool) -> bool:
        """Whether a state begins or ends."""
        before, self.states[state] = self.states.get(state, False), now
        return now != before
