"""The Hessian of an objective, or of a part of its parameters, as an operator on vectors and blocks."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Inexact, Int

from principalflow import _checks, _loss
from principalflow._compiled import compiled
from principalflow._derivatives import dense
from principalflow.objective import Block, Objective, Vector, checked_theta

Select = Callable[[str], bool]


class Hessian(eqx.Module):
    """The Hessian at `theta`, all of it or its diagonal block for the selected parameters.

    All products share one forward and backward pass, unless the data are taken in chunks.

    Attributes:
        gradient: The whole gradient at `theta`, a by-product.
    """

    objective: Objective
    theta: Vector
    gradient: Vector
    _product: Callable | None
    _index: Int[Array, " d"] | None

    def __init__(self, objective: Objective, theta: _checks.Numbers, select: Select | None = None):
        self.objective, self.theta = objective, checked_theta(objective, theta, half=False)
        if jnp.iscomplexobj(self.theta):
            raise ValueError("theta must be real: at complex parameters the Hessian is not Hermitian.")
        self._index = None if select is None else objective.entries(select)
        if objective.in_chunks:
            self.gradient, self._product = objective.gradient(self.theta), None
        else:
            self.gradient, self._product = _linearize(objective, self.theta)

    @property
    def size(self) -> int:
        """The number of selected parameters."""
        return self.theta.size if self._index is None else self._index.size

    @property
    def on_cpu(self) -> bool:
        """Whether JAX computes on the CPU."""
        return jax.default_backend() == "cpu"

    def __call__(self, v: Vector | Block) -> Vector | Block:
        """Returns the Hessian times a vector or a block of the selected size."""
        return _multiply(self, v)

    def dense(self) -> Inexact[Array, "d d"]:
        """Returns the matrix itself, for small sizes."""
        return _dense(self)

    def take(self, rows: Any) -> Any:
        """Returns the selected rows of an array with a row for every parameter."""
        return rows if self._index is None else rows[self._index]

    def put(self, rows: Any) -> Any:
        """Returns an array with a row for every parameter, zero where it isn't selected."""
        if self._index is None:
            return rows
        return jnp.zeros((self.theta.size, *rows.shape[1:]), rows.dtype).at[self._index].set(rows)

    def _times(self, v: Vector | Block) -> Vector | Block:
        if self._product is None:
            return self.objective.hvp(self.theta, v)
        if v.ndim == 1:
            return self._product(v)
        if self.on_cpu:  # where one column after another takes less time than all at once
            return lax.map(self._product, v.T).T
        return jax.vmap(self._product, 1, 1)(v)


@_loss.needs("loss", _loss.PRODUCTS)
@compiled
def _multiply(hessian: Hessian, v: Vector | Block) -> Vector | Block:
    return hessian.take(hessian._times(hessian.put(v)))


@_loss.needs("loss", _loss.PRODUCTS)
@compiled
def _dense(hessian: Hessian) -> Inexact[Array, "d d"]:
    return dense(hessian, hessian.size, hessian.theta.dtype)


@_loss.needs("loss", _loss.PRODUCTS)
@compiled
def _linearize(objective: Objective, theta: Vector) -> tuple[Vector, Callable]:
    return objective.linearize(theta)
