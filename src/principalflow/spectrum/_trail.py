"""What a search for eigenpairs leaves for the next one, on an operator that has changed a little."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from principalflow.spectrum._basis import Basis, like, norms, orthonormal, to_numpy

# A search finds directions that the probe meets by a thirtieth or more of what is to be expected.
_UNLUCKY = 30
# What a search may cost, in those that start from nothing.
_MOST_SEARCHES = 10
# So many calls use one probe. Then a new one starts a search: what the old one hardly met doesn't stay unseen.
_PROBE_CALLS = 50


@dataclass(frozen=True)
class Trail:
    """Where the next call starts, and by what it tells whether something elsewhere has changed; arrays all.

    Attributes:
        start: The vectors to start from, (D, k + 1): those that were found, moved on by what they moved since the call
            before, and the guard.
        found: The vectors that were found, and the guard, orthonormal.
        probed: What the operator made of the probe, outside of the k vectors, at the last search and at the last call,
            (D, 2).
        seen: What is `Known` of the spectrum outside, and how many calls there were before this one.
    """

    start: Any
    found: Any
    probed: Any
    seen: Any

    def __post_init__(self):
        (size, _), seen = self.found.shape, np.shape(self.seen)
        if self.start.shape != self.found.shape or tuple(self.probed.shape) != (size, 2) or seen != (4,):
            raise ValueError(f"trail must be one that a call returned, got arrays that don't fit {size} numbers.")

    @property
    def calls(self) -> int:
        """How many calls there were up to this trail's, since the one that started from nothing."""
        return int(self.seen[-1]) + 1

    def map(self, change: Callable[[Any], Any]) -> "Trail":
        """Returns the trail with its large arrays changed."""
        return Trail(change(self.start), change(self.found), change(self.probed), self.seen)


@dataclass(frozen=True)
class Known:
    """What is known of the spectrum outside of the block; signs are such that the wanted end is upwards.

    Attributes:
        guard: How large the eigenvalue next to the block may be; minus infinity once it is in the basis.
        level: About the largest eigenvalue behind it, when it was last searched.
        other_end: The smallest eigenvalue that was ever seen.
    """

    guard: float = -math.inf
    level: float = math.inf
    other_end: float = math.inf


