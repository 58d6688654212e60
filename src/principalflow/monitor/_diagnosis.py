"""Why a run spiked, in words: what the rows that led to it say, and what would have been stable."""

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np

from principalflow.monitor._causes import (
    FEW,
    LONGER,
    Lead,
    Rise,
    burst_at,
    is_at_edge,
    is_bad_batch,
    is_measured_at_edge,
    is_too_high_from_the_start,
    middle,
    raised_rate,
    surprise_at,
)
from principalflow.monitor._events import Cause, Event
from principalflow.monitor._setbacks import Setbacks
from principalflow.monitor._spikes import Spike, Spikes
from principalflow.record import Row

# The second-moment decay to try: its average lags behind the squared gradient by 1 / (1 - 0.95) = 20 at the most.
_BETA2 = 0.95
# What a rate is divided by in addition to what its steps tell, and where they don't tell.
_MARGIN, _UNMEASURED = 1.5, 10.0
_NAMES = {
    "rate": "a rate that is too high",
    "sharpening": "sharpening",
    "stale": "a stale average of squared gradients",
    "batch": "a bad batch",
    "burst": "a burst of the gradient",
    "unknown": "something that the rows don't show",
}


class Diagnosis:
    """Takes one row after another and says why the loss spiked, each time once: when the peak is past.

    It keeps a few hundred rows. It isn't part of a monitor's state: a restored monitor begins with no rows.
    """

    def __init__(self) -> None:
        self._spikes, self._setbacks = Spikes(), Setbacks()
        self._told: Spike | None = None

    def add(self, row: Row) -> list[Event]:
        """Returns the spike, or the setback, that a row completes, if it does."""
        self._spikes.add(row)
        spike = self._spikes.current
        events = self._tell() if spike is not None and spike.shows else []
        setback = self._setbacks.add(row) if self._spikes.counts(row) else None
        return events if setback is None or self._has_told(self._setbacks.best_step) else [*events, _setback(setback)]

    def aftermath(self) -> str:
        """Returns where the loss stands if it hasn't come back to its best level; else nothing."""
        seen = self._setbacks
        if seen.is_back:
            return ""
        stands = f"it is about {seen.level:.3g}, and was about {seen.best:.3g} at step {seen.best_step}"
        return f"The loss hasn't come back: {stands}."

    def pending(self) -> list[Event]:
        """Returns the spike that is still in the making, if there is one: for the end of a loop."""
        told = self._told
        events = self._tell()
        self._told = told
        return events

    def _tell(self) -> list[Event]:
        spike = self._spikes.current
        if spike is None or spike is self._told:
            return []
        self._told = spike
        cause, why = _explained(spike, is_sudden=True)
        sentence = f"{_head(spike)}: {why}"
        return [Event("spike", spike.onset["step"], spike.peak, spike.level, sentence, cause=cause)]

    def _has_told(self, since: int) -> bool:
        """Whether a spike after a step was reported."""
        return self._told is not None and self._told.onset["step"] >= since


def _setback(spike: Spike) -> Event:
    onset = spike.onset["step"]
    cause, why = _explained(spike, is_sudden=False)
    head = f"the loss rose from step {onset} on, from about {spike.level:.3g} to as much as {spike.peak:.3g}"
    return Event("setback", onset, spike.peak, spike.level, f"{head}, and stayed up: {why}", cause=cause)


def spikes_in_words(spikes: Sequence[Event]) -> str:
    """Returns all spikes in a few sentences: how many of which cause, and of each cause the highest."""
    if not spikes:
        return ""
    by_cause = Counter(event.cause for event in spikes).most_common()
    causes = ", ".join(f"{n} because of {_NAMES[cause]}" for cause, n in by_cause)
    count = f"The loss rose out of line {len(spikes)} times: {causes}. "
    highest = [max((e for e in spikes if e.cause == cause), key=lambda e: e.value) for cause, _ in by_cause]
    return (count if len(spikes) > 1 else "") + " ".join(f"{capital(str(event))}." for event in highest)


def _explained(spike: Spike, *, is_sudden: bool) -> tuple[Cause, str]:
    try:
        return _explain(Lead(spike), is_sudden=is_sudden)
    except Exception as error:  # a diagnosis must not end the loop
        return "unknown", f"the rows can't be read ({type(error).__name__}: {error})"


