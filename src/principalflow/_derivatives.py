"""The mean of a loss over all samples, and its derivatives; chunks are weighted by their size."""

from collections.abc import Callable
from typing import Any, Protocol

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Inexact, PyTree

from principalflow import _checks, _loss
from principalflow._compiled import compiled
from principalflow._real_products import with_real_products

Vector = Inexact[Array, " D"]
Block = Inexact[Array, "D k"]

# Columns of a dense Hessian that are computed at once: enough to fill the machine,
# few enough that the tangents stay far below the size of the Hessian itself.
COLUMNS = 64


class Batched(Protocol):
    """What these are derivatives of: a loss of flat parameters on a batch, and the samples to average it over."""

    _data: PyTree

    @property
    def samples(self) -> int | None:
        """The number of samples, or None without data."""
        ...

    @property
    def _piece(self) -> int | None:
        """Samples per evaluation, or None if all are evaluated at once."""
        ...

    def _on_batch(self, theta: Vector, batch: PyTree) -> Inexact[Array, ""]:
        """Returns the mean loss over a batch."""
        ...

    def linearize(self, theta: _checks.Numbers) -> tuple[Vector, Callable[[Vector], Vector]]:
        """Returns the gradient and the function that multiplies vectors by the Hessian."""
        ...


@compiled
def value(loss: Batched, theta: Vector) -> Inexact[Array, ""]:
    """Returns the loss."""
    return _mean(loss, lambda batch: loss._on_batch(theta, batch))


@compiled
def value_and_gradient(loss: Batched, theta: Vector) -> tuple[Inexact[Array, ""], Vector]:
    """Returns the loss and its gradient."""
    both = jax.value_and_grad(_to_differentiate(loss, theta), holomorphic=jnp.iscomplexobj(theta))
    return _mean(loss, lambda batch: both(theta, batch))


@compiled
def hvp(loss: Batched, theta: Vector, v: Vector | Block) -> Vector | Block:
    """Returns the Hessian times a vector, or a block of them."""
    if v.ndim == 2:  # theta is not batched, so all columns share one forward and backward pass
        return jax.vmap(lambda column: hvp(loss, theta, column), 1, 1)(v)
    if jnp.iscomplexobj(v) and not jnp.iscomplexobj(theta):
        return lax.complex(hvp(loss, theta, v.real), hvp(loss, theta, v.imag))
    return _mean(loss, lambda batch: jax.jvp(_gradient(loss, batch), (theta,), (v.astype(theta.dtype),))[1])


@compiled
def third(loss: Batched, theta: Vector, u: Vector | Block, v: Vector | Block) -> Vector | Block:
    """Returns the third derivatives contracted with two vectors, or blocks of them column by column."""
    if v.ndim == 2:
        return jax.vmap(lambda a, b: third(loss, theta, a, b), 1, 1)(u, v)
    u, v = u.astype(theta.dtype), v.astype(theta.dtype)

    def contracted(batch: PyTree) -> Vector:
        product = lambda t: jax.jvp(_gradient(loss, batch), (t,), (v,))[1]  # noqa: E731
        return jax.jvp(product, (theta,), (u,))[1]

    return _mean(loss, contracted)


@compiled
def hessian(loss: Batched, theta: Vector) -> Inexact[Array, "D D"]:
    """Returns the dense Hessian."""
    return dense(loss.linearize(theta)[1], theta.size, theta.dtype)


def linearize(loss: Batched, theta: Vector) -> tuple[Vector, Callable[[Vector], Vector]]:
    """Returns the gradient and the function that multiplies vectors like theta by the Hessian."""
    return jax.linearize(lambda t: value_and_gradient(loss, t)[1], theta)


def times(product: Callable[[Vector], Vector], theta: Vector, v: _checks.Numbers) -> Vector:
    """Returns the linearised gradient along a vector of the size of theta, of whatever floating dtype."""
    v = _checks.inexact("v", v, theta.dtype)
    if v.shape != theta.shape:
        raise ValueError(f"v must have shape {theta.shape}, got {v.shape}.")
    with _loss.needs("loss", _loss.PRODUCTS):
        if jnp.iscomplexobj(v) and not jnp.iscomplexobj(theta):
            return lax.complex(*(product(part.astype(theta.dtype)) for part in (v.real, v.imag)))
        return product(v.astype(theta.dtype))


def differentiable(value: Callable, gradient: Callable, hvp: Callable) -> Callable[[Vector], Inexact[Array, ""]]:
    """Returns a loss as a function whose first and second derivatives in JAX are the given ones."""
    slope = jax.custom_jvp(gradient)
    slope.defjvp(lambda at, along: (slope(*at), hvp(*at, *along)))
    loss = jax.custom_jvp(value)
    loss.defjvp(lambda at, along: (loss(*at), slope(*at) @ along[0]))
    return loss


def dense(product: Callable[[Vector], Vector], size: int, dtype: Any) -> Inexact[Array, "d d"]:
    """Returns the matrix that `product` multiplies vectors of so many numbers by."""
    return lax.map(product, jnp.eye(size, dtype=dtype), batch_size=min(size, COLUMNS)).T


def _gradient(loss: Batched, batch: PyTree) -> Callable[[Vector], Vector]:
    return lambda theta: jax.grad(_to_differentiate(loss, theta), holomorphic=jnp.iscomplexobj(theta))(theta, batch)


def _to_differentiate(loss: Batched, theta: Vector) -> Callable[[Vector, PyTree], Inexact[Array, ""]]:
    return with_real_products(loss._on_batch) if jnp.iscomplexobj(theta) else loss._on_batch


def _mean(loss: Batched, quantity: Callable[[PyTree], PyTree]) -> PyTree:
    """Returns the mean over all samples of `quantity(batch)`, itself a mean over its batch."""
    samples, chunk = loss.samples or 0, loss._piece
    if chunk is None:
        return quantity(loss._data)
    full, ragged = divmod(samples, chunk)

    def weighted(start: Any, size: int) -> PyTree:
        batch = jax.tree.map(lambda x: lax.dynamic_slice_in_dim(x, start, size), loss._data)
        return jax.tree.map(lambda q: q * (size / samples), quantity(batch))

    def add(index: Any, total: PyTree) -> PyTree:
        return jax.tree.map(jnp.add, total, weighted(index * chunk, chunk))

    total = lax.fori_loop(1, full, add, weighted(0, chunk))
    return jax.tree.map(jnp.add, total, weighted(full * chunk, ragged)) if ragged else total
