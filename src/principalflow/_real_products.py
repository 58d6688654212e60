"""Products of complex matrices as products of real ones, which compilers for CPUs are several times faster at."""

from collections.abc import Callable
from math import prod
from typing import Any

import jax
import jax.extend as jex
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

# Smaller products, of so many multiplications, aren't worth the time that it takes to compile four for one.
_FEW = 10_000


def with_real_products(function: Callable) -> Callable:
    """Returns a function of the same values and derivatives that multiplies the parts of complex matrices.

    Real matrices, such as the data that a network's first layer is multiplied by, take two real products, complex ones
    four. Three would do for these, but leave rounding in the imaginary part where both are real. Small products, loops,
    branches, and functions with a derivative of their own stay as they are.
    """

    def evaluated(*arguments: Any) -> Any:
        closed, shape = jax.make_jaxpr(function, return_shape=True)(*arguments)
        outputs = _run(closed, jax.tree.leaves(arguments))
        return jax.tree.unflatten(jax.tree.structure(shape), outputs)

    return evaluated


def _run(closed: jex.core.ClosedJaxpr, arguments: list) -> list:
    jaxpr = closed.jaxpr
    values = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*closed.consts, *arguments), strict=True))

    def read(variable: Any) -> Any:
        return variable.val if isinstance(variable, jex.core.Literal) else values[variable]

    for equation in jaxpr.eqns:
        values.update(zip(equation.outvars, _apply(jaxpr, equation, [read(v) for v in equation.invars]), strict=True))
    return [read(v) for v in jaxpr.outvars]


def _apply(within: jex.core.Jaxpr, equation: Any, operands: list) -> list:
    name, params = equation.primitive.name, equation.params
    if name in ("jit", "pjit"):
        return _run(params["jaxpr"], operands)
    if name == "dot_general" and _is_large_and_complex(equation):
        params = params | {"preferred_element_type": jnp.finfo(equation.outvars[0].aval.dtype).dtype}
        left, right = operands
        return [_product(left, right, lambda a, b: equation.primitive.bind(a, b, **params))]
    # A program of this one equation, since functions with a derivative of their own lose it otherwise.
    pairs = zip(equation.invars, operands, strict=True)
    given = {variable: operand for variable, operand in pairs if not isinstance(variable, jex.core.Literal)}
    names = within.debug_info._replace(arg_names=None, result_paths=None)
    program = jex.core.Jaxpr((), list(given), equation.outvars, [equation], debug_info=names)
    return jex.core.jaxpr_as_fun(jex.core.ClosedJaxpr(program, ()))(*given.values())


def _is_large_and_complex(equation: Any) -> bool:
    left, product = equation.invars[0].aval, equation.outvars[0].aval
    contracted = equation.params["dimension_numbers"][0][0]
    multiplications = product.size * prod(left.shape[axis] for axis in contracted)
    return multiplications >= _FEW and jnp.issubdtype(product.dtype, jnp.complexfloating)


def _product(a: Array, b: Array, times: Callable[[Array, Array], Array]) -> Array:
    if not jnp.iscomplexobj(a):
        return lax.complex(times(a, b.real), times(a, b.imag))
    if not jnp.iscomplexobj(b):
        return lax.complex(times(a.real, b), times(a.imag, b))
    real = times(a.real, b.real) - times(a.imag, b.imag)
    return lax.complex(real, times(a.real, b.imag) + times(a.imag, b.real))
