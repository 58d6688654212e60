"""Explicit Runge-Kutta steps, driven from Python.

Only the field is compiled: a new loss compiles no solver, a step can be counted, shown and interrupted, and the vectors
are NumPy's on a CPU, whose small operations are quicker, and JAX's, on their device, elsewhere.
"""

import math
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.polynomial import Chebyshev

from principalflow.status import Status

Field = Callable[[Any], Any]
Weights = list[list[float]]

# A step is changed by the factor at which its error would be this part of the tolerance, within these bounds.
_SAFETY, _LEAST_FACTOR, _MOST_FACTOR = 0.9, 0.2, 10.0
# The least step, relative to the time followed so far, or to this part of the whole, unless rounding needs more.
_LEAST_STEP, _ROUNDING_UNITS = 1e-10, 16


class Pair(NamedTuple):
    """A method and the one embedded in it; the last stage is the field at the end, and the next step's first.

    Attributes:
        stages: For each stage after the first the weights of those before it; the last are those of the step.
        errors: Weights of one or two error estimates.
        order: Of the step's error as a function of its length.
        polynomial: How the slopes go into the higher coefficients of the states within a step.
        between: Further stages that these need.
    """

    stages: Weights
    errors: Weights
    order: int
    polynomial: Weights
    between: Weights


# Ch. Tsitouras, Runge-Kutta pairs of order 5(4) satisfying only the first column simplifying assumption, 2011.
_TSIT5 = Pair(
    stages=[
        [0.161],
        [-0.008480655492356989, 0.335480655492357],
        [2.8971530571054935, -6.359448489975075, 4.3622954328695815],
        [5.325864828439257, -11.748883564062828, 7.4955393428898365, -0.09249506636175525],
        [5.86145544294642, -12.92096931784711, 8.159367898576159, -0.071584973281401, -0.028269050394068383],
        [0.09646076681806523, 0.01, 0.4798896504144996, 1.379008574103742, -3.290069515436081, 2.324710524099774],
    ],
    errors=[
        [
            -0.00178001105222577714,
            -0.0008164344596567469,
            0.007880878010261995,
            -0.1447110071732629,
            0.5823571654525552,
            -0.45808210592918697,
            0.015151515151515152,
        ]
    ],
    order=5,
    polynomial=[
        [
            -1.0530884977290216,
            0.1017,
            2.490627285651253,
            -16.548102889244902,
            47.37952196281928,
            -34.87065786149661,
            2.5,
        ]
    ],
    between=[],
)
SOLVERS, RKC = ("tsit5", "dopri8"), "rkc"
# Of Runge-Kutta-Chebyshev methods: how much of the square of its stages one's stability reaches to, as is usual with
# room for error, and how many stages it has.
_PER_SQUARE, _DAMPING, _LEAST_STAGES, _MOST_STAGES = 0.6, 2 / 13, 3, 30


def pairs_of(solver: str, decay: float | None = None) -> Callable[[float], Pair]:
    """Returns what has the pair for a step of some length; that of `RKC` has as many stages as it takes to be stable.

    Args:
        solver: Its name.
        decay: For `RKC` the rate of the fastest decay in the field.
    """
    if solver != RKC:
        pair = pair_of(solver)
        return lambda length: pair
    rate = 1.0 if decay is None else decay

    def stable(length: float) -> Pair:
        needed = math.ceil(math.sqrt(1 + length * rate / _PER_SQUARE))
        return chebyshev_pair(min(max(needed, _LEAST_STAGES), _MOST_STAGES))

    return stable


@cache
def chebyshev_pair(stages: int) -> Pair:
    r"""Returns the Runge-Kutta-Chebyshev method of order 2, whose stability reaches to $-0.65 (s^2 - 1)$ for s stages.

    Sommeijer, Shampine and Verwer, RKC: an explicit solver for parabolic PDEs, 1998; its recursion is written out here.
    """
    s, (T, first, second) = stages, ([Chebyshev.basis(j).deriv(m) for j in range(stages + 1)] for m in range(3))
    w0 = 1 + _DAMPING / s**2
    w1 = first[s](w0) / second[s](w0)
    b = [second[j](w0) / first[j](w0) ** 2 for j in range(2, s + 1)]
    b = [b[0], b[0], *b]
    slopes = np.eye(s + 1)
    rows = [np.zeros(s + 1), b[1] * w1 * slopes[0]]  # how the slopes go into each stage
    for j in range(2, s + 1):
        ahead, behind, new = 2 * b[j] * w0 / b[j - 1], -b[j] / b[j - 2], 2 * b[j] * w1 / b[j - 1]
        start = (1 - b[j - 1] * T[j - 1](w0)) * new
        rows.append(ahead * rows[j - 1] + behind * rows[j - 2] + new * slopes[j - 1] - start * slopes[0])
    errors = 0.4 * (slopes[0] + slopes[s]) - 0.8 * rows[s]
    return Pair([rows[j][:j].tolist() for j in range(1, s + 1)], [errors.tolist()], 3, [], [])


