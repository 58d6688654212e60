"""The Hessian of an objective, or of a part of its parameters, as an operator on blocks."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Inexact, Int

from principalflow import _checks
from principalflow.objective import Block, Objective, Vector

Select = Callable[[str], bool]


class Hessian(eqx.Module):
    """The Hessian at `theta`, all of it or its diagonal block for the selected parameters.

    Attributes:
        size: The number of selected parameters.
    """

    objective: Objective
    theta: Vector
    index: Int[Array, " d"] | None

    def __init__(self, objective: Objective, theta: _checks.Numbers, select: Select | None = None):
        self.objective, self.theta = objective, objective.flat("theta", theta)
        _checks.finite("theta", self.theta)
        if jnp.iscomplexobj(self.theta):
            raise ValueError("theta must be real: at complex parameters the Hessian is not Hermitian.")
        self.index = None if select is None else objective.entries(select)

    @property
    def size(self) -> int:
        return self.theta.size if self.index is None else self.index.size

    @eqx.filter_jit
    def __call__(self, block: Block) -> Block:
        """Returns the Hessian times a vector or a block of the selected size."""
        return self.take(self.objective.hvp(self.theta, self.put(block)))

    @eqx.filter_jit
    def dense(self) -> Inexact[Array, "d d"]:
        """Returns the matrix itself, for small sizes."""
        return lax.map(self, jnp.eye(self.size, dtype=self.theta.dtype), batch_size=min(self.size, 64)).T

    def take(self, rows: Any) -> Any:
        """Returns the selected rows of an array with a row for every parameter."""
        return rows if self.index is None else rows[self.index]

    def put(self, rows: Any) -> Any:
        """Returns an array with a row for every parameter, zero where it isn't selected."""
        if self.index is None:
            return rows
        return jnp.zeros((self.theta.size, *rows.shape[1:]), rows.dtype).at[self.index].set(rows)
