"""What a monitor has seen, in a few sentences."""

import math
from collections.abc import Sequence

import numpy as np

from principalflow.monitor._causes import are_of_batches
from principalflow.monitor._diagnosis import capital, spikes_in_words
from principalflow.monitor._events import Event, is_settling
from principalflow.optimizers import Edge
from principalflow.record import Row

# A mean over fewer batches than that isn't worth a word.
_FEWEST_BATCHES = 5
# The steps, and the measurements of the curvature, that advice goes by.
_LATEST, _LATEST_MEASURED = 20, 5
# Above that, a share is given as a multiple.
_MANIFOLD = 2


def summary(
    rows: Sequence[Row], events: Sequence[Event], edge: Edge | None, overhead: float, aftermath: str = ""
) -> str:
    """Returns why the loss spiked, what it means for the learning rate, and what was measured, a line each.

    Args:
        rows: What was measured.
        events: What changed.
        edge: The optimiser's, when it was last read.
        overhead: The time spent measuring over the loop's own.
        aftermath: Where the loss stands after what went wrong; empty where nothing did.
    """
    known = [row for row in rows if "eigenvalue_0" in row]
    taken = [row for row in rows if "batch_loss" in row]
    if not rows:
        return "Nothing was measured."
    if not known and not taken:
        why = next((f": {event}" for event in events if event.kind in ("nonfinite", "unmeasured")), "")
        return f"Nothing but the loss could be measured{why}."
    told = [event for event in events if event.kind in ("spike", "setback")]
    curvature = []
    if known and edge is not None:  # Adam's metric of few gradients says nothing of what comes later
        known = [row for row in known if not is_settling(row["step"], edge)] or known[-1:]
    if known:
        curvature = [_course(known, events, edge), _predictions(known, edge), _drift(known[-1], edge)]
    advice = _advice(rows[-1], known, edge, taken) if known else _advice_by_steps(taken)
    lines = [
        # What led to a spike says which rates are stable; what the curvature is afterwards may be of ruined parameters.
        [spikes_in_words(told), aftermath or ("" if told else advice)],
        [*curvature, _batches(known, edge)],
        [_steps(taken), _products(known), _cost(overhead)],
    ]
    return "\n".join(" ".join(filter(None, line)) for line in lines if any(line))


def _course(known: Sequence[Row], events: Sequence[Event], edge: Edge | None) -> str:
    """Returns how the sharpness moved, and where it stands."""
    first, last = known[0], known[-1]
    was, is_now = (f"{row['eigenvalue_0']:.4g}" for row in (first, last))
    several = (
        f"{len(known)} measurements over steps {first['step']} to {last['step']}: lambda_0 went from {was} to {is_now}"
    )
    begin = several if len(known) > 1 else f"One measurement, at step {last['step']}: lambda_0 was {is_now}"
    if edge is None or edge.unknown:
        return f"{begin}. {capital(edge.unknown)}." if edge else f"{begin}."
    formula = edge.formula
    crossed = next((event.step for event in events if event.kind == "above"), None)
    end = "never was above it" if crossed is None else f"first was above it at step {crossed}"
    its = "a metric that takes up the groups' rates" if edge.others else f"{edge.optimizer}'s metric"
    metric = "" if edge.preconditioner is None else f" (in {its})"
    return f"{begin}{metric}, which is {last['edge']:.2f} times {formula} = {last['threshold']:.4g}, and {end}."


def _predictions(known: Sequence[Row], edge: Edge | None) -> str:
    if edge is None or edge.has_momentum or edge.unknown:
        return ""
    predicted = [row for row in known if row["loss_change_discrete"] > 0]
    if not predicted:
        return ""
    rose = sum(row["loss_change"] > 0 for row in predicted)
    if len(known) == 1:
        return f"The next step was predicted to raise the loss{', and would have' if rose else ', but would not have'}."
    told = f"The next step was predicted to raise the loss at {len(predicted)} of {len(known)} measurements"
    return f"{told}; at {rose} of those it would have."


