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

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from numpy.typing import NDArray

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


def require_holomorphic(objective: Objective, theta: Vector) -> None:
    """Raises a ValueError, with the causes and their replacements, unless the loss is holomorphic near theta."""
    if objective.vouched_holomorphic:
        return
    loss = objective.first(min(_SAMPLES, objective.chunk or _SAMPLES)).value  # in one piece
    near = _off_the_real_axis(theta)
    try:
        jaxpr = jax.make_jaxpr(loss)(near)
        value, *by_jax = _derivatives(loss, near)
    except (TypeError, ValueError, NotImplementedError) as error:
        reason = str(error).strip().removesuffix(".")
        raise ValueError(f"The loss can't be differentiated at complex parameters: {reason}. {_ADVICE}") from error
    if not np.all(np.isfinite(by_jax)):
        raise ValueError("The loss must be finite near theta off the real axis, where it is checked; it is not.")

    tolerance = float(jnp.finfo(near.dtype).eps) ** 0.5
    try:
        _, along, across = _derivatives(lambda at: Evaluation().of(jaxpr, at)[0], near)
        size = abs(value) + np.linalg.norm(along) * np.linalg.norm(near)
        _check_equal(np.asarray(across), 1j * np.asarray(along), tolerance, "violates the Cauchy-Riemann equations")
        for number in ROUNDS:
            evaluation = Evaluation(number)
            (switched,) = evaluation.of(jaxpr, near)
            if not evaluation.switches:
                break
            if not abs(switched - value) <= tolerance * size:
                found = ", ".join(sorted(evaluation.switches))
                raise ValueError(f"The loss switches between pieces: {found}. {_ADVICE}")
        _check_equal(np.stack(by_jax), np.stack([along, across]), tolerance, _OWN_DERIVATIVE)
    except (UnknownOperationError, NotImplementedError) as error:
        raise ValueError(f"Whether the loss is holomorphic can't be judged: it has {error}. {_ADVICE}") from error


def _derivatives(function: Callable[[Vector], Array], at: Vector) -> tuple[Array, Vector, Vector]:
    """Returns the value, and its derivative along the real and the imaginary axis."""

    def derivatives(at: Vector) -> tuple[Array, Vector, Vector]:
        value, pull = jax.vjp(function, at)
        along, across = (pull(jnp.asarray(w, value.dtype))[0] for w in (1, 1j))
        return value, along, across

    try:
        return jax.jit(derivatives)(at)  # else each operation would be compiled by itself
    except jax.errors.ConcretizationTypeError:  # a loop that is evaluated turn by turn
        return derivatives(at)


def _check_equal(found: NDArray, expected: NDArray, tolerance: float, what: str) -> None:
    violation, slope = (float(np.linalg.norm(x)) for x in (found - expected, expected))
    if not violation <= tolerance * slope:
        raise ValueError(f"The loss {what} by {violation / slope if slope else violation:.1e}. {_ADVICE}")


def _off_the_real_axis(theta: Vector) -> Vector:
    """A point that is off the real axis by a hundredth of theta's size."""
    numbers, random = np.asarray(theta), np.random.default_rng(0)
    scale = max(float(np.sqrt(np.mean(np.abs(numbers) ** 2))), 1e-3)
    real, imaginary = 0.01 * scale * random.standard_normal((2, numbers.size))
    return jax.device_put((numbers + real + 1j * imaginary).astype(jnp.promote_types(numbers.dtype, jnp.complex64)))
