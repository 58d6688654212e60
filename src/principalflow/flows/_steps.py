"""Modified flows of several steps at a time, and those of descent: one step, and two, through the edge of stability."""

import abc
from collections.abc import Sequence
from functools import cache
from itertools import count
from math import comb
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Inexact, PyTree

from principalflow import _checks, _loss
from principalflow._compiled import compiled
from principalflow.flows._flow import Field, Flow, RateFlow
from principalflow.objective import Objective, Vector, checked_theta

# Where rounding alone leaves fewer than three digits.
_LARGEST_ROUNDING = 1e-3
# The series of a direction converges while a period multiplies it by less than 2. At h*lambda of 2.4 it does by this.
# Terms that damp other directions are further from the logarithm: how far from it a field may be, as a share of it.
_LARGEST_GROWTH, _LARGEST_MISS = 1.96, 0.3
# Why flows of descent's oscillation can't be followed at times.
FAR_OR_KINK = "h*lambda may be far above 2, or the loss may have a kink here"
_ROUNDING = "rounding is left of it: take a lower order, or double precision"
# The least share of its rate of growth that an oscillation has a step later.
_STEADY = 0.8
# For damping: at how many points of the circle decay is asked for, the most terms to add, and the least decay a period.
_ANGLES, _MOST_MORE_TERMS, _LEAST_DECAY = 721, 8, 1e-3


