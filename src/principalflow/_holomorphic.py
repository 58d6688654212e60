"""Is a loss holomorphic? Asked before a complex flow is integrated on it.

Two tests, both numerical, on a few samples at a point near `theta` but off the real axis:

1. The Cauchy-Riemann equations: the derivative along i*d must be i times the derivative along d.
   They find `abs`, `conj`, `real`, `imag`.
2. They do not find `relu` or `max`: those are holomorphic on either side of their kink, and a point
   is never on it. So the loss is evaluated once more with every `max`, comparison and the like taken
   the other way. In a stable log-sum-exp that changes nothing; in a relu network it does.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.extend as jex
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array

from principalflow.objective import Objective, Vector

_SAMPLES = 32

_ADVICE = (
    "A complex flow needs a loss that is holomorphic in the parameters. Usual causes and replacements: "
    "relu, leaky_relu, elu, selu -> tanh, softplus, or gelu(approximate=True); max pooling -> average "
    "pooling; abs(x)**2, norm(x)**2, vdot -> sum(x * x); conj, real, imag, astype(float) -> leave them out; "
    "max, min, clip, sort, where on the parameters -> a smooth function. If the loss is holomorphic piece "
    "by piece and that will do, say so with Objective(..., holomorphic=True)."
)


def require_holomorphic(objective: Objective, theta: Vector) -> None:
    """Raises a ValueError, with the causes and their replacements, unless the loss is holomorphic near theta."""
    if objective.vouched_holomorphic:
        return
    loss = objective.first(_SAMPLES).value
    near, direction = _probe(theta)
    try:
        jaxpr = jax.make_jaxpr(loss)(near)
    except TypeError as error:
        raise ValueError(f"The loss can't be evaluated at complex parameters: {error} {_ADVICE}") from error
    if not jnp.issubdtype(jaxpr.out_avals[0].dtype, jnp.complexfloating):
        raise ValueError(f"The loss returns a real number at complex parameters. {_ADVICE}")

    tolerance = float(jnp.finfo(near.dtype).eps) ** 0.5
    along, across = (jax.jvp(loss, (near,), (d,))[1] for d in (direction, 1j * direction))
    violation = jnp.abs(across - 1j * along)
    if violation > tolerance * (jnp.abs(along) + jnp.abs(across)):
        raise ValueError(
            f"The loss violates the Cauchy-Riemann equations by {violation:.1e} (derivative {abs(along):.1e}). {_ADVICE}"
        )

    value = loss(near)
    switches = _Switches()
    (switched,) = switches.evaluate(jaxpr.jaxpr, jaxpr.consts, [near])
    if not jnp.abs(switched - value) <= tolerance * (1 + jnp.abs(value)):
        raise ValueError(f"The loss switches between pieces: {', '.join(sorted(switches.found))}. {_ADVICE}")


def _probe(theta: Vector) -> tuple[Vector, Vector]:
    """A point off the real axis by a hundredth of theta's size, and a direction of theta's size."""
    random = np.random.default_rng(0)
    theta = np.asarray(theta)
    scale = max(np.sqrt(np.mean(np.abs(theta) ** 2)), 1e-3)
    offset, direction = scale * (random.standard_normal((2, theta.size)) + 1j * random.standard_normal((2, theta.size)))
    dtype = np.result_type(theta.dtype, np.complex64)
    return jnp.asarray(theta + 0.01 * offset, dtype), jnp.asarray(direction, dtype)


def _other_way(primitive: Any) -> Callable:
    return lambda _, *operands, **params: primitive.bind(*operands, **params)


# For each operation that switches between pieces of a function: the same with the other piece taken.
_OTHER_PIECE: dict[str, Callable] = {
    "max": _other_way(lax.min_p),
    "min": _other_way(lax.max_p),
    "reduce_max": _other_way(lax.reduce_min_p),
    "reduce_min": _other_way(lax.reduce_max_p),
    "reduce_window_max": lambda out, operand, **_: out + jnp.mean(operand),
    "argmax": _other_way(lax.argmin_p),
    "argmin": _other_way(lax.argmax_p),
    "clamp": lambda out, low, operand, high: operand,
    "sort": lambda out, *operands, **params: [jnp.flip(o, params["dimension"]) for o in out],
    "sign": lambda out, operand: -out,
    "floor": lambda out, operand: out + 1,
    "ceil": lambda out, operand: out - 1,
    "round": lambda out, operand, **_: out + 1,
    "gt": lambda out, *_: ~out,
    "lt": lambda out, *_: ~out,
    "ge": lambda out, *_: ~out,
    "le": lambda out, *_: ~out,
}
# Functions with derivatives of their own are taken as they are (softplus wraps its imaginary part
# into (-pi, pi], which is no kink), except these.
_CUSTOM_KINKS = ("relu", "relu6")


class _Switches:
    """Evaluates a jaxpr with every switch that depends on its arguments taken the other way."""

    def __init__(self):
        self.found: set[str] = set()

    def evaluate(self, jaxpr, consts, arguments: list[Array], tainted=None, name="") -> list[Array]:
        values = dict(zip(jaxpr.constvars, consts, strict=True)) | dict(zip(jaxpr.invars, arguments, strict=True))
        depends = {v for v, t in zip(jaxpr.invars, tainted or [True] * len(arguments), strict=True) if t}

        def read(variable):
            return variable.val if isinstance(variable, jex.core.Literal) else values[variable]

        for equation in jaxpr.eqns:
            operands = [read(v) for v in equation.invars]
            taint = [not isinstance(v, jex.core.Literal) and v in depends for v in equation.invars]
            outputs = self._apply(equation, operands, taint, name)
            values.update(zip(equation.outvars, outputs, strict=True))
            if any(taint):
                depends.update(equation.outvars)
        return [read(v) for v in jaxpr.outvars]

    def _apply(self, equation, operands, taint, name) -> list[Array]:
        primitive, params = equation.primitive, equation.params
        inner = params.get("jaxpr") or params.get("call_jaxpr")
        if inner is not None and primitive.name not in ("scan", "while", "cond"):
            closed = inner if hasattr(inner, "consts") else jex.core.ClosedJaxpr(inner, ())
            called = params.get("name", name)
            if primitive.name.startswith("custom_") and called not in _CUSTOM_KINKS:
                return jex.core.jaxpr_as_fun(closed)(*operands)
            # jnp's own helpers, such as _where, say less than the function that called them.
            called = name if called.startswith("_") else called
            return self.evaluate(closed.jaxpr, closed.consts, operands, taint, called)
        outputs = primitive.bind(*operands, **params)
        if primitive.name in _OTHER_PIECE and any(taint):
            self.found.add(f"{primitive.name} in {name}" if name else primitive.name)
            outputs = _OTHER_PIECE[primitive.name](outputs, *operands, **params)
        return list(outputs) if primitive.multiple_results else [outputs]
