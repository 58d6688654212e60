"""Evaluates a traced function as it is written, or with all that switches between its pieces taken the other way.

As it is written: functions with a derivative of their own are entered, and `stop_gradient` stops nothing, so that the
derivative of the evaluation is that of the values. Taken the other way: `max` becomes `min`, a comparison its opposite,
a rounded number another, wherever they depend on the arguments. An operation on what depends on the arguments
must be known: smooth, so that derivatives tell all about it, or a switch. Others can't be judged.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.extend as jex
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array

# Evaluations that find a switch: two with all taken the other way, rounded numbers up and down, and two with random
# ones of them, since two switches taken the other way at once may cancel.
ROUNDS = range(4)
_ALL_SWITCHED = 2


class UnknownOperationError(Exception):
    """The function has an operation that may switch between pieces or not."""


class Evaluation:
    """One evaluation of a jaxpr.

    Args:
        number: None to evaluate it as it is written, or which of `ROUNDS` of switching.

    Attributes:
        switches: The operations that were taken the other way, with the functions they are in.
    """

    def __init__(self, number: int | None = None):
        self.switches: set[str] = set()
        self._number = number
        self._random = np.random.default_rng(number)

    def of(self, jaxpr: jex.core.ClosedJaxpr, *arguments: Array) -> list[Array]:
        """Returns the outputs at these arguments.

        Raises:
            UnknownOperationError: For an operation on what depends on the arguments that isn't known.
        """
        return [output.value for output in self._run(jaxpr, [_Value(a, True) for a in arguments], "")]

    def _run(self, closed: jex.core.ClosedJaxpr, arguments: "list[_Value]", within: str) -> "list[_Value]":
        """Returns the outputs; `within` names the function that is evaluated."""
        jaxpr = closed.jaxpr
        values = {v: _Value(value, False) for v, value in zip(jaxpr.constvars, closed.consts, strict=True)}
        values.update(zip(jaxpr.invars, arguments, strict=True))

        def read(variable):
            return _Value(variable.val, False) if isinstance(variable, jex.core.Literal) else values[variable]

        for equation in jaxpr.eqns:
            outputs = self._apply(equation, [read(v) for v in equation.invars], within)
            values.update(zip(equation.outvars, outputs, strict=True))
        return [read(v) for v in jaxpr.outvars]

    def _apply(self, equation, operands: "list[_Value]", within: str) -> "list[_Value]":
        primitive, params = equation.primitive, equation.params
        if primitive.name in _CALLS:
            return self._call(primitive.name, operands, params, within)
        depends = any(operand.depends for operand in operands)
        if depends and primitive.name in _LOOPS and params.get("length") != 0:
            run = lambda body, arguments: self._run(body, arguments, within)  # noqa: E731
            return _LOOPS[primitive.name](run, operands, params)
        values = [operand.value for operand in operands]
        kind = "smooth" if primitive.name in _LOOPS else _kind(primitive.name, operands, params)
        if kind == "unknown":
            raise UnknownOperationError(primitive.name)
        outputs = values if primitive.name == "stop_gradient" else primitive.bind(*values, **params)
        outputs = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
        if kind == "switch" and self._number is not None:
            outputs = self._switched(primitive.name, outputs, values, params, within)
        return [_Value(output, depends) for output in outputs]

    def _call(self, name: str, operands: "list[_Value]", params: dict, within: str) -> "list[_Value]":
        inner = params.get("jaxpr") or params["call_jaxpr"]
        closed = inner if isinstance(inner, jex.core.ClosedJaxpr) else jex.core.ClosedJaxpr(inner, ())
        called = params.get("name", "_")
        within = within if called.startswith("_") else called  # _where says less than its caller
        if self._number is None or name not in _OWN_DERIVATIVE:
            return self._run(closed, operands, within)
        before = set(self.switches)
        plain, switched = Evaluation()._run(closed, operands, within), self._run(closed, operands, within)
        if all(_differ_by_turns(a.value, b.value) for a, b in zip(plain, switched, strict=True)):
            self.switches = before
            return plain
        return switched

    def _switched(self, name: str, outputs: list[Array], values: list[Array], params: dict, within: str) -> list[Array]:
        number = self._number or 0
        self.switches.add(f"{name} in {within}" if within else name)
        step = -1 if number % 2 else 1
        others = _SWITCHES[name](outputs[0] if len(outputs) == 1 else outputs, values, params, step)
        others = list(others) if isinstance(others, (list, tuple)) else [others]
        if number < _ALL_SWITCHED:
            return others
        chosen = self._random.integers(2, size=np.shape(outputs[0])).astype(bool)
        return [jnp.where(chosen, other, output) for other, output in zip(others, outputs, strict=True)]


class _Value(NamedTuple):
    """A value, and whether it depends on the arguments."""

    value: Any
    depends: bool


def _kind(name: str, operands: list[_Value], params: dict) -> str:
    """Returns "smooth", "switch" or "unknown"."""
    # Whole numbers and truth values depend on the arguments by a switch, which was taken the other way before.
    depending = [o.value for o in operands if o.depends and jnp.issubdtype(o.value.dtype, jnp.inexact)]
    to_inexact = jnp.issubdtype(params.get("new_dtype", bool), jnp.inexact)
    smooth_here = {"abs": any(map(jnp.iscomplexobj, depending)), "convert_element_type": to_inexact}
    if not depending or name in _SMOOTH or smooth_here.get(name, False):
        return "smooth"
    known = name in _SWITCHES and not (name == "bitcast_convert_type" and to_inexact)
    return "switch" if known else "unknown"


def _differ_by_turns(a: Array, b: Array) -> bool:
    """Whether two arrays differ by multiples of 2 pi i: by branches of a logarithm, which softplus wraps into one."""
    if not jnp.issubdtype(a.dtype, jnp.inexact):
        return bool(jnp.all(a == b))
    tolerance = 100 * float(jnp.finfo(a.dtype).eps) ** 0.5
    difference = b - a
    turns = jnp.round(jnp.imag(difference) / (2 * np.pi))
    return bool(jnp.all(jnp.abs(difference - 2j * np.pi * turns) <= tolerance * (1 + jnp.abs(a))))


def _scan(run: Callable, operands: list[_Value], params: dict) -> list[_Value]:
    consts, carries = params["num_consts"], params["num_carry"]
    fixed, carry, rows = operands[:consts], operands[consts : consts + carries], operands[consts + carries :]
    stacked = []
    for index in sorted(range(params["length"]), reverse=params["reverse"]):
        outputs = run(params["jaxpr"], [*fixed, *carry, *(_Value(row.value[index], row.depends) for row in rows)])
        carry, collected = outputs[:carries], outputs[carries:]
        stacked.append(collected)
    columns = zip(*(stacked[::-1] if params["reverse"] else stacked), strict=True)
    return [*carry, *(_Value(jnp.stack([v.value for v in c]), any(v.depends for v in c)) for c in columns)]


def _while(run: Callable, operands: list[_Value], params: dict) -> list[_Value]:
    tests, bodies = params["cond_nconsts"], params["body_nconsts"]
    test_consts, body_consts, carry = operands[:tests], operands[tests : tests + bodies], operands[tests + bodies :]
    while True:
        (goes_on,) = run(params["cond_jaxpr"], [*test_consts, *carry])
        if goes_on.depends:  # taken the other way it need not end
            raise UnknownOperationError("a while loop whose end depends on the parameters")
        if not goes_on.value:
            return list(carry)
        carry = run(params["body_jaxpr"], [*body_consts, *carry])


def _cond(run: Callable, operands: list[_Value], params: dict) -> list[_Value]:
    index, *arguments = operands
    outputs = run(params["branches"][int(jnp.clip(index.value, 0, len(params["branches"]) - 1))], arguments)
    return [_Value(output.value, output.depends or index.depends) for output in outputs]


_LOOPS = {"scan": _scan, "while": _while, "cond": _cond}
_OWN_DERIVATIVE = {"custom_jvp_call", "custom_vjp_call"}
_CALLS = {"jit", "closed_call", "remat2", *_OWN_DERIVATIVE}

# Operations whose derivative tells all: analytic but for poles and the cuts of logarithms and roots. Some, as `real`
# and `conj`, aren't holomorphic; that is for the Cauchy-Riemann equations to find. `eq`, `ne` and `is_finite` change
# on sets of no volume only, and functions mend themselves with them there: sin(x)/x at zero.
_SMOOTH = {
    *("add", "add_any", "sub", "mul", "div", "neg", "square", "integer_pow", "pow", "sqrt", "rsqrt", "cbrt"),
    *("exp", "exp2", "expm1", "log", "log1p", "logistic", "sin", "cos", "tan", "asin", "acos", "atan", "atan2"),
    *("sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "erf_inv", "lgamma", "digamma", "polygamma"),
    *("real", "imag", "conj", "complex", "stop_gradient", "copy", "name", "optimization_barrier", "device_put"),
    *("broadcast_in_dim", "reshape", "transpose", "squeeze", "rev", "pad", "concatenate", "split", "tile", "stack"),
    *("slice", "dynamic_slice", "dynamic_update_slice", "gather", "scatter", "scatter-add", "scatter-mul", "select_n"),
    *("reduce_sum", "reduce_prod", "cumsum", "cumprod", "cumlogsumexp", "reduce_window_sum", "dot_general", "fft"),
    *(
        "conv_general_dilated",
        "principalflow_convolution",
        "ragged_dot_general",
        "sharding_constraint",
        "debug_callback",
        "debug_print",
        "unstack",
    ),
    *("lu", "triangular_solve", "custom_linear_solve", "tridiagonal_solve", "cholesky", "qr", "geqrf", "svd", "eigh"),
    *("householder_product", "eig", "eq", "ne", "eq_to", "is_finite"),
}


def _instead(primitive: Any) -> Callable:
    def other(output, values, params, step):
        taken = primitive.bind(*values, **params)
        return jnp.where(jnp.isfinite(taken), taken, output)  # max(x, -inf) is no switch

    return other


def _opposite(output, values, params, step):
    return ~output


def _another(output, values, params, step):
    # Up to twice, or down to the other side of zero: the next number may be clipped to the same.
    return ~output if output.dtype == bool else output + step * (1 + jnp.abs(output))


def _negative(output, values, params, step):
    return -output


def _smallest(outputs, values, params, step):
    largest_of_negative, indices = lax.top_k_p.bind(-values[0], **params)
    return [-largest_of_negative, indices]


def _flipped(outputs, values, params, step):
    outputs = outputs if isinstance(outputs, list) else [outputs]
    return [jnp.flip(output, params["dimension"]) for output in outputs]


# For each operation that switches between pieces of a function: the same with the other piece taken.
_SWITCHES: dict[str, Callable] = {
    **dict.fromkeys(("gt", "lt", "ge", "le", "lt_to", "le_to", "bitcast_convert_type"), _opposite),
    **dict.fromkeys(("floor", "ceil", "round", "convert_element_type"), _another),
    **dict.fromkeys(("sign", "abs"), _negative),
    "max": _instead(lax.min_p),
    "min": _instead(lax.max_p),
    "reduce_max": _instead(lax.reduce_min_p),
    "reduce_min": _instead(lax.reduce_max_p),
    "cummax": _instead(lax.cummin_p),
    "cummin": _instead(lax.cummax_p),
    "argmax": _instead(lax.argmin_p),
    "argmin": _instead(lax.argmax_p),
    "reduce_window_max": lambda output, values, params, step: output + jnp.mean(values[0]),
    "reduce_window_min": lambda output, values, params, step: output + jnp.mean(values[0]),
    "clamp": lambda output, values, params, step: values[1],
    "rem": lambda output, values, params, step: output + step * values[1],
    "sort": _flipped,
    "top_k": _smallest,
}
