"""Is a loss holomorphic? Asked before a complex flow is integrated on it.

Two tests, both numerical, on a few samples at a point near `theta` but off the real axis:

1. The Cauchy-Riemann equations: the derivative must be linear over the complex numbers.
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
    "pooling; abs(x)**2, norm(x)**2, vdot -> sum(x * x); var, std -> mean((x - mean(x))**2); "
    "conj, real, imag, astype(float) -> leave them out; "
    "max, min, clip, sort, where on the parameters -> a smooth function. If the loss is holomorphic piece "
    "by piece and that will do, say so with Objective(..., holomorphic=True)."
)


def require_holomorphic(objective: Objective, theta: Vector) -> None:
    """Raises a ValueError, with the causes and their replacements, unless the loss is holomorphic near theta."""
    if objective.vouched_holomorphic:
        return
    loss = objective.first(min(_SAMPLES, objective.chunk or _SAMPLES)).value  # in one piece
    near = _off_the_real_axis(theta)
    try:
        jaxpr = jax.make_jaxpr(loss)(near)
        value, pull = jax.vjp(loss, near)
        along, across = (pull(jnp.asarray(w, value.dtype))[0] for w in (1, 1j))
    except (TypeError, ValueError) as error:
        raise ValueError(f"The loss can't be differentiated at complex parameters: {error} {_ADVICE}") from error
    if not jnp.all(jnp.isfinite(along)):
        raise ValueError("The loss must be finite near theta off the real axis, where it is checked; it is not.")

    tolerance = float(jnp.finfo(near.dtype).eps) ** 0.5
    violation, slope = (float(jnp.linalg.norm(x)) for x in (across - 1j * along, along))
    if violation > tolerance * slope:
        raise ValueError(f"The loss violates the Cauchy-Riemann equations by {violation / slope:.1e}. {_ADVICE}")

    switches = _Switches()
    (switched,) = switches.evaluate(jaxpr.jaxpr, jaxpr.consts, [near])
    size = abs(value) + slope * jnp.linalg.norm(near)
    if not abs(switched - value) <= tolerance * size:
        raise ValueError(f"The loss switches between pieces: {', '.join(sorted(switches.found))}. {_ADVICE}")


def _off_the_real_axis(theta: Vector) -> Vector:
    """A point that is off the real axis by a hundredth of theta's size."""
    random = np.random.default_rng(0)
    scale = max(float(jnp.sqrt(jnp.mean(jnp.abs(theta) ** 2))), 1e-3)
    real, imaginary = 0.01 * scale * random.standard_normal((2, theta.size))
    return theta + jnp.asarray(real + 1j * imaginary, jnp.promote_types(theta.dtype, jnp.complex64))


def _other_way(primitive: Any) -> Callable:
    def other(out, *operands, **params):
        taken = primitive.bind(*operands, **params)
        return jnp.where(jnp.isfinite(taken), taken, out)  # max(x, -inf) is no switch

    return other


# For each operation that switches between pieces of a function: the same with the other piece taken.
_OTHER_PIECE: dict[str, Callable] = {
    "max": _other_way(lax.min_p),
    "min": _other_way(lax.max_p),
    "reduce_max": _other_way(lax.reduce_min_p),
    "reduce_min": _other_way(lax.reduce_max_p),
    "cummax": _other_way(lax.cummin_p),
    "cummin": _other_way(lax.cummax_p),
    "reduce_window_max": lambda out, operand, **_: out + jnp.mean(operand),
    "argmax": _other_way(lax.argmin_p),
    "argmin": _other_way(lax.argmax_p),
    "clamp": lambda out, low, operand, high: operand,
    "sort": lambda out, *operands, **params: [jnp.flip(o, params["dimension"]) for o in out],
    "sign": lambda out, operand: -out,
    "floor": lambda out, operand: out + 1,
    "ceil": lambda out, operand: out - 1,
    "round": lambda out, operand, **_: out + 1,
}
_COMPARISONS = ("gt", "lt", "ge", "le")


