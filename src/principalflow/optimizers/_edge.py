"""Where an optimiser's edge of stability is: the metric in which it sees curvature, and how much of it it bears."""

import math
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from principalflow import _checks

Regime = Literal["real stable", "complex stable", "stable", "unstable", "unknown"]

# Where momentum is asked whether it escapes by a flip of the sign.
_UPPER_CIRCLE = np.exp(1j * np.linspace(1e-3, np.pi - 1e-3, 400))
# The roots of a polynomial are known so well.
_ROUNDING = 1e-9
# Where weight decay shrinks parameters by shares as close as that at a step, regimes differ by eigenvalues' errors.
_SAME_SHRINKING = 1e-2


@dataclass(frozen=True, kw_only=True)
class Filter:
    r"""What momentum makes of the gradients: $Q(z) = N(1/z)/D(1/z)$, coefficients from the constant one on.

    `Filter()` passes gradients on as they are.

    Attributes:
        numerator: N.
        denominator: D.
        formula: 1/Q(-1) as what stands above and below the line.
        words: The symbols in the formula, with their values.
    """

    numerator: tuple[float, ...] = (1.0,)
    denominator: tuple[float, ...] = (1.0,)
    formula: tuple[str, str] = field(default=("", ""), compare=False)
    words: tuple[str, ...] = field(default=(), compare=False)

    @classmethod
    def of_average(
        cls, decay: float, passed: float, kept: float, direct: float, formula: tuple[str, str], words: tuple[str, ...]
    ) -> "Filter":
        """Returns that of v <- b v + p g, where the update is k v + d g."""
        numerator = (kept * passed + direct, -direct * decay)
        return cls(numerator=numerator, denominator=(1.0, -decay), formula=formula, words=words)

    @classmethod
    def heavy_ball(cls, momentum: float, *, dampening: float = 0.0, nesterov: bool = False) -> "Filter":
        """Returns that of v <- m v + (1 - d) g; the update is v, or with Nesterov's momentum g + m v."""
        if not momentum:
            return cls()
        words = (f"{'Nesterov momentum' if nesterov else 'momentum'} m = {momentum:g}",)
        below = "(1+2m)" if nesterov else ""
        if dampening:
            words, below = (*words, f"dampening d = {dampening:g}"), "(1+2m-dm)" if nesterov else "(1-d)"
        kept, direct = (momentum, 1.0) if nesterov else (1.0, 0.0)
        return cls.of_average(momentum, 1 - dampening, kept, direct, ("(1+m)", below), words)

    @classmethod
    def average(cls, decay: float, *, nesterov: bool = False) -> "Filter":
        """Returns that of m <- b m + (1 - b) g, as in Adam; with Nesterov's momentum, b m + (1 - b) g as in NAdam."""
        if not decay:
            return cls()
        formula = ("(1+b1)", "(1-b1)(1+2b1)" if nesterov else "(1-b1)")
        kept, direct = (decay, 1 - decay) if nesterov else (1.0, 0.0)
        return cls.of_average(decay, 1 - decay, kept, direct, formula, (f"b1 = {decay:g}",))

    @property
    def alternating_gain(self) -> float:
        """Q(-1): what becomes of a gradient whose sign flips at every step."""
        return float(self(-1.0))

    def __call__(self, z: Any) -> Any:
        """Returns Q(z)."""
        above, below = (sum(c / z**i for i, c in enumerate(row)) for row in (self.numerator, self.denominator))
        return above / below

    @property
    def steady_gain(self) -> float:
        """Q(1): what becomes of a gradient that stays."""
        return float(self(1.0))

    def then(self, other: "Filter") -> "Filter":
        """Returns this filter followed by another."""
        numerator, denominator = (
            tuple(np.convolve(a, b).tolist())
            for a, b in ((self.numerator, other.numerator), (self.denominator, other.denominator))
        )
        both = self.formula != ("", "") and other.formula != ("", "")
        formula = ("", "Q(-1)") if both else (self.formula[0] + other.formula[0], self.formula[1] + other.formula[1])
        words = self.words + other.words
        return Filter(numerator=numerator, denominator=denominator, formula=formula, words=words)


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
        moved = self.learning_rate * self.filter.alternating_gain
        return (2 - self.learning_rate * self.weight_decay) / moved if moved else math.inf

    def stable_rate(self, curvature: float) -> float:
        r"""Returns up to which rate a curvature in the metric P is stable: $2/(\lambda\,Q(-1) + w)$."""
        slowing = curvature * self.filter.alternating_gain + self.weight_decay
        return 2 / slowing if slowing > 0 else math.inf

    @property
    def formula(self) -> str:
        """The threshold as a formula in h."""
        two, (above, below) = "(2-hw)" if self.weight_decay else "2", self.filter.formula
        return f"{two}{above}/({below}h)" if below else f"{two}{above}/h"

    @property
    def leaves_by_flipping(self) -> bool:
        r"""Whether z = -1 is where it becomes unstable first, alone or together with other parts of which this is true.

        That is so if $(z - 1 + hw)/Q(z)$ has a positive imaginary part on the upper half of the unit circle. For a
        multiplier z there would need $\sum_i |v_i|^2 P_i (z - 1 + h_i w_i)/(h_i Q_i(z)) = -v^* H v$ with a vector v of
        parameters, and the right side is real.
        """
        z = _UPPER_CIRCLE
        return bool(np.all(np.imag((z - 1 + self.learning_rate * self.weight_decay) / self.filter(z)) > 0))

    @property
    def small_batch_threshold(self) -> float:
        r"""The same for the batch sharpness of small batches, $(2 - hw)/(h\,Q(1))$: $2(1-m)/h$ for heavy ball.

        Their noise has no sign to flip (Andreyev and Beneventano, arXiv 2412.20553 and 2604.14108); without momentum it
        is the same number.
        """
        moved = self.learning_rate * self.filter.steady_gain
        return (2 - self.learning_rate * self.weight_decay) / moved if moved else math.inf

    def multipliers(self, curvature: float) -> np.ndarray:
        """Returns what a step multiplies a direction by, one number for each of the optimiser's memories of it.

        They are the roots z of (z - 1 + h w) D(1/z) + h c N(1/z), with c the curvature in the metric P.
        """
        above, below = self.filter.numerator, self.filter.denominator
        size = max(len(above), len(below))
        N, D = (np.pad(row, (0, size - len(row))) for row in (above, below))
        own = np.convolve([1.0, -1 + self.learning_rate * self.weight_decay], D)
        return np.roots(own + np.append(0.0, self.learning_rate * curvature * N))