class Outside:
    """The spectrum outside of the block: what the former call knew, and what the probe tells of its change.

    With P the projector on the block and Q = 1 - P, an operator has no eigenvalue beyond those of the block and the
    largest of QHQ; and by Weyl's inequality that has risen by no more than the Frobenius norm of the change of QHQ.
    The probe p gives an estimate of it, the length of the change of QHQp times sqrt(D). A turn of the block enters with
    the size of the rest alone.

    Attributes:
        known: What is known, brought up to date by `compare` and `after_search`.
        references: QHQp at the last search and at the last call; None where nothing is known.
        guard: The vector next to the block that was found last.
        change: Of QHQp since the last search.
        stirred: About the Frobenius norm of the change, without what it has along the guard.
        whole_search: The steps of a search from a random vector, and not from a change.
    """

    def __init__(self, basis: Basis, probe: Any, trail: Trail | None):
        self.basis, self.probe, self.probed = basis, probe, basis.times(probe)
        if trail is not None and trail.calls % _PROBE_CALLS == 0:  # the probe is a new one
            trail = None
        self.forget()
        if trail is not None:
            self.known = Known(*(float(value) for value in trail.seen[:-1]))
            self.references = basis.xp.matrix_transpose(trail.probed)
            self.guard = trail.found[:, -1]
        # A random vector meets each direction by about 1/sqrt(D) of its length; a product multiplies what stands out
        # from the rest of the spectrum by e or more.
        self.whole_search = 2 + math.ceil(math.log(basis.size) / 2)

    def forget(self) -> None:
        """Takes all that was known for unknown."""
        self.known, self.stirred = Known(), math.inf
        self.references: Any = None
        self.guard: Any = None
        self.change: Any = None

    def multiplied_guard(self) -> Any:
        """Returns the guard as a row, to be multiplied: what it was is then of no use."""
        self.known = replace(self.known, guard=-math.inf)
        return self.guard[None]

    def seen(self, Y: np.ndarray) -> Any:
        """Returns QHQp, Q the projector beyond the combinations Y of the basis."""
        basis = self.basis
        X, HX = basis.combine(Y, basis.S), basis.combine(Y, basis.HS)
        q = self.probed - (X @ self.probe) @ HX
        return q - (X @ q) @ X

    def compare(self, Y: np.ndarray) -> None:
        """Takes note of what has changed outside of the block Y, since the last search and since the last call."""
        basis, root = self.basis, math.sqrt(self.basis.size)
        X = basis.combine(Y, basis.S)
        changes = self.seen(Y) - self.references
        changes = changes - (changes @ basis.xp.matrix_transpose(X)) @ X
        stirred, lately = (root * norms(basis.xp, changes)).tolist()
        if not math.isfinite(stirred + lately):  # the operator overflows
            return
        on_guard = root * np.abs(to_numpy(changes @ self.guard))
        # If the change is all along the guard, it has risen by this over how the probe meets it; and in any case by no
        # more than about the norm of the whole change.
        met = min(root * abs(float(self.guard @ self.probe)), 1)
        rise = min(on_guard[1], met * lately) / met if met else lately
        self.known = replace(self.known, guard=self.known.guard + rise)
        self.change, self.stirred = changes[0], _leg(stirred, on_guard[0])

    def steps_to_search(self, least: float, tol: float, found: float) -> int:
        """Returns how many products it takes to find an eigenvalue that has come beyond `least + tol`.

        An eigenvalue that rose from the level has the share rise / stirred in the change of the probe, and each product
        of a Krylov space multiplies that, relative to what lies below, by a Chebyshev polynomial's growth (Kaniel,
        Saad). What lies below may have risen too, to what the search has `found` so far.
        """
        level = max(self.known.level, found)
        if self.change is None or not self.known.other_end < level < least + tol:  # nothing is known, or no longer
            return self.whole_search
        rise, gap = (max(least + tol - below, tol) for below in (self.known.level, level))
        growth = math.acosh(1 + 2 * gap / (level - self.known.other_end))
        steps = math.log(2 * _UNLUCKY * max(self.stirred / rise, 1)) / max(growth, 1e-3)
        return min(max(math.ceil(steps), 1), _MOST_SEARCHES * self.whole_search)

    def after_search(self, level: float, steps: int) -> None:
        """Takes note of what a search found; a short one says nothing of what didn't change."""
        self.known = replace(self.known, level=level if steps >= self.whole_search else max(level, self.known.level))

    def trail(
        self, former: Trail | None, vectors: Any, Y: np.ndarray, bounds: np.ndarray, searched: bool
    ) -> Trail | None:
        """Returns the trail of a call that found the combinations Y, and `vectors` as the start of the next, in rows.

        None where nothing behind the block is known to start from.

        Args:
            former: The trail that it started from.
            vectors: The block, and behind it the guard if it was multiplied.
            Y: The block alone.
            bounds: How large the eigenvalues of all that were found may be.
            searched: Whether nothing is hidden outside.
        """
        xp, k, known, calls = self.basis.xp, Y.shape[1], self.known, 0 if former is None else former.calls
        if len(vectors) > k:
            behind = [known.level, known.guard, *bounds[k + 1 :].tolist()]
            known = replace(known, guard=float(bounds[k]), level=max(behind))
        elif self.guard is None:
            return None
        else:
            vectors = xp.concat([vectors, xp.reshape(self.guard, (1, -1))], axis=0)
        start = found = xp.matrix_transpose(orthonormal(xp, vectors, None))
        if former is not None:
            ahead = 2 * found - former.found @ (xp.matrix_transpose(former.found) @ found)
            start = xp.concat([ahead[:, :k], found[:, k:]], axis=1)
        now = self.seen(Y)
        last = now if searched or self.references is None else self.references[0]
        seen = np.array([*vars(known).values(), calls])
        return Trail(start, found, xp.stack([last, now], axis=1), seen)


def _leg(hypotenuse: float, other: float) -> float:
    """Returns the third side of a right triangle, also where squares overflow."""
    return math.sqrt(max(hypotenuse - other, 0)) * math.sqrt(max(hypotenuse + other, 0))


def probe(xp: Any, example: Any, calls: int) -> Any:
    """Returns a random unit vector for columns like the example's, the same for many calls.

    It meets each axis, and with signs of one size alone it would miss half of the sums and differences of two.
    """
    return like(xp, _random(calls // _PROBE_CALLS, example.shape[0]), example)


@lru_cache(maxsize=1)
def _random(seed: int, size: int) -> np.ndarray:
    """Returns the probe's numbers; kept, since most calls take the same."""
    random = np.random.default_rng(seed)
    numbers = random.choice([-1, 1], size) * random.uniform(0.2, 1.8, size)
    return numbers / np.linalg.norm(numbers)
