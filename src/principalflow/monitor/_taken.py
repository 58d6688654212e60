"""What a step that was taken says of the edge, whichever optimiser took it: no eigenvalue, one more forward pass."""

import math
from collections.abc import Callable
from typing import NamedTuple

from principalflow.optimizers import Edge
from principalflow.record import Row

# How finely the critical rate is found, relative to itself, and how many doublings or halvings bracket it at most.
_RESOLUTION = 1 / 16
_MOST_DOUBLINGS = 60


class Taken(NamedTuple):
    """A step that was taken, in numbers, all of them on the batch that it was taken on.

    Attributes:
        loss: Before it.
        next_loss: After it.
        slope: The gradient before it times the update: the loss's change to first order.
        gradient_norm: Of the gradient before it.
        update_norm: Of the update.
        surprise: The squared gradient over Adam's average of it, weighted by the latter's root; NaN without one.
        eps: The rounding unit of the loss.
        learning_rate: Of the step; NaN where it isn't known.
    """

    loss: float
    next_loss: float
    slope: float
    gradient_norm: float
    update_norm: float
    surprise: float = math.nan
    eps: float = 0.0
    learning_rate: float = math.nan

    @property
    def realised_edge(self) -> float:
        r"""$\zeta = 1 + \frac{E(\theta + \Delta) - E(\theta)}{-g^T\Delta}$, above 1 exactly where the loss rose.

        NaN where the update doesn't go downhill, or where the change is within the rounding of the loss; infinite where
        the loss after it isn't finite (Lee and Lee 2026; for descent it is 1 + the relative progress of Ahn et al.).
        """
        if not self.eps * abs(self.loss) < -self.slope < math.inf:
            return math.nan
        change = self.next_loss - self.loss
        return 1 + (change if math.isfinite(change) else math.inf) / -self.slope

    def row(self) -> Row:
        """Returns the columns of a monitor's row."""
        row = {
            "batch_loss": self.loss,
            "batch_loss_change": self.next_loss - self.loss,
            "batch_gradient_norm": self.gradient_norm,
            "batch_slope": self.slope,
            "update_norm": self.update_norm,
            "realised_edge": self.realised_edge,
        }
        return row if math.isnan(self.surprise) else row | {"surprise": self.surprise}


def split(taken: Taken, edge: Edge, sharpness: float, update_square: float) -> Row:
    r"""Returns what put the step where it is: the realised edge is landscape times direction over momentum.

    With $\Delta = -hu$ and S the sharpness in the metric P: landscape $= hS\,Q(-1)/2$, the sharpness over its
    threshold at the rate of the step; direction $= 2(g^Tu + \Delta E/h)/(h\|u\|_P^2 S)$, how much of S the update
    meets; momentum $= Q(-1)\,g^Tu/\|u\|_P^2$, 1 for plain descent (Lee and Lee 2026).

    Args:
        taken: The step.
        edge: The optimiser's.
        sharpness: S.
        update_square: $\Delta^T P \Delta$.
    """
    h, gain = taken.learning_rate, edge.part.filter.alternating_gain
    square, along = update_square / h**2, -taken.slope / h
    if edge.unknown or not (square > 0 and sharpness > 0):
        return {}
    change = (taken.next_loss - taken.loss) / h
    return {
        "landscape": h * sharpness * gain / 2,
        "direction": 2 * (along + change) / (h * square * sharpness),
        "momentum": gain * along / square,
    }


def critical_factor(loss_at: Callable[[float], float], *, start: float = 1.0) -> float:
    """Returns the smallest factor by which an update must be multiplied for the loss to rise, to a sixteenth.

    Doubles or halves from `start` until the loss turns, then bisects (arXiv 2601.16979).

    Args:
        loss_at: The loss after a factor times the update; that at 0 is what it is compared with.
        start: Where to begin.

    Returns:
        The factor; infinite where the loss doesn't rise however far, NaN where it rises however short the step.
    """
    before = loss_at(0.0)

    def rises(factor: float) -> bool:
        return not loss_at(factor) <= before  # also where it isn't finite

    high = rises(start)
    low_end, high_end = (0.0, start) if high else (start, math.inf)
    for _ in range(_MOST_DOUBLINGS):
        trial = high_end / 2 if high else low_end * 2
        if rises(trial):
            high_end = trial
        else:
            low_end = trial
        if low_end > 0 and high_end < math.inf:
            break
    else:
        return math.nan if high else math.inf
    while high_end - low_end > _RESOLUTION * low_end:
        middle = (low_end + high_end) / 2
        low_end, high_end = (low_end, middle) if rises(middle) else (middle, high_end)
    return (low_end + high_end) / 2
