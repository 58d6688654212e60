"""What a monitor has to tell: events, which are values with a sentence, and what changed from row to row."""

import math
from dataclasses import dataclass, field
from typing import Literal

from principalflow.monitor._threshold import Threshold
from principalflow.record import Row

Kind = Literal["above", "below", "rising", "falling", "unconverged", "nonfinite", "unmeasured"]


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

    Attributes:
        kind: What happened.
        step: When.
        value: What was measured.
        limit: What it is compared with.
        sentence: It in words.

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

    def __str__(self) -> str:
        return self.sentence


def in_words(row: Row) -> Row:
    """Returns a row as files hold it, with its events as sentences."""
    return row | {"events": [str(event) for event in row["events"]]} if "events" in row else row


class Changes:
    """Compares each row with what was before.

    Attributes:
        states: What holds at the moment, by name; empty before the first row.
    """

    def __init__(self, tol: float):
        self.states: dict[str, bool] = {}
        self._tol = tol

    def events(self, row: Row, failure: str, threshold: Threshold) -> list[Event]:
        """Returns what is new in a row; `failure` is why it has nothing but the loss, empty where it has all."""
        events = self._failures(row, failure)
        if "eigenvalue_0" in row:
            events += [*self._crossing(row, threshold), *self._prediction(row, threshold), *self._convergence(row)]
        return events

    def _failures(self, row: Row, failure: str) -> list[Event]:
        step, loss, events = row["step"], row["loss"], []
        broken = not math.isfinite(loss)
        if self._change("broken", broken) and broken:
            events.append(Event("nonfinite", step, loss, math.inf, f"the loss is not finite at step {step}"))
        if self._change("failing", bool(failure)) and failure and not broken:
            sentence = f"only the loss could be measured at step {step}: {failure}"
            events.append(Event("unmeasured", step, loss, math.nan, sentence))
        return events

    def _crossing(self, row: Row, threshold: Threshold) -> list[Event]:
        step, sharpness, limit = row["step"], row["eigenvalue_0"], row["threshold"]
        known, above = "above" in self.states, sharpness > limit
        if not self._change("above", above):
            return []
        verb = "fell below" if not above else "crossed" if known else "is above"
        formula = threshold.formula + threshold.why
        sentence = f"lambda_0 {verb} {formula} at step {step}: {sharpness:.4g} against {limit:.4g}"
        return [Event("above" if above else "below", step, sharpness, limit, sentence)]

    def _prediction(self, row: Row, threshold: Threshold) -> list[Event]:
        change, loss = row["loss_change_discrete"], row["loss"]
        rising = change > 0
        if not self._change("rising", rising):
            return []
        # With momentum the optimiser's own next step is another one.
        what = "the next step" if threshold.times_h == 2 else "a step without momentum"
        verb = "raise the loss" if rising else "lower the loss again"
        sentence = f"{what} is predicted to {verb} (by {abs(change):.2g}, from {loss:.4g})"
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
