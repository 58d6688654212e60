"""A loss of the user's: what it must return, and which of its errors to explain."""

import dis
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from principalflow import _checks

PRODUCTS = "Hessian products, which are forward-mode derivatives of the gradient"

# The words of JAX where a function has a value, but not the derivative that is asked for.
_NO_DERIVATIVE = re.compile("differentiat|autodiff|jvp|vjp", re.IGNORECASE)


def check_value(value: Any, dtype: Any) -> None:
    """Raises unless what the loss returns at parameters of `dtype` is a scalar that has a derivative by them."""
    shape = getattr(value, "shape", None)
    if shape is None:
        raise ValueError(f"loss must return a scalar array, got {_checks.shown(value)}.")
    if shape != ():
        raise ValueError(f"loss must return one number, such as jnp.mean of the samples' losses, got shape {shape}.")
    kind, name = (
        (jnp.complexfloating, "complex") if jnp.issubdtype(dtype, jnp.complexfloating) else (jnp.floating, "real")
    )
    if not jnp.issubdtype(value.dtype, kind):
        raise ValueError(f"loss must return a {name} floating-point number at params of {dtype}, got {value.dtype}.")


def of_batch(loss: Callable, params: PyTree, batch: PyTree, dtype: Any) -> Any:
    """Returns the loss of a batch.

    Where JAX refuses to mix types, as its convolutions do, the floating-point data are given in the parameters' type.
    """
    try:
        return loss(params, batch)
    except TypeError as error:
        if not _is_raised_by_jax(error):
            raise
        try:
            return loss(params, jax.tree.map(lambda x: x.astype(dtype) if _is_floating(x) else x, batch))
        except Exception:  # it was something else
            raise error from None


def _is_floating(x: Any) -> bool:
    return jnp.issubdtype(x.dtype, jnp.floating)


@contextmanager
def evaluated(name: str, at: str) -> Iterator[None]:
    """Says that it is the loss, called `name`, that fails in JAX; the user's own errors stay as they are."""
    try:
        yield
    except Exception as error:
        if not _is_raised_by_jax(error) or _NO_DERIVATIVE.search(str(error)):  # which `needs` explains
            raise
        raise ValueError(f"{name} can't be evaluated at these {at}. JAX says: {error}") from error


@contextmanager
def needs(name: str, derivative: str) -> Iterator[None]:
    """Says which derivative the loss, an argument called `name`, lacks where JAX finds that it has none.

    JAX may find it only when it compiles, so what is compiled is decorated with it.
    """
    try:
        yield
    except (TypeError, ValueError, NotImplementedError) as error:
        if not _NO_DERIVATIVE.search(str(error)) or _is_raised_outside_jax(error):  # as by a rule of the user's
            raise
        raise ValueError(f"{name} must have {derivative}, and this one has none. JAX says: {error}") from error


def _is_raised_by_jax(error: BaseException) -> bool:
    trace = _innermost(error)
    return trace is not None and trace.tb_frame.f_globals.get("__name__", "").startswith("jax.")


def _is_raised_outside_jax(error: BaseException) -> bool:
    """Whether the traceback ends in a `raise` that isn't JAX's.

    JAX takes its own frames out of tracebacks that leave it; what is left of its errors ends in a call.
    """
    trace = _innermost(error)
    if trace is None or _is_raised_by_jax(error):
        return False
    return dis.opname[trace.tb_frame.f_code.co_code[trace.tb_lasti]] == "RAISE_VARARGS"


def _innermost(error: BaseException) -> TracebackType | None:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace
