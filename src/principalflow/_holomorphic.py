"""Is a loss holomorphic? Asked before a complex flow is integrated on it.

Three tests, all numerical, on a few samples at a point near `theta` but off the real axis:

1. The Cauchy-Riemann equations: the derivative must be linear over the complex numbers. They find `abs`, `conj`,
   `real`, `imag`, also behind a `stop_gradient`: the derivative is that of the loss as it is written.
2. They do not find `relu` or `max`: those are holomorphic on either side of their kink, and a point
   is never on it. So the loss is evaluated again with every `max`, comparison, rounding and the like taken
   the other way. In a stable log-sum-exp that changes nothing; in a relu network it does.
3. The derivative that JAX gives must be that of the loss as it is written, where a function has one of its own.

What they can't judge, such as a callback, is refused: its author can vouch for it.
"""

from collections.abc import Callable
from functools import singledispatch
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from numpy.typing import NDArray

from principalflow._compiled import compiled
from principalflow._pieces import ROUNDS, Evaluation, UnknownOperationError
from principalflow.objective import Objective, Vector

_SAMPLES = 32

_ADVICE = (
    "A complex flow needs a loss that is holomorphic in the parameters. Usual causes and replacements: "
    "cross-entropies of optax, which refuse complex numbers -> principalflow.models.cross_entropy; "
    "relu, leaky_relu, elu, selu -> tanh, softplus, or gelu(approximate=True); max pooling -> average "
    "pooling; abs(x)**2, norm(x)**2, vdot -> sum(x * x); var, std -> mean((x - mean(x))**2); "
    "conj, real, imag, astype(float) -> leave them out; "
    "max, min, clip, sort, where on the parameters -> a smooth function. If the loss is holomorphic piece "
    "by piece and that will do, say so with Objective(..., holomorphic=True)."
)
_OWN_DERIVATIVE = (
    "has a function whose derivative (custom_jvp, custom_vjp, stop_gradient) is not that of its values: they differ"
)


@singledispatch
def require_holomorphic(objective: Objective, theta: Vector) -> None:
    """Raises a ValueError, with the causes and their replacements, unless the loss is holomorphic near theta."""
    if objective.vouched_holomorphic:
        return
    near = off_the_real_axis(theta)
    try:
        found = _compiled_evaluations(objective, near)
    except jax.errors.ConcretizationTypeError:  # a loop that is evaluated turn by turn
        found = _evaluations(objective, near)
    if not np.all(np.isfinite(found.by_jax)):
        raise ValueError("The loss must be finite near theta off the real axis, where it is checked; it is not.")
    tolerance = float(jnp.finfo(near.dtype).eps) ** 0.5
    along, across = np.asarray(found.written)
    _check_equal(across, 1j * along, tolerance, "violates the Cauchy-Riemann equations")
    plain = complex(found.value)
    size = abs(plain) + np.linalg.norm(along) * np.linalg.norm(near)
    for value, switches in found.switched:
        if not abs(complex(value) - plain) <= tolerance * size:
            raise ValueError(f"The loss switches between pieces: {', '.join(sorted(switches))}. {_ADVICE}")
    _check_equal(np.asarray(found.by_jax), np.asarray(found.written), tolerance, _OWN_DERIVATIVE)


class _Evaluations(NamedTuple):
    """A loss at one point.

    Attributes:
        value: As it is written.
        by_jax: Its derivatives along the real and the imaginary axis.
        written: The same of the loss as it is written.
        switched: Values with switches taken the other way, and which these are.
    """

    value: Array
    by_jax: Array
    written: Array
    switched: list[tuple[Array, set[str]]]


def _evaluations(objective: Objective, at: Vector) -> _Evaluations:
    few = objective.first(min(_SAMPLES, objective.chunk or _SAMPLES))  # in one piece
    try:
        jaxpr = jax.make_jaxpr(few.value)(at)
        value, by_jax = _derivatives(few.value, at)
    except (TypeError, ValueError, NotImplementedError) as error:
        reason = str(error).strip().removesuffix(".")
        raise ValueError(f"The loss can't be differentiated at complex parameters: {reason}. {_ADVICE}") from error
    switched = []
    try:
        _, written = _derivatives(lambda at: Evaluation().of(jaxpr, at)[0], at)
        for number in ROUNDS:
            evaluation = Evaluation(number)
            (other,) = evaluation.of(jaxpr, at)
            if not evaluation.switches:
                break
            switched.append((other, evaluation.switches))
    except (UnknownOperationError, NotImplementedError) as error:
        raise ValueError(f"Whether the loss is holomorphic can't be judged: it has {error}. {_ADVICE}") from error
    return _Evaluations(value, by_jax, written, switched)


_compiled_evaluations = compiled(_evaluations)


def _derivatives(function: Callable[[Vector], Array], at: Vector) -> tuple[Array, Array]:
    """Returns the value, and its derivatives along the real and the imaginary axis."""
    value, pull = jax.vjp(function, at)
    return value, jnp.stack([pull(jnp.asarray(w, value.dtype))[0] for w in (1, 1j)])


def _check_equal(found: NDArray, expected: NDArray, tolerance: float, what: str) -> None:
    violation, slope = (float(np.linalg.norm(x)) for x in (found - expected, expected))
    if not violation <= tolerance * slope:
        raise ValueError(f"The loss {what} by {violation / slope if slope else violation:.1e}. {_ADVICE}")


def off_the_real_axis(theta: Vector) -> Vector:
    """A point that is off the real axis by a hundredth of theta's size."""
    numbers, random = np.asarray(theta), np.random.default_rng(0)
    scale = max(float(np.sqrt(np.mean(np.abs(numbers) ** 2))), 1e-3)
    real, imaginary = 0.01 * scale * random.standard_normal((2, numbers.size))
    return jax.device_put((numbers + real + 1j * imaginary).astype(jnp.promote_types(numbers.dtype, jnp.complex64)))