class StepsFlow(Flow):
    r"""The modified flow of p steps of a map S.

    Along the path, with time in steps, $S^p = 1 + \Delta = e^{p\,d/dt}$, and so

    $$\dot s = \frac1p \sum_{k=1}^{n+1} \frac{(-1)^{k+1}}k \Delta^k s = \frac1p\sum_{j=0}^n w_j\,\Delta S^{pj} s.$$

    That is the slope at s of the polynomial through $s, S^p s, \dots, S^{p(n+1)} s$: p(n + 1) steps, no Hessian.
    """

    order: eqx.AbstractVar[int]

    @property
    @abc.abstractmethod
    def step_time(self) -> Any:
        """The time that one step takes."""

    @property
    def weights(self) -> tuple[float, ...]:
        """The w above, of the changes over one period after another."""
        return log_weights(self.order)

    @abc.abstractmethod
    def increment(self, objective: Objective, state: PyTree) -> PyTree:
        """Returns what one step adds to a state."""

    def after_step(self, objective: Objective, state: PyTree) -> PyTree:
        """Returns the state after one step of the optimiser."""
        return jax.tree.map(jnp.add, state, self.increment(objective, state))

    def iterates(self, objective: Objective, state: PyTree) -> list[Vector]:
        """Returns the iterates that a state stands for: those of the next steps, as many as the period."""
        states = [state]
        for _ in range(self.period - 1):
            states.append(self.after_step(objective, states[-1]))
        return [self.parameters(each) for each in states]

    def at_step(self, objective: Objective, states: Sequence[PyTree], n: int) -> Vector:
        """Returns the state's parameters after whole periods, and between them those of the steps after the last."""
        since = n % self.period
        return self.iterates(objective, states[-1 - since])[since]

    def centre(self, objective: Objective, state: PyTree) -> Vector:
        """Returns half the sum of two successive iterates, between which a path at the edge oscillates."""
        now, following = self._two(objective, state)
        return (now + following) / 2

    def amplitude(self, objective: Objective, state: PyTree) -> Vector:
        """Returns half the difference of two successive iterates."""
        now, following = self._two(objective, state)
        return (now - following) / 2

    def mean_loss(self, objective: Objective, state: PyTree) -> Inexact[Array, ""]:
        """Returns the mean loss of the iterates that a state stands for."""
        return jnp.mean(jnp.stack([objective.value(theta) for theta in self.iterates(objective, state)]))

    def advice(self, error: float) -> str:
        """Returns what to try against rounding, whose error is finite, or where the series diverges."""
        return _ROUNDING if np.isfinite(error) else self.remedy

    def evaluate(self, objective: Objective, state: PyTree) -> Field:
        """Returns the field; its error is what rounding leaves of it, and infinite where the series diverges."""
        return self._evaluate(objective, self._checked(objective, state))

    def _checked(self, objective: Objective, state: PyTree) -> PyTree:
        return checked_theta(objective, state)

    def _two(self, objective: Objective, state: PyTree) -> tuple[Vector, Vector]:
        following = self.after_step(objective, self._checked(objective, state))
        return self.parameters(state), self.parameters(following)

    @_loss.needs("loss", "a gradient")
    @compiled
    def _evaluate(self, objective: Objective, state: PyTree) -> Field:
        dtype = self.parameters(state).dtype
        n, most = self.order, most_order(dtype)
        if n > most:
            raise ValueError(
                f"order must be at most {most} in {dtype}, got {n}: rounding would leave fewer than "
                "three digits of the field. Give float64 parameters, or take a lower order."
            )
        weights = self.weights
        table = np.zeros((4, self.period * len(weights)))
        table[0] = np.repeat(weights, self.period)
        if n and self.period % 2 == 0:
            # What alternates from step to step, at three steps: drift and what decays are filtered out.
            alternating = [(-1) ** j * comb(2 * n - 1, j) / 2 ** (2 * n - 1) for j in range(2 * n)]
            for begin in range(3):
                table[1 + begin, begin : begin + 2 * n] = alternating

        def add(sums: tuple, row: Array) -> tuple:
            state, total, swings, largest = sums
            moved = self.increment(objective, state)
            step = self.parameters(moved)
            total = jax.tree.map(lambda t, m: t + row[0].astype(m.dtype) * m, total, moved)
            swings = swings + row[1:, None] * step
            following = jax.tree.map(jnp.add, state, moved)
            return (following, total, swings, jnp.maximum(largest, jnp.max(jnp.abs(step)))), None

        nothing = jax.tree.map(jnp.zeros_like, state)
        start = (
            state,
            nothing,
            jnp.zeros((3, self.parameters(state).size), dtype),
            jnp.zeros((), jnp.finfo(dtype).dtype),
        )
        (_, total, swings, largest), _ = lax.scan(add, start, jnp.asarray(table.T, dtype))
        # Steps further down are shorter, but their rounding is not: it is that of theta.
        lost = _rounding(weights, dtype) * largest / jnp.max(jnp.abs(self.parameters(total)))
        error = jnp.where(largest == 0, 0, jnp.where(jnp.isnan(lost), jnp.inf, lost))
        error = jnp.where(_grows(swings, largest_growth(weights) ** (1 / self.period)), jnp.inf, error)
        scale = 1 / (self.period * self.step_time)
        vector = jax.tree.map(lambda leaf: scale * leaf, total)
        return Field(vector, 0, error, error <= _LARGEST_ROUNDING, gradients=self.period * len(weights))


def order_field(**options: Any) -> Any:
    """Returns the field of a flow's order, which is checked."""
    converter = lambda order: _checks.whole("order", order, least=0, most=most_order(np.float64))  # noqa: E731
    return eqx.field(static=True, converter=converter, **options)


class _OfDescent(StepsFlow, RateFlow):
    """The modified flow of so many steps of descent; its state is theta."""

    order: int = order_field()

    @property
    def step_time(self) -> Any:
        """The learning rate."""
        return self.h

    def increment(self, objective: Objective, state: Vector) -> Vector:
        """Returns what a step of descent adds."""
        return -self.h * objective.gradient(state)

    def alpha(self, z: _checks.Numbers) -> Inexact[Array, "..."]:
        r"""Returns $\frac1{pz}\sum_{k=1}^{n+1} \frac{(-1)^{k+1}}k \Delta^k$ with $\Delta = (1-z)^p - 1$.

        It is a polynomial. For p = 1 it is $-\sum_{k=0}^n z^k/(k+1)$ (paper, theorem 3.1).
        """
        z = _checks.finite_numbers("z", z)
        difference = (1 - z) ** self.period - 1
        over_z = -sum((1 - z) ** i for i in range(self.period))
        series = jnp.polyval(jnp.asarray(1 / np.arange(self.order + 1, 0, -1), z.dtype), -difference)
        return over_z * series / self.period


