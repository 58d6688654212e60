"""What an optimiser does to the gradients, as a list of simple stages.

The leaves of the parameters are numbered. A stage acts on some of them, and knows its formula: what it makes of the
updates of one step, and what it means for the edge.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
from jaxtyping import Array

from principalflow.optimizers._edge import Filter, Part
from principalflow.optimizers._groups import Group, UnknownError

# By the number of the leaf.
Leaves = dict[int, Array]


@dataclass(frozen=True, eq=False)
class Gain:
    """u <- c u. Where the factor is that of the last step, `starting` says that there was none."""

    leaves: frozenset[int]
    factor: float
    optimizer: str = ""
    starting: bool = False

    def step(self, updates: Leaves, params: Leaves, before: "Gain") -> Leaves:
        """Returns the next updates; `before` is the stage as it was before the step."""
        return {i: self.factor * u if i in self.leaves else u for i, u in updates.items()}


@dataclass(frozen=True, eq=False)
class Metric:
    """u <- u / P, with the average of squared gradients that P comes from."""

    P: Leaves
    second_moment: Leaves
    optimizer: str
    starting: bool = False
    beta2: float = 0.0

    @property
    def leaves(self) -> Leaves:
        """What it acts on."""
        return self.P

    def step(self, updates: Leaves, params: Leaves, before: "Metric") -> Leaves:
        """Returns the next updates."""
        return {i: u / self.P[i] if i in self.P else u for i, u in updates.items()}


@dataclass(frozen=True, eq=False)
class Momentum:
    """A filter with one memory, v <- b v + p u, of which the filter itself doesn't tell p."""

    memory: Leaves
    filter: Filter
    passed: float

    @property
    def leaves(self) -> Leaves:
        """What it acts on."""
        return self.memory

    def step(self, updates: Leaves, params: Leaves, before: "Momentum") -> Leaves:
        """Returns the next updates."""
        (now, later), (_, minus_b) = ((*row, 0.0)[:2] for row in (self.filter.numerator, self.filter.denominator))
        kept = (later - minus_b * now) / self.passed
        return {i: now * u + kept * before.memory[i] if i in self.memory else u for i, u in updates.items()}


@dataclass(frozen=True, eq=False)
class Decay:
    """u <- u + w theta."""

    leaves: frozenset[int]
    weight: float

    def step(self, updates: Leaves, params: Leaves, before: "Decay") -> Leaves:
        """Returns the next updates."""
        return {i: u + self.weight * params[i] if i in self.leaves else u for i, u in updates.items()}


@dataclass(frozen=True, eq=False)
class Clip:
    """Shortens updates that are too long, by optax's own function on a tree of leaves."""

    numbers: Any
    update: Callable

    @property
    def leaves(self) -> list[int]:
        """What it acts on."""
        return jax.tree.leaves(self.numbers)

    def step(self, updates: Leaves, params: Leaves, before: "Clip") -> Leaves:
        """Returns the next updates."""
        given, own = (jax.tree.map(leaves.__getitem__, self.numbers) for leaves in (updates, params))
        clipped, _ = self.update(given, (), own)
        return updates | dict(zip(self.leaves, jax.tree.leaves(clipped), strict=True))


Stage = Gain | Metric | Momentum | Decay | Clip


def stepped(updates: Leaves, params: Leaves, before: Sequence[Stage], after: Sequence[Stage]) -> Leaves:
    """Returns what one step makes of gradients, by the stages as they were read before and after it."""
    for old, new in zip(before, after, strict=True):
        if type(old) is not type(new):
            raise UnknownError("its stages change from step to step")
        updates = new.step(updates, params, old)  # pyright: ignore[reportArgumentType]
    return updates


def group_of(number: int, size: int, stages: Sequence[Stage]) -> Group:
    r"""Returns how a leaf moves by what its stages amount to: $u = c\,Q/P\,(g + W\theta) + d\,\theta$."""
    own = [stage for stage in stages if number in stage.leaves]
    if not own:
        raise UnknownError(
            "some gradients are passed on as they are, as steps uphill: optax.masked does that to what it masks out, "
            "optax.partition with set_to_zero freezes it"
        )
    c, Q, P, W, d, squares, beta2 = 1.0, Filter(), None, 0.0, 0.0, None, 0.0
    for i, stage in enumerate(own):
        match stage:
            case Gain():
                c, d = c * stage.factor, d * stage.factor
            case Metric():
                scale = stage.P[number].reshape(-1)
                P, squares = scale if P is None else P * scale, stage.second_moment.get(number)
                beta2 = stage.beta2
            case Momentum():
                Q = Q.then(stage.filter)
            case Decay() if stage.weight:
                last = not any(isinstance(later, Metric | Momentum) for later in own[i + 1 :])
                if Filter() == Q and (P is None or not last):
                    # As if it were in the loss: what comes later acts on both.
                    W = W + stage.weight / c * (1.0 if P is None else P) if c else W
                elif last:
                    d += stage.weight
                else:
                    raise UnknownError("weight decay comes between its momentum and what else it does to the gradients")
    named = [stage for stage in own if isinstance(stage, Gain | Metric) and stage.optimizer]
    name = named[0].optimizer if named else "sgd"
    if name in ("adam", "nadam") and _decays_after(named[0], stages):
        name += "w"
    part = Part(learning_rate=-c, filter=Q, weight_decay=d / c if c else 0.0)
    return Group(
        size=size,
        optimizer=name,
        part=part,
        preconditioner=P,
        decay=W,
        second_moment=None if squares is None else squares.reshape(-1),
        beta2=beta2,
        starting=any(stage.starting for stage in named),
    )


def _decays_after(stage: Stage, stages: Sequence[Stage]) -> bool:
    later = stages[stages.index(stage) + 1 :]
    return any(isinstance(other, Decay) and other.weight for other in later)