class _Switches:
    """Evaluates a jaxpr with every switch that depends on its arguments taken the other way."""

    def __init__(self):
        self.found: set[str] = set()

    def evaluate(self, jaxpr, consts, arguments: list[Array], tainted=None, within="", custom=False) -> list[Array]:
        """Returns the outputs; `within` names the function evaluated, `custom` says if it has its own derivative."""
        values = dict(zip(jaxpr.constvars, consts, strict=True)) | dict(zip(jaxpr.invars, arguments, strict=True))
        depends = {v for v, t in zip(jaxpr.invars, tainted or [True] * len(arguments), strict=True) if t}

        def read(variable):
            return variable.val if isinstance(variable, jex.core.Literal) else values[variable]

        for equation in jaxpr.eqns:
            operands = [read(v) for v in equation.invars]
            taint = [not isinstance(v, jex.core.Literal) and v in depends for v in equation.invars]
            outputs = self._apply(equation, operands, taint, within, custom)
            values.update(zip(equation.outvars, outputs, strict=True))
            if any(taint):
                depends.update(equation.outvars)
        return [read(v) for v in jaxpr.outvars]

    def _apply(self, equation, operands, taint, within, custom) -> list[Array]:
        primitive, params = equation.primitive, equation.params
        tainted = any(taint)
        if primitive.name in ("scan", "while", "cond"):
            # The values are at hand, so that loops can be run and branches chosen here.
            run = lambda body, arguments: self.evaluate(  # noqa: E731
                body.jaxpr, body.consts, arguments, [tainted] * len(arguments), within, custom
            )
            return {"scan": _scan, "while": _while, "cond": _cond}[primitive.name](run, operands, params)
        inner = params.get("jaxpr") or params.get("call_jaxpr")
        if inner is not None:
            closed = inner if hasattr(inner, "consts") else jex.core.ClosedJaxpr(inner, ())
            called = params.get("name", "_")
            within = within if called.startswith("_") else called  # _where says less than its caller
            custom = custom or primitive.name.startswith("custom_")
            return self.evaluate(closed.jaxpr, closed.consts, operands, taint, within, custom)
        outputs = primitive.bind(*operands, **params)
        if tainted:
            outputs = self._switch(primitive.name, outputs, operands, params, within, custom)
        return list(outputs) if primitive.multiple_results else [outputs]

    def _switch(self, name, outputs, operands, params, within, custom):
        # In a function with a derivative of its own a comparison need not be a kink:
        # softplus only wraps its imaginary part into (-pi, pi] by one.
        comparison = name in _COMPARISONS and not custom
        if not comparison and name not in _OTHER_PIECE:
            return outputs
        self.found.add(f"{name} in {within}" if within else name)
        return ~outputs if comparison else _OTHER_PIECE[name](outputs, *operands, **params)


def _scan(run: Callable, operands: list[Array], params: dict) -> list[Array]:
    consts, carries = params["num_consts"], params["num_carry"]
    fixed, carry, rows = operands[:consts], operands[consts : consts + carries], operands[consts + carries :]
    stacked = []
    for index in sorted(range(params["length"]), reverse=params["reverse"]):
        outputs = run(params["jaxpr"], [*fixed, *carry, *(row[index] for row in rows)])
        carry, collected = outputs[:carries], outputs[carries:]
        stacked.append(collected)
    ordered = stacked[::-1] if params["reverse"] else stacked
    return [*carry, *(jnp.stack(column) for column in zip(*ordered, strict=True))]


def _while(run: Callable, operands: list[Array], params: dict) -> list[Array]:
    tests, bodies = params["cond_nconsts"], params["body_nconsts"]
    test_consts, body_consts, carry = operands[:tests], operands[tests : tests + bodies], operands[tests + bodies :]
    # How often it loops is not switched: a loop taken the other way need not end.
    while jex.core.jaxpr_as_fun(params["cond_jaxpr"])(*test_consts, *carry)[0]:
        carry = run(params["body_jaxpr"], [*body_consts, *carry])
    return list(carry)


def _cond(run: Callable, operands: list[Array], params: dict) -> list[Array]:
    branch = int(jnp.clip(operands[0], 0, len(params["branches"]) - 1))
    return run(params["branches"][branch], list(operands[1:]))
