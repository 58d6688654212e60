"""What a search for eigenpairs leaves for the next one, on an operator that has changed a little."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from principalflow.spectrum._basis import Basis, like, norms, orthonormal

# A search finds directions that the probe meets by a thirtieth or more of what is to be expected.
_UNLUCKY = 30
# What a search may cost, in those that start from nothing.
_MOST_SEARCHES = 10
# So many calls use one probe. Then a new one starts a search: what the old one hardly met doesn't stay unseen.
_PROBE_CALLS = 50


@dataclass(frozen=True)
class Outside:
    """What is known of the spectrum outside of the block and its guard; signs are such that the wanted end is upwards.

    Attributes:
        level: About the largest eigenvalue there, when it was last searched.
        other_end: The smallest eigenvalue that was ever seen.
        change: What the change of the operator since then makes of the probe, outside of the basis.
        stirred: About the Frobenius norm of that change: no eigenvalue has risen by more (Weyl).
        whole_search: The steps of a search from a random vector, and not from a change.
        searched: Whether it has been searched since.
    """

    level: float
    other_end: float
    change: Any
    stirred: float
    whole_search: int
    searched: bool = False

    @classmethod
    def unknown(cls, size: int) -> "Outside":
        """Returns what is known before the first search.

        A random vector meets each direction by about 1/sqrt(D) of its length; a product multiplies what stands out from
        the rest of the spectrum by e or more.
        """
        return cls(math.inf, math.inf, None, math.inf, 2 + math.ceil(math.log(size) / 2))

    def steps_to_search(self, least: float, tol: float, found: float) -> int:
        """Returns how many products it takes to find an eigenvalue that has come beyond `least + tol`; 0 if none can.

        An eigenvalue that rose from the level has the share rise / stirred in the change of the probe, and each product
        of a Krylov space multiplies that, relative to what lies below, by a Chebyshev polynomial's growth (Kaniel,
        Saad). What lies below may have risen too, to what the search has `found` so far.
        """
        if self.level + self.stirred <= least + tol:
            return 0
        level = max(self.level, found)
        if self.change is None or not self.other_end < level < least + tol:  # nothing is known, or no longer
            return self.whole_search
        rise, gap = (max(least + tol - below, tol) for below in (self.level, level))
        growth = math.acosh(1 + 2 * gap / (level - self.other_end))
        steps = math.log(2 * _UNLUCKY * self.stirred / rise) / max(growth, 1e-3)
        return min(max(math.ceil(steps), 1), _MOST_SEARCHES * self.whole_search)

    def after_search(self, level: float, steps: int) -> "Outside":
        """Returns what is known after a search; a short one says nothing of what didn't change."""
        level = level if steps >= self.whole_search else max(level, self.level)
        return replace(self, level=level, searched=True)

    def with_level(self, values: np.ndarray) -> "Outside":
        """Returns the same, after the known `values` were left out of the block."""
        return replace(self, level=max([self.level, *values.tolist()]))

    def with_other_end(self, value: float) -> "Outside":
        """Returns the same, after `value` was seen at the other end."""
        return replace(self, other_end=min(self.other_end, value))


@dataclass(frozen=True)
class Trail:
    """Where the next call starts, and by what it tells whether something elsewhere has changed; arrays all.

    Attributes:
        start: The vectors to start from, (D, k + 1): those that were found, the guard among them, moved on by what they
            moved since the call before.
        found: The vectors that were found, orthonormal.
        probed: The operator times the probe, (D,), at the last search.
        seen: `level` and `other_end` of what is outside, and how many calls there were before this one.
    """

    start: Any
    found: Any
    probed: Any
    seen: Any

    def __post_init__(self):
        (size, _), seen = self.found.shape, np.shape(self.seen)
        if self.start.shape != self.found.shape or self.probed.shape != (size,) or seen != (3,):
            raise ValueError(f"trail must be one that a call returned, got arrays that don't fit {size} numbers.")

    @classmethod
    def after(cls, former: "Trail | None", xp: Any, vectors: Any, probed: Any, outside: Outside) -> "Trail":
        """Returns the trail of a call that found `vectors`, one a row."""
        start = found = xp.matrix_transpose(orthonormal(xp, vectors, None))
        if former is not None:
            start = 2 * found - former.found @ (xp.matrix_transpose(former.found) @ found)
        probed = probed if former is None or outside.searched else former.probed
        calls = 0 if former is None else former.calls
        return cls(start, found, probed, np.array([outside.level, outside.other_end, calls]))

    @property
    def calls(self) -> int:
        """How many calls there were up to this trail's, since the one that started from nothing."""
        return int(self.seen[2]) + 1

    def outside(self, basis: Basis, probed: Any) -> Outside:
        """Returns what is known of the spectrum outside, where the operator times the probe is now `probed`."""
        unknown = Outside.unknown(basis.size)
        if self.calls % _PROBE_CALLS == 0:  # the probe is a new one
            return unknown
        change = basis.beyond(probed - self.probed)
        stirred = math.sqrt(basis.size) * float(norms(basis.xp, change[None])[0])
        if not math.isfinite(stirred):  # the operator overflows
            return unknown
        level, other_end = (float(value) for value in self.seen[:2])
        return replace(unknown, level=level, other_end=other_end, change=change, stirred=stirred)

    def map(self, change: Callable[[Any], Any]) -> "Trail":
        """Returns the trail with its large arrays changed."""
        return Trail(change(self.start), change(self.found), change(self.probed), self.seen)


def probe(xp: Any, example: Any, calls: int) -> Any:
    """Returns a random unit vector for columns like the example's, the same for many calls.

    It meets each axis, and with signs of one size alone it would miss half of the sums and differences of two.
    """
    random, size = np.random.default_rng(calls // _PROBE_CALLS), example.shape[0]
    numbers = random.choice([-1, 1], size) * random.uniform(0.2, 1.8, size)
    return like(xp, numbers / np.linalg.norm(numbers), example)
