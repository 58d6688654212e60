"""Where an optimiser's edge of stability is: the metric in which it sees curvature, and how much of it it bears."""

import math
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

Regime = Literal["real stable", "complex stable", "unstable"]


@dataclass(frozen=True)
class Filter:
    r"""What momentum makes of the gradients: $Q(z) = N(1/z)/D(1/z)$, coefficients from the constant one on.

    `Filter()` passes gradients on as they are.
    """

    numerator: tuple[float, ...] = (1.0,)
    denominator: tuple[float, ...] = (1.0,)

    @classmethod
    def heavy_ball(cls, momentum: float, *, dampening: float = 0.0, nesterov: bool = False) -> "Filter":
        """Returns that of v <- m v + (1 - d) g; the update is v, or with Nesterov's momentum g + m v."""
        passed = 1 - dampening
        numerator = (1 + momentum * passed, -momentum) if nesterov else (passed,)
        return cls(numerator, (1.0, -momentum))

    @classmethod
    def average(cls, decay: float, *, nesterov: bool = False) -> "Filter":
        """Returns that of m <- b m + (1 - b) g, as in Adam; with Nesterov's momentum, b m + (1 - b) g as in NAdam."""
        passed = 1 - decay
        numerator = (passed * (1 + decay), -passed * decay) if nesterov else (passed,)
        return cls(numerator, (1.0, -decay))

    @property
    def alternating_gain(self) -> float:
        """Q(-1): what becomes of a gradient whose sign flips at every step."""
        above, below = (sum(c * (-1) ** i for i, c in enumerate(row)) for row in (self.numerator, self.denominator))
        return above / below


@dataclass(frozen=True, kw_only=True)
class Part:
    r"""How some parameters move: $\theta \leftarrow (1 - h w)\,\theta - h P^{-1} (Q * g)$.

    Attributes:
        learning_rate: h.
        filter: Q.
        weight_decay: w, decoupled from the gradient.
    """

    learning_rate: float
    filter: Filter = Filter()
    weight_decay: float = 0.0

    @property
    def threshold(self) -> float:
        r"""The largest stable curvature in the metric P, where the multiplier z = -1: $(2 - hw)/(h\,Q(-1))$."""
        return (2 - self.learning_rate * self.weight_decay) / (self.learning_rate * self.filter.alternating_gain)

    def multipliers(self, curvature: float) -> np.ndarray:
        """Returns what a step multiplies a direction by, one number for each of the optimiser's memories of it.

        They are the roots z of (z - 1 + h w) D(1/z) + h c N(1/z), with c the curvature in the metric P.
        """
        above, below = self.filter.numerator, self.filter.denominator
        size = max(len(above), len(below))
        N, D = (np.pad(row, (0, size - len(row))) for row in (above, below))
        own = np.convolve([1.0, -1 + self.learning_rate * self.weight_decay], D)
        return np.roots(own + np.append(0.0, self.learning_rate * curvature * N))


@dataclass(frozen=True, kw_only=True)
class Edge:
    r"""Where an optimiser's edge of stability is, by its state.

    It is stable as long as the largest eigenvalue of $P^{-1/2} (H + W) P^{-1/2}$ is below the threshold.

    Attributes:
        optimizer: Its name.
        part: How the parameters move whose units count, the first that move at all. P takes up where others differ.
        formula: The threshold as a formula in h.
        why: What the threshold is that of, to follow the formula in a sentence; empty for plain descent.
        preconditioner: P, a flat vector like the parameters, infinite where they rest; None for the identity.
        decay: W, L2 weight decay that isn't in the loss: a number, or a flat vector.
        second_moment: Adam's average of squared gradients, corrected for its start, flat; None where there is none.
        unknown: Why no threshold is known, in a sentence; empty where one is.
    """

    optimizer: str
    part: Part
    formula: str = "2/h"
    why: str = ""
    preconditioner: Any = field(default=None, repr=False)
    decay: Any = field(default=0.0, repr=False)
    second_moment: Any = field(default=None, repr=False)
    unknown: str = ""

    @classmethod
    def of_descent(cls, learning_rate: float, *, momentum: float = 0.0) -> "Edge":
        """Returns that of gradient descent, or of heavy ball (Cohen et al. 2021)."""
        part = Part(learning_rate=learning_rate, filter=Filter.heavy_ball(momentum) if momentum else Filter())
        if not momentum:
            return cls(optimizer="descent", part=part)
        why = f", the threshold with momentum m = {momentum:g},"
        return cls(optimizer="heavy ball", part=part, formula="2(1+m)/h", why=why)

    @property
    def learning_rate(self) -> float:
        """The rate h."""
        return self.part.learning_rate

    @property
    def threshold(self) -> float:
        """The largest stable curvature; NaN where it isn't known."""
        return math.nan if self.unknown else self.part.threshold

    def regime(self, curvature: float) -> Regime:
        """Returns how a direction of this curvature moves.

        It is real stable where it decays without a change of sign, complex stable where it decays through such changes,
        as descent does from h lambda = 1 to 2, and unstable where it doesn't decay at all.
        """
        multipliers = self.part.multipliers(curvature)
        if np.max(np.abs(multipliers)) > 1 and curvature > 0:
            return "unstable"
        turning = np.abs(np.imag(multipliers)) > 0
        return "complex stable" if np.any(turning | (np.real(multipliers) < 0)) else "real stable"