def _explain(lead: Lead, *, is_sudden: bool) -> tuple[Cause, str]:
    """Returns the first cause that the rows speak for, with the evidence and advice.

    A bad batch and a raised rate come first, since they leave their mark before all that follows from them. A gradient
    that surprises Adam while its steps are well within the edge isn't the work of the curvature, and so on.
    """
    if is_sudden and is_bad_batch(lead):
        return "batch", _batch(lead)
    if rise := raised_rate(lead, late=True):
        return "rate", _raised(lead, rise)
    if (at := surprise_at(lead)) is not None:
        return "stale", _stale(lead, at)
    if rise := raised_rate(lead, late=False):
        return "rate", _raised(lead, rise)
    if is_too_high_from_the_start(lead):
        return "rate", _from_the_start(lead)
    if is_sudden and (at := burst_at(lead)) is not None:
        return "burst", _burst(lead, at)
    if is_at_edge(lead):
        return "sharpening", _sharpening(lead)
    return "unknown", _unknown(lead)


def _head(spike: Spike) -> str:
    step, last = spike.onset["step"], spike.peak_step
    if spike.peak == math.inf:
        rose = f" rose from {spike.level:.3g} at step {step} and" if last > step else f", at about {spike.level:.3g},"
        return f"the loss{rose} became infinite or NaN at step {last}"
    later = f" at step {last}" if last != step else ""
    return f"the loss spiked at step {step}, from about {spike.level:.3g} to {spike.peak:.3g}{later}"


def _batch(lead: Lead) -> str:
    spike, step, loss = lead.spike, lead.spike.onset["step"], lead.spike.onset["batch_loss"]
    said = f"a bad batch. Before its step was taken, and after ordinary ones, the batch of step {step} had a loss"
    if not math.isfinite(loss):
        return f"{said} that isn't finite. Look at its data, and skip steps whose loss isn't finite"
    since = np.array([row["batch_loss"] for row in spike.since[1:] if "batch_loss" in row])
    length = _times(lead, "update_norm")
    if np.sum(since <= spike.limit) >= len(since) / 2:
        after = "Most batches after it were in line. " if since.size else ""
    elif length > LONGER:
        after = f"Its step was {length:.3g} times as long as usual, and the loss stayed up. "
    else:
        after = "Those after it were as bad after ordinary steps, so that the data may have changed there. "
    return (
        f"{said} of {loss:.3g} and a gradient {_times(lead, 'batch_gradient_norm'):.3g} times as large as usual. "
        f"{after}Look at its data; {_clip(lead)}"
    )


def _raised(lead: Lead, rise: Rise) -> str:
    when = f"at step {rise.stop}" if rise.stop <= rise.start + 1 else f"between steps {rise.start} and {rise.stop}"
    to = f", to {rise.rate:.3g}" if math.isfinite(rise.rate) else ""
    said = f"the rate was raised by a factor of {rise.factor:.3g} {when}{to}{_raising_steps(lead, rise.start)}."
    if _stable_rate(lead) < rise.rate:
        return f"{said} {_stable(lead)}; raise it to less, or over more steps as the sharpness falls"
    if rise.stop < lead.rows[lead.calm]["step"]:
        return f"{said} {_divide(lead)}"
    return f"{said} Go back to the rate before, or raise it by less and over more steps"


def _stale(lead: Lead, at: int) -> str:
    at += int(np.nanargmax(lead["surprise"][at : max(lead.last, at + 1)]))
    row, longer = lead.rows[at], _times(lead, "update_norm", at)
    return (
        "the optimiser's average of squared gradients was stale (beta2 is too large, or the gradients grew at once). "
        f"At step {row['step']} they were {row['surprise']:.3g} times their average, where "
        f"{lead.usual('surprise'):.2g} is usual, and the step was {longer:.3g} times as long as usual. Use a smaller "
        f"beta2 ({_BETA2} lets the average lag by a factor of {1 / (1 - _BETA2):.0f} at the most); {_clip(lead)}"
    )


def _from_the_start(lead: Lead) -> str:
    when = "from the start" if lead.spike.from_start else "all along"
    said = f"the rate was too high {when}{_raising_steps(lead, -1)}."
    # Where Adam's metric isn't settled, the curvature in it says little.
    if not lead.edge > 1 or _is_unsettled(lead):
        return f"{said} {_divide(lead)}, or warm up from there"
    last = lead.measured[-1]
    beyond = f"lambda_0 was {last['edge']:.3g} times its threshold at step {last['step']}"
    return f"{said} {beyond}. {_stable(lead)}; start a fifth below that, and warm up as the sharpness falls"