def _drift(last: Row, edge: Edge | None) -> str:
    """Returns how far the last measured step of plain descent is from the gradient flow."""
    if edge is None or edge.unknown or edge.metric:
        return ""
    length, drift = last["learning_rate"] * last["gradient_norm"], last["drift_estimate"]
    if not drift:
        return ""
    share = f", {drift / length:.0%} of its length" if length and drift / length >= 0.005 else ""
    return f"A step of descent from there drifts about {drift:.2g} from the gradient flow{share}."


def _products(known: Sequence[Row]) -> str:
    spent = [row["products"] for row in known]
    return f"A measurement took {np.mean(spent):.1f} Hessian products on average." if spent else ""


def _steps(taken: Sequence[Row]) -> str:
    """Returns what the steps themselves did."""
    if not taken:
        return ""
    realised = [row["realised_edge"] for row in taken]
    rose = sum(row["batch_loss_change"] > 0 for row in taken)
    middle = f"{np.nanmedian(realised):.2f}" if not np.all(np.isnan(realised)) else "not known"
    rising = (
        f"; the loss rose on its own batch at {rose} of them" if rose else ", and none raised the loss on its own batch"
    )
    return f"{len(taken)} steps were watched: the median of their realised edge was {middle}{rising}."


def _batches(known: Sequence[Row], edge: Edge | None) -> str:
    """Returns the mean curvature along the gradients of the steps' batches, over the latter half of the run."""
    samples = np.array([row["batch_sharpness"] for row in known if "batch_sharpness" in row])
    samples = samples[len(samples) // 2 :]
    samples = samples[np.isfinite(samples)]
    if edge is None or len(samples) < _FEWEST_BATCHES:
        return ""
    mean, error = np.mean(samples), np.std(samples, ddof=1) / math.sqrt(len(samples))
    found = f"The batch sharpness of the latter half was {mean:.3g} ± {error:.2g} ({len(samples)} batches)"
    if edge.unknown:
        return f"{found}."
    if not mean > 2 * error:
        return f"{found}: too scattered to be held against a threshold."
    large, small = edge.threshold, edge.part.small_batch_threshold
    if large == small or edge.is_mixed:
        return f"{found}, {mean / large:.2f} times its threshold."
    return f"{found}: {mean / large:.2f} times the threshold of large batches, {mean / small:.2f} that of small ones."


def _cost(overhead: float) -> str:
    """Returns how long measuring took, beside the loop itself."""
    if not math.isfinite(overhead):
        return ""
    if overhead > _MANIFOLD:
        return f"Measuring took {overhead:.0f} times as long as the loop itself."
    return f"All measurements took {overhead:.0%} of the loop's own time."


def _advice_by_steps(taken: Sequence[Row]) -> str:
    """Returns by how much the latest steps are too long: on a parabola, by their realised edge."""
    realised = np.array([row["realised_edge"] for row in taken[-_LATEST:]])
    middle = np.median(realised[np.isfinite(realised)]) if np.any(np.isfinite(realised)) else 0.0
    return f"Judging by the latest steps, the rate is about {middle:.2g} times too high." if middle > 1 else ""


def _advice(end: Row, known: Sequence[Row], edge: Edge | None, taken: Sequence[Row]) -> str:
    """Returns one sentence on the learning rate, by the sharpest of the latest measurements."""
    if edge is None or edge.unknown:
        return ""
    latest = [row for row in known[-_LATEST_MEASURED:] if "stable_rate" in row]
    h, largest = known[-1]["learning_rate"], min((row["stable_rate"] for row in latest), default=math.inf)
    if not math.isfinite(largest):
        return "No direction curves upwards here, so the curvature sets no limit on the rate."
    lower = "; on batches the edge may come much earlier" if are_of_batches(taken[-_LATEST:]) else ""
    stable = f"below {largest:.3g} are stable{lower}"
    if not math.isfinite(end.get("loss", 0.0)) or not math.isfinite(end.get("batch_loss", 0.0)):
        return f"The loss became infinite or NaN: at the last known curvature, rates {stable}."
    if h > largest:
        return f"The rate {h:.3g} is beyond the edge of stability: at the latest curvature, rates {stable}."
    return f"The rate is {h:.3g}; at the latest curvature, rates {stable}."