class BackwardError(_OfDescent):
    r"""The modified flow of any order n, every non-principal term included: one-step error $O(h^{n+2})$.

    The step of descent is $e^{h\,d/dt} = 1 + \Delta$, with $\Delta$ the forward difference along descent, so
    $h\,d/dt = \log(1+\Delta)$ and, with $\Delta\theta = -h g$,

    $$\dot\theta = \frac1h\sum_{k=1}^{n+1} \frac{(-1)^{k+1}}k \Delta^k\theta = -\sum_{j=0}^{n} w_j\, g(\theta_j),$$

    where $\theta_0 = \theta, \dots, \theta_n$ are iterates of descent from $\theta$: n + 1 gradients and no Hessian.
    Order 0 is the negative gradient flow; orders 1 and 2 differ from the IGR and third-order flows by terms
    beyond their order. It is the flow of one step at a time; `TwoStep` is that of two.

    The k-th difference doubles the rounding of the gradients k times over. The `error` of `evaluate` estimates what is
    left of it in the field, and the order ends where fewer than three digits would be known: 46 in double precision, 16
    in single.

    Args:
        h: The learning rate of the descent that is modelled.
        order: The power of h that the field is exact to, from 0 to 46.

    Raises:
        ValueError: For an h that isn't finite and above 0, an order that isn't a whole number from 0 to 46, or, at
            evaluation, an order above 16 in single precision.

    Example:
        >>> import principalflow as pf
        >>> bowl = pf.functions.quadratic([[1.0]])
        >>> pf.flows.BackwardError(h=0.3, order=2).field(bowl, [1.0]).round(12)
        Array([-1.18], dtype=float64)
    """

    period = 1
    remedy = _ROUNDING


class TwoStep(_OfDescent):
    r"""The modified flow of two steps of descent, which follows it through the edge of stability for hundreds of steps.

    A direction that flips its sign at every step has the multiplier $1 - h\lambda$ near -1, whose logarithm is complex.
    Two steps multiply it by $w = (1-h\lambda)^2$, which is positive and near 1. So with $\Delta$ the difference over
    two steps, $2h\,d/dt = \log(1+\Delta)$ is real, and

    $$\dot\theta = \frac1{2h}\sum_{k=1}^{n+1} \frac{(-1)^{k+1}}k \Delta^k\theta$$

    takes 2(n + 1) gradients and no Hessian. The path runs through the even iterates; the odd ones are a step of descent
    away, see `iterates`. On quadratics the series is that of $\log|1-h\lambda|/h\lambda$: the real part of the
    principal flow's coefficient. It converges for $h\lambda < 1 + \sqrt 2$. Where an oscillation grows as it does from
    2.4 on, a field of order 1 or more has an infinite `error`, and solutions say so; `Pair` goes on from there.

    Args:
        h: The learning rate of the descent that is modelled.
        order: The n above: two steps are exact to $O(h^{n+2})$.

    Raises:
        ValueError: As `BackwardError`.

    Example:
        >>> import principalflow as pf
        >>> bowl = pf.functions.quadratic([[2.0]])
        >>> flow = pf.flows.TwoStep(h=0.95, order=3)  # h*lambda = 1.9: descent flips its sign, and decays by 0.9 a step
        >>> solution = pf.integrate(flow, bowl, [1.0], time=20 * 0.95)
        >>> print(solution.theta.round(3), round(0.9**20, 3))
        [0.122] 0.122
    """

    period = 2
    remedy = "h*lambda passed 2.4, where the series of two steps diverges: take pf.flows.Pair"
    jumps = FAR_OR_KINK
    order: int = order_field(kw_only=True, default=2)

    @property
    def fastest_decay(self) -> Any:
        r"""That of the direction with $h\lambda = 1$, which two steps take to nothing."""
        return sum(1 / k for k in range(1, self.order + 2)) / (2 * self.h)