@cache
def pair_of(solver: str) -> Pair:
    """Returns the pair of a solver by its name.

    That of order 8(5, 3) is Dormand and Prince's: Hairer, Nørsett, Wanner, Solving Ordinary Differential Equations I,
    1993.
    """
    if solver == "tsit5":
        return _TSIT5
    from scipy.integrate import DOP853  # here, since importing it takes as long as importing JAX

    return Pair(
        stages=[*(DOP853.A[i, :i].tolist() for i in range(1, DOP853.n_stages)), DOP853.B.tolist()],
        errors=[DOP853.E5.tolist(), DOP853.E3.tolist()],
        order=8,
        polynomial=DOP853.D.tolist(),
        between=[row[: DOP853.n_stages + 1 + i].tolist() for i, row in enumerate(DOP853.A_EXTRA)],
    )


class Followed(NamedTuple):
    """The states that were reached at the times asked for, all finite, and how it ended.

    Attributes:
        states: One for each time that was reached.
        last: The last state, also between these times.
        slope: The field there.
        time: When that is.
        steps: Steps, rejected ones included.
        status: Completed, stuck, max_steps, diverged or interrupted.
    """

    states: list
    last: Any
    slope: Any
    time: float
    steps: int
    status: Status


def adaptive(
    field: Field,
    state: Any,
    times: np.ndarray,
    pairs: Callable[[float], Pair],
    rtol: float,
    atol: float,
    max_steps: int,
    tell: Callable[[float, int], None],
) -> Followed:
    """Follows a field through the times, the first of them the state's, by steps as long as the tolerance allows.

    The states at the times are taken from the pair's polynomials between the steps, whose ends they don't change.

    Args:
        field: The derivative of a state, a vector.
        state: The start.
        times: Increasing.
        pairs: The method for steps of some length.
        rtol: Tolerance of a step, relative to the state.
        atol: Absolute tolerance; the root mean square over the entries is bounded.
        max_steps: The most steps.
        tell: Called after every step with the time, and how many evaluations of the field it took.
    """
    xp, dtype = _namespace(state), state.real.dtype
    span, time, steps, states = float(times[-1] - times[0]), float(times[0]), 0, [state]
    begin, share = time, max(_LEAST_STEP, _ROUNDING_UNITS * float(xp.finfo(dtype).eps))
    slope, pending, end = field(state), times[1:].tolist(), float(times[-1])
    if not _in_range(xp, slope):
        return Followed(states, state, slope, time, steps, Status.DIVERGED)
    order = pairs(span).order
    step = _first_step(xp, field, state, slope, span, order, _scale(xp, rtol, atol, abs(state))) if span else 0.0
    try:
        while pending:
            if time == pending[0]:
                states.append(state)
                pending.pop(0)
                continue
            least = share * max(time - begin, _LEAST_STEP * span)
            if steps == max_steps:
                return Followed(states, state, slope, time, steps, Status.MAX_STEPS)
            length = end - time if time + step >= end - least else step
            pair = pairs(length)
            new, slopes = _step(field, state, slope, length, pair)
            scale = _scale(xp, rtol, atol, xp.maximum(abs(state), abs(new)))
            size = _rms_error(xp, slopes, length, pair, scale)
            steps += 1
            factor = _factor(size, order)
            if size <= 1:
                before, old = time, state
                time, state, slope = end if length == end - time else time + length, new, slopes[-1]
                step = length * factor
                if not _in_range(xp, state):
                    return Followed(states, old, slopes[0], before, steps, Status.DIVERGED)
                tell(time, len(pair.stages))
                passed = [t for t in pending if t < time]
                if passed:
                    between = _between(field, old, new, slopes, length, pair)
                    states += [between((t - before) / length) for t in passed]
                    pending = pending[len(passed) :]
            else:
                step = length * min(factor, _SAFETY)
            if step < least:
                return Followed(states, state, slope, time, steps, Status.STUCK)
    except KeyboardInterrupt:
        return Followed(states, state, slope, time, steps, Status.INTERRUPTED)
    return Followed(states, state, slope, time, steps, Status.COMPLETED)


