"""One edge for parameters that move in different ways: the metric takes up where they differ."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from array_api_compat import array_namespace

from principalflow import _checks
from principalflow.optimizers._edge import Edge, Part


class UnknownError(Exception):
    """No threshold is known; the message says why, in a sentence."""


@dataclass(frozen=True, kw_only=True)
class Group:
    """Some neighbouring parameters that move alike; an `Edge` has the other names' meanings.

    Attributes:
        size: How many they are.
        optimizer: Its name.
        part: How they move; at rate 0 they rest.
        preconditioner: P, flat, or None.
        decay: W, a number or flat.
        second_moment: Flat, or None.
        beta2: Of `second_moment`.
        starting: Whether P takes a first step to exist.
    """

    size: int
    optimizer: str
    part: Part
    preconditioner: Any = None
    decay: Any = 0.0
    second_moment: Any = None
    beta2: float = 0.0
    starting: bool = False

    @property
    def moves(self) -> bool:
        """Whether they move."""
        return self.part.learning_rate != 0


def combined(groups: Sequence[Group], full: Callable[[int, float], Any], *, clips: bool = False) -> Edge:
    r"""Returns the edge of all groups.

    With $(z - 1 + h_i w_i)\,\theta_i = -h_i Q_i(z)/P_i\,(H\theta)_i$ the multiplier z = -1 is reached where the largest
    eigenvalue of $M^{1/2} H M^{1/2}$ with $M_i = h_i Q_i(-1)/(P_i (2 - h_i w_i)) = 1/(P_i T_i)$ is 1, T the thresholds.
    So in the metric $P_i T_i/T_0$ it is the threshold of the first.

    Args:
        groups: All parameters, in order.
        full: Makes a vector of so many numbers of one value.
        clips: Whether there is clipping, which is assumed to do nothing.

    Raises:
        UnknownError: Where none is known.
    """
    moving = [group for group in groups if group.moves]
    alive = moving or groups
    first = alive[0]
    for group in moving:
        _check(group)
    others = tuple(dict.fromkeys(group.part for group in moving if group.part != first.part))
    starting = [group.optimizer for group in alive if group.starting]
    edge = Edge(
        optimizer=first.optimizer,
        part=first.part,
        others=others,
        why=_why(first, others, clips),
        clips=clips,
        preconditioner=None if starting else _metric(groups, first, full),
        decay=_decay(groups, alive, full),
        second_moment=None if starting else _second_moment(groups, full),
        beta2=first.beta2,
    )
    if starting:
        why = f"{starting[0]} has taken no step yet, so it is not known how long its steps are"
        return replace(edge, unknown=why, starting=True)
    if edge.preconditioner is not None and not bool((edge.preconditioner > 0).all()):
        raise UnknownError(f"some entries of {first.optimizer}'s metric aren't above 0")
    return edge


def or_unknown(read: Callable[[], Edge]) -> Edge:
    """Returns the edge that is read, or one that says why it can't be."""
    try:
        return read()
    except UnknownError as reason:
        why = str(reason)
    except Exception as error:  # of the optimiser's insides, which may differ from version to version
        why = f"it can't be read ({type(error).__name__}: {_checks.shown(str(error))})"
    return Edge.of_unknown("unknown", f"no threshold is known for this optimizer: {why}")


def _check(group: Group) -> None:
    part = group.part
    numbers = [part.learning_rate, part.weight_decay, *([group.decay] if isinstance(group.decay, float) else [])]
    if not all(map(math.isfinite, numbers)):
        raise UnknownError(f"{group.optimizer}'s rate or weight decay is not finite")
    if part.learning_rate < 0 or part.filter.alternating_gain <= 0:
        raise UnknownError(f"{group.optimizer} moves along the gradient, not against it, so no step size is stable")
    if part.learning_rate * part.weight_decay >= 2:
        given = f"{part.learning_rate:g} * {part.weight_decay:g}"
        raise UnknownError(f"the weight decay is unstable by itself: rate times weight decay is {given}, at least 2")
    if not part.leaves_by_flipping:
        raise UnknownError(f"{group.optimizer} has momentum of another kind than its threshold is known for")


def _metric(groups: Sequence[Group], first: Group, full: Callable[[int, float], Any]) -> Any:
    """Returns P of all parameters in the first one's units, or None for the identity."""
    ratios = [_ratio(group, first) for group in groups]
    if all(group.preconditioner is None and ratio == 1 for group, ratio in zip(groups, ratios, strict=True)):
        return None
    parts = [
        full(group.size, ratio) if group.preconditioner is None or ratio == math.inf else group.preconditioner * ratio
        for group, ratio in zip(groups, ratios, strict=True)
    ]
    return array_namespace(parts[0]).concat(parts)


def _ratio(group: Group, first: Group) -> float:
    if group.moves == first.moves:
        return group.part.threshold / first.part.threshold if first.moves else 1.0
    return math.inf


def _decay(groups: Sequence[Group], alive: Sequence[Group], full: Callable[[int, float], Any]) -> Any:
    """Returns W, one number if it is the same for all that are alive."""
    first = alive[0].decay
    if isinstance(first, float) and all(isinstance(g.decay, float) and g.decay == first for g in alive):
        return first
    decays = [full(g.size, g.decay) if isinstance(g.decay, float) else g.decay for g in groups]
    return array_namespace(decays[0]).concat(decays)


def _second_moment(groups: Sequence[Group], full: Callable[[int, float], Any]) -> Any:
    if all(group.second_moment is None for group in groups):
        return None
    squares = [full(g.size, math.inf) if g.second_moment is None else g.second_moment for g in groups]
    return array_namespace(squares[0]).concat(squares)


def _why(first: Group, others: Sequence[Part], clips: bool) -> str:
    """Returns what the threshold is that of, to follow its formula in a sentence."""
    given = [*first.part.filter.words]
    if first.part.weight_decay:
        given.append(f"weight decay w = {first.part.weight_decay:g}")
    adaptive = first.preconditioner is not None
    if not (given or adaptive or others or clips):
        return ""
    name = f"{first.optimizer}'s threshold" if adaptive else "the threshold"
    if others:
        name += " of the first group"
    words = " and ".join(filter(None, [", ".join(given[:-1]), *given[-1:]]))
    common = ", in a metric common to all groups" if others else ""
    return f", {name}{' with ' if words else ''}{words}{' while nothing is clipped' if clips else ''}{common},"