@cache
def log_weights(order: int) -> tuple[float, ...]:
    r"""Returns the weights of successive changes in $\log(1+\Delta)$ up to an order.

    $w_j = \sum_{k \geq j} (-1)^j \binom kj / (k+1)$ collects the j-th change over all differences.
    """
    terms = range(order + 1)
    return tuple((-1) ** j * sum(comb(k, j) / (k + 1) for k in terms[j:]) for j in terms)


@cache
def damped_weights(order: int, modulus: float) -> tuple[float, ...] | None:
    r"""Returns weights of that order under which every multiplier of a modulus up to `modulus` decays; None if none do.

    With them the field has the rate $q(w) = (w - 1) \sum_j w_j w^j$ along a direction that a period multiplies by w.
    It is the series of $\log w$ up to its order; further terms are free. $\mathrm{Re}\, q$ is harmonic, so that it is
    negative on a disc if it is on its boundary, where a linear programme makes the largest one as small as it can. The
    fewest terms that will do are taken.
    """
    boundary = modulus * np.exp(1j * np.linspace(0, np.pi, _ANGLES))
    series = log_weights(order)
    if max(((boundary - 1) * np.polyval(series[::-1], boundary)).real) <= 0:
        return series
    from scipy.optimize import linprog  # here, since importing it takes long

    for terms in range(order + 2, order + 2 + _MOST_MORE_TERMS):
        rates = ((boundary[:, None] - 1) * boundary[:, None] ** np.arange(terms)).real
        # The first order + 1 coefficients in powers of w - 1 are those of the series.
        fixed = [[comb(j, i) for j in range(terms)] for i in range(order + 1)]
        values = [(-1) ** i / (i + 1) for i in range(order + 1)]
        found = linprog(
            [0] * terms + [1],
            A_ub=np.pad(rates, ((0, 0), (0, 1)), constant_values=-1),
            b_ub=np.zeros(_ANGLES),
            A_eq=np.pad(np.array(fixed, float), ((0, 0), (0, 1))),
            b_eq=values,
            bounds=[*[(None, None)] * terms, (-1, None)],
        )
        if found.status == 0 and found.fun < -_LEAST_DECAY:
            return tuple(found.x[:-1].tolist())
    return None


@cache
def largest_growth(weights: tuple[float, ...]) -> float:
    """Returns by how much a period may multiply a direction for a field of these weights to be about its logarithm."""
    w = np.linspace(1, _LARGEST_GROWTH, 97)[1:]
    missed = np.abs((w - 1) * np.polyval(weights[::-1], w) / np.log(w) - 1) > _LARGEST_MISS
    return float(w[missed.argmax()]) if missed.any() else _LARGEST_GROWTH


def most_order(dtype: Any) -> int:
    """Returns the highest order of which rounding leaves three digits."""
    return next(order for order in count() if _rounding(log_weights(order + 1), dtype) > _LARGEST_ROUNDING)


def _grows(swings: Inexact[Array, "3 D"], most: float) -> Array:
    """Returns whether what alternates grows by more than a factor from each step to the next, and steadily.

    A kink of the loss looks like growth, too, but like one that ends.
    """
    products = swings @ swings.conj().T
    first, second = (-products[i, i + 1].real / products[i, i].real for i in (0, 1))
    return (jnp.minimum(first, second) > most) & (second > _STEADY * first)


def _rounding(weights: Sequence[float], dtype: Any) -> float:
    """Returns the rounding unit times the sum of |w_j|, by which the sum of changes amplifies it."""
    return float(jnp.finfo(dtype).eps) * sum(abs(weight) for weight in weights)