def euler(field: Field, state: Any, times: np.ndarray, step: float, tell: Callable[[float, int], None]) -> Followed:
    """Follows a field by Euler's steps, each as long as `step` or so much shorter that they end on the times."""
    xp, steps, states, now, slope = _namespace(state), 0, [state], float(times[0]), None
    try:
        for time, target in pairwise(times.tolist()):
            count = int(np.ceil((target - time) / step - 1e-9))
            length = (target - time) / max(count, 1)
            for i in range(count):
                slope = field(state)
                new = state + length * slope
                if not _in_range(xp, new):
                    return Followed(states, state, slope, now, steps, Status.DIVERGED)
                state, steps, now = new, steps + 1, time + (i + 1) * length
                tell(now, 1)
            now = target
            states.append(state)
    except KeyboardInterrupt:
        return Followed(states, state, slope, now, steps, Status.INTERRUPTED)
    return Followed(states, state, slope, now, steps, Status.COMPLETED)


def _first_step(xp: Any, field: Field, state: Any, slope: Any, span: float, order: int, scale: Any) -> float:
    """Returns a step whose error is about the tolerance, by one more evaluation (Hairer et al., section II.4)."""
    size, first = _rms(xp, state / scale), _rms(xp, slope / scale)
    short = min(span, 0.01 * size / first if min(size, first) > 1e-5 else 1e-6 * span)
    second = _rms(xp, (field(state + short * slope) - slope) / scale) / short
    steepest = float(np.max([first, second]))  # which keeps a NaN
    if not np.isfinite(steepest):
        return short
    return min(span, 100 * short, (0.01 / steepest) ** (1 / order) if steepest > 0 else span)


def _step(field: Field, state: Any, slope: Any, length: float, pair: Pair) -> tuple[Any, list]:
    slopes, new = [slope], state
    for weights in pair.stages:
        new = state + length * _combined(weights, slopes)
        slopes.append(field(new))
    return new, slopes


def _between(field: Field, state: Any, new: Any, slopes: list, length: float, pair: Pair) -> Callable[[float], Any]:
    """Returns the states within a step, from 0 at its start to 1 at its end (Hairer, Nørsett, Wanner, section II.6)."""
    end, slopes = slopes[-1], [*slopes]
    for weights in pair.between:
        slopes.append(field(state + length * _combined(weights, slopes)))
    change = new - state
    first = [change, length * slopes[0] - change, 2 * change - length * (end + slopes[0])]
    coefficients = [*first, *(length * _combined(weights, slopes) for weights in pair.polynomial)]

    def at(x: float) -> Any:
        total = 0.0
        for i, coefficient in reversed([*enumerate(coefficients)]):
            total = (total + coefficient) * (1 - x if i % 2 else x)
        return state + total

    return at


def _rms_error(xp: Any, slopes: list, length: float, pair: Pair, scale: Any) -> float:
    """Returns the error of a step over the tolerance, infinite where it isn't a number."""
    sizes = [length * _rms(xp, _combined(weights, slopes) / scale) for weights in pair.errors]
    # Of two estimates, Hairer's: the one of higher order, damped where the other says that it is too good to be true.
    size = sizes[0] if len(sizes) == 1 else sizes[0] ** 2 / max((sizes[0] ** 2 + 0.01 * sizes[1] ** 2) ** 0.5, 1e-300)
    return size if np.isfinite(size) else np.inf


def _scale(xp: Any, rtol: float, atol: float, size: Any) -> Any:
    """Returns the error that each entry may have; not 0, for a parameter that is 0 and stays so."""
    return xp.maximum(atol + rtol * size, float(xp.finfo(size.dtype).tiny))


def _combined(weights: list[float], slopes: list) -> Any:
    """Returns a sum of the slopes, term by term.

    A product of matrices would wake NumPy's threads, which get in the way of the field's, and accelerators would round
    it to less than single precision.
    """
    terms = (weight * slope for weight, slope in zip(weights, slopes, strict=True) if weight)
    total = next(terms)
    for term in terms:
        total += term
    return total


def _factor(size: float, order: int) -> float:
    factor = _SAFETY * size ** (-1 / order) if size > 0 else _MOST_FACTOR
    return min(max(factor, _LEAST_FACTOR), _MOST_FACTOR)


def _rms(xp: Any, x: Any) -> float:
    """Returns the root mean square, whose squares may be beyond the range of numbers."""
    with np.errstate(all="ignore"):
        largest = float(xp.max(abs(x)))
        return largest * float(xp.sqrt(xp.mean(abs(x / largest) ** 2))) if 0 < largest < np.inf else largest


def _in_range(xp: Any, x: Any) -> bool:
    """Whether no entry is beyond measure: its square, and that of its square, are numbers."""
    return bool(xp.max(abs(x)) < float(xp.finfo(x.dtype).max) ** 0.25)


def _namespace(x: Any) -> Any:
    if isinstance(x, np.ndarray):
        return np
    import jax.numpy as jnp

    return jnp