@dataclass(frozen=True, kw_only=True, eq=False)
class Edge:
    r"""Where an optimiser's edge of stability is, by its state.

    It is stable as long as the largest eigenvalue of $P^{-1/2} (H + W) P^{-1/2}$ is below the threshold.

    Attributes:
        optimizer: Its name.
        part: How the parameters move whose units count, the first that move at all. P takes up where others differ.
        others: How other parameters move, where they do so in another way.
        why: What the threshold is that of, to follow the formula in a sentence; empty for plain descent.
        preconditioner: P, a flat vector like the parameters, infinite where they rest; None for the identity.
        decay: W, L2 weight decay that isn't in the loss: a number, or a flat vector.
        second_moment: The average of squared gradients that P comes from, corrected for its start, flat, infinite where
            there is none; None where there is none at all.
        beta2: The decay of that average, 0 where it needs no correction for its start.
        unknown: Why no threshold is known, in a sentence; empty where one is.
        starting: Whether it is unknown only until the first step.
        clips: Whether gradients are clipped, which the threshold takes no account of.
    """

    optimizer: str
    part: Part
    others: tuple[Part, ...] = ()
    why: str = ""
    preconditioner: Any = field(default=None, repr=False)
    decay: Any = field(default=0.0, repr=False)
    second_moment: Any = field(default=None, repr=False)
    beta2: float = 0.0
    unknown: str = ""
    starting: bool = False
    clips: bool = False

    @classmethod
    def of(
        cls,
        optimizer: str,
        learning_rate: float,
        *,
        momentum: float = 0.0,
        beta1: float = 0.0,
        nesterov: bool = False,
        weight_decay: float = 0.0,
        preconditioner: Any = None,
    ) -> "Edge":
        r"""Returns that of an optimiser of your own: $\theta \leftarrow (1 - hw)\,\theta - h P^{-1} v$.

        Args:
            optimizer: Its name.
            learning_rate: h.
            momentum: m, for heavy ball, $v \leftarrow m v + g$.
            beta1: $b_1$, for an average as Adam's, $v \leftarrow b_1 v + (1 - b_1) g$.
            nesterov: Whether either is Nesterov's.
            weight_decay: w, decoupled from the gradient.
            preconditioner: P, a flat vector as the flat parameters, at the step to come; None for the identity.

        Raises:
            ValueError: For a momentum beside a beta1, or numbers out of their range.

        Example:
            >>> import principalflow as pf
            >>> edge = pf.optimizers.Edge.of("mine", 0.1, beta1=0.9)
            >>> print(f"{edge.threshold:.4g}, {edge.formula}{edge.why}")
            380, 2(1+b1)/((1-b1)h), mine's threshold with b1 = 0.9,
        """
        h, m = _checks.rate("learning_rate", learning_rate), _checks.fraction("momentum", momentum)
        b1, w = _checks.fraction("beta1", beta1), _checks.non_negative("weight_decay", weight_decay)
        if m and b1:
            raise ValueError(f"momentum or beta1 must be 0: they are two kinds of one thing; got {m:g} and {b1:g}.")
        passed = Filter.average(b1, nesterov=nesterov) if b1 else Filter.heavy_ball(m, nesterov=nesterov)
        passed = passed if b1 or m else Filter()
        words = [*passed.words, *([f"weight decay w = {w:g}"] if w else [])]
        why = f", {optimizer}'s threshold{' with ' * bool(words)}{' and '.join(words)},"
        part = Part(learning_rate=h, filter=passed, weight_decay=w)
        return cls(optimizer=optimizer, part=part, why=why, preconditioner=preconditioner)

    @classmethod
    def of_descent(cls, learning_rate: float, *, momentum: float = 0.0) -> "Edge":
        """Returns that of gradient descent, or of heavy ball (Cohen et al. 2021)."""
        part = Part(learning_rate=learning_rate, filter=Filter.heavy_ball(momentum))
        if not momentum:
            return cls(optimizer="descent", part=part)
        why = f", the threshold with momentum m = {momentum:g},"
        return cls(optimizer="heavy ball", part=part, why=why)

    @classmethod
    def of_unknown(cls, optimizer: str, why: str) -> "Edge":
        """Returns that of an optimiser whose threshold isn't known, by a sentence; its rate is NaN."""
        return cls(optimizer=optimizer, part=Part(learning_rate=math.nan), unknown=why)

    def moving(self, index: Any, ones: Any) -> "Edge":
        """Returns the edge where only the parameters at these positions move; `ones` is a vector of all of them."""
        P = self.preconditioner if self.preconditioner is not None else ones
        return replace(self, preconditioner=(ones * math.inf).at[index].set(P[index]))

    @property
    def learning_rate(self) -> float:
        """The rate h."""
        return self.part.learning_rate

    @property
    def has_momentum(self) -> bool:
        """Whether a step is made of former gradients, too, be it that of a few parameters."""
        return any(part.filter != Filter() for part in (self.part, *self.others))

    @property
    def is_descent(self) -> bool:
        """Whether steps are those of descent in the metric, which are stable up to 2/h."""
        return not (self.unknown or self.is_mixed or self.has_momentum or self.part.weight_decay)

    @property
    def is_mixed(self) -> bool:
        """Whether parameters differ by more than their rates: all share a threshold, but not how they move below it."""
        own = self.part
        return any(
            part.filter != own.filter or abs(_shrinking(part) - _shrinking(own)) > _SAME_SHRINKING
            for part in self.others
        )

    @property
    def has_decay(self) -> bool:
        """Whether there is L2 weight decay."""
        return not isinstance(self.decay, float) or self.decay != 0

    @property
    def metric(self) -> dict[str, Any]:
        """P and W, as `spectrum.top_eigenpairs` takes them; nothing where both are plain."""
        plain = self.preconditioner is None and not self.has_decay
        return {} if plain else dict(preconditioner=self.preconditioner, decay=self.decay)

    @property
    def formula(self) -> str:
        """The threshold as a formula in h, empty where it isn't known."""
        return "" if self.unknown else self.part.formula

    @property
    def threshold(self) -> float:
        """The largest stable curvature; NaN where it isn't known."""
        return math.nan if self.unknown else self.part.threshold

    def regime(self, curvature: float) -> Regime:
        """Returns how a direction of this curvature moves.

        It is real stable where it decays without a change of sign, complex stable where it decays through such changes,
        as descent does from h lambda = 1 to 2, and unstable where it doesn't decay at all. Where parameters differ by
        more than their rates, it is just stable or unstable. A negative curvature, along which the loss falls at every
        rate, counts as real stable, as all h lambda < 1 do in `stability.analyse`.
        """
        if self.unknown:
            return "unknown"
        if self.is_mixed and curvature > 0:
            return "unstable" if curvature > self.threshold else "stable"
        multipliers = self.part.multipliers(curvature)
        if np.max(np.abs(multipliers)) > 1 + _ROUNDING and curvature > 0:
            return "unstable"
        turning = np.abs(np.imag(multipliers)) > 0
        return "complex stable" if np.any(turning | (np.real(multipliers) < 0)) else "real stable"


def _shrinking(part: Part) -> float:
    """Returns by what share weight decay shrinks the parameters at a step."""
    return part.learning_rate * part.weight_decay