def _sharpening(lead: Lead) -> str:
    steps = ""
    if lead.has_steps:
        usual, now = lead.usual("realised_edge"), middle(lead["realised_edge"][-FEW - 1 : -1])
        steps = f"the steps' realised edge went from {usual:.2g} to {now:.2g} (above 1 a step raises its batch's loss)"
    if not is_measured_at_edge(lead):
        return (
            f"the curvature along the steps grew while the rate stayed: {steps}. {_divide(lead)}, from step "
            f"{lead.rows[lead.calm]['step']} on"
        )
    lowest, last = min(lead.measured, key=lambda row: row["edge"]), lead.measured[-1]
    beyond = next((row for row in lead.measured if row["step"] >= lowest["step"] and row["edge"] > 1), last)
    return (
        f"the sharpness grew while the rate stayed. lambda_0 went from {lowest['edge']:.2f} times its threshold at "
        f"step {lowest['step']} to {beyond['edge']:.2f} times at step {beyond['step']}, and was at {last['edge']:.2f} "
        f"at step {last['step']}{'; ' + steps if steps else ''}. {_stable(lead)}; go below that from step "
        f"{beyond['step']} on, with a margin, since the sharpness goes on growing"
    )


def _burst(lead: Lead, at: int) -> str:
    row = lead.rows[at]
    return (
        f"a burst of the gradient. At step {row['step']} it was {_times(lead, 'batch_gradient_norm', at):.3g} times as "
        f"large as usual, at an ordinary loss of {row['batch_loss']:.3g} and after ordinary steps. Look at the batch "
        f"and the numerics of that step; {_clip(lead)}"
    )


def _unknown(lead: Lead) -> str:
    seen, missing = [], []
    if lead.has_steps:
        seen.append("the steps before it were ordinary ones")
    else:
        missing.append("give `observe` each step with its batch, which tells bad batches, bursts and stale averages")
    if lead.measured:
        seen.append(f"lambda_0 was {lead.edge:.2f} times its threshold at step {lead.measured[-1]['step']}")
    elif lead.has_curvature:
        seen.append("no threshold is known to hold the curvature against")
    else:
        missing.append('measure the curvature (measure="sharpness"), which tells a rate that is too high')
    told = f" {capital(', and '.join(seen))}." if seen else ""
    look = f"look at the batches up to step {lead.spike.onset['step']}, and measure the curvature more often"
    return f"the rows don't show why.{told} {capital('; '.join(missing) or look)}"


def _raising_steps(lead: Lead, start: int) -> str:
    """Returns how many of the steps after one raised the loss of their own batch."""
    rows = [row for row in (*lead.spike.before, *lead.spike.since) if row["step"] > start and "batch_loss" in row]
    rose = sum(not row["batch_loss_change"] <= 0 for row in rows)
    return f", and {rose} of {len(rows)} steps from there on raised the loss of their own batch" if rose else ""


def _stable_rate(lead: Lead) -> float:
    """Returns the largest stable rate by the last curvature; infinite without one."""
    return lead.measured[-1]["stable_rate"] if lead.measured else math.inf


def _stable(lead: Lead) -> str:
    last, stable = lead.measured[-1], _stable_rate(lead)
    batches = f", on batches those below {stable / 2:.2g}" if lead.on_batches else ""
    return (
        f"At the curvature of step {last['step']} rates below {stable:.3g} are stable{batches} "
        f"(the rate was {last['learning_rate']:.3g} then)"
    )


def _divide(lead: Lead) -> str:
    """Returns what to divide the rate by: on a parabola a step is too long by its realised edge."""
    zeta, rates = lead["realised_edge"][-FEW - 1 :], lead["learning_rate"]
    zeta, rates = zeta[np.isfinite(zeta)], rates[np.isfinite(rates)]
    factor = _MARGIN * max(1.0, np.max(zeta)) if zeta.size else _UNMEASURED
    if _is_unsettled(lead):  # the first steps understate by how much they are too long
        factor = max(factor, _UNMEASURED)
    return f"Divide the rate by {factor:.2g} or more" + (f" (to below {rates[-1] / factor:.2g})" if rates.size else "")


def _is_unsettled(lead: Lead) -> bool:
    """Whether Adam, or the like, has just begun to average squared gradients."""
    return lead.is_young and "surprise" in lead.spike.onset


def _clip(lead: Lead) -> str:
    norms = lead["batch_gradient_norm"][: lead.calm]
    if lead.is_clipped:
        return "gradients are clipped already, so clip at a lower norm, or skip such steps"
    largest = np.max(norms, where=np.isfinite(norms), initial=0.0)
    return (
        f"clipping gradients at a norm of {largest:.3g}, the largest of {len(norms)} calm steps, would have shortened "
        "that step"
    )


def _times(lead: Lead, name: str, at: int = -1) -> float:
    """Returns a row's value over the usual one."""
    usual = lead.usual(name)
    return float(lead[name][at]) / usual if usual else math.inf


def capital(sentence: str) -> str:
    """Returns a sentence with a capital letter, but for a symbol."""
    return sentence if sentence.startswith("lambda_0") else sentence[:1].upper() + sentence[1:]
