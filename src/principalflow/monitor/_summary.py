"""What a monitor has seen, in a few sentences."""

import math
from collections.abc import Sequence

import numpy as np

from principalflow.monitor._events import Event
from principalflow.monitor._threshold import Threshold
from principalflow.record import Row


def summary(rows: Sequence[Row], events: Sequence[Event], threshold: Threshold, overhead: float) -> str:
    """Returns a paragraph on what was measured, and what it means for the learning rate."""
    known = [row for row in rows if "eigenvalue_0" in row]
    if not known:
        return "Nothing was measured." if not rows else f"Nothing but the loss could be measured: {events[0]}."
    first, last = known[0], known[-1]
    h, sharpness, formula = last["learning_rate"], last["eigenvalue_0"], threshold.formula
    limit, length = threshold.times_h / h, h * last["gradient_norm"]
    crossed = next((event.step for event in events if event.kind == "above"), None)
    predicted = [row for row in known if row["loss_change_discrete"] > 0]
    rose = sum(row["loss_change"] > 0 for row in predicted)
    share = f", {last['drift_estimate'] / length:.0%} of its length" if length else ""
    timed = f"; all of them took {overhead:.0%} of the loop's own time" if math.isfinite(overhead) else ""
    begin, end, was = rows[0]["step"], rows[-1]["step"], f"{first['eigenvalue_0']:.4g}"
    several = f"{len(rows)} measurements over steps {begin} to {end}: lambda_0 went from {was} to {sharpness:.4g}, "
    return (
        (several if len(rows) > 1 else f"One measurement, at step {end}: lambda_0 was {was}, ")
        + f"which is {sharpness / limit:.2f} times {formula} = {limit:.4g}, "
        + (
            f"and never was above {formula}. "
            if crossed is None
            else f"and first was above {formula} at step {crossed}. "
        )
        + f"At {len(predicted)} of the measurements descent's next step was predicted to raise the loss, "
        f"and at {rose} of these it would. "
        f"The last one drifts about {last['drift_estimate']:.2g} from the gradient flow{share}. "
        f"A measurement took {np.mean([row['products'] for row in known]):.1f} Hessian products on average{timed}. "
        + _advice(rows[-1], last, threshold)
    )


def _advice(end: Row, last: Row, threshold: Threshold) -> str:
    """Returns one sentence on the learning rate."""
    h, sharpness = last["learning_rate"], last["eigenvalue_0"]
    if sharpness <= 0:
        return "Nothing curves upwards here, so that the curvature sets the rate no limit."
    largest = threshold.times_h / sharpness
    if not math.isfinite(end["loss"]):
        return f"The run left the finite numbers: at the last known curvature, rates below {largest:.3g} are stable."
    if h > largest:
        return f"The rate is beyond the edge of stability: at this curvature those below {largest:.3g} are stable."
    return f"The rate is {h / largest:.0%} of {largest:.3g}, up to which rates are stable at this curvature."
