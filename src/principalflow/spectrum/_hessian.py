"""The Hessian of an objective, all of it or of some parameters, plain or in an optimiser's metric, as an operator."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Inexact, Int, PyTree

from principalflow import _checks, _loss
from principalflow._compiled import compiled
from principalflow._derivatives import dense
from principalflow.objective import Block, Objective, Vector, checked_theta
from principalflow.spectrum._memory import AT_ONCE

Select = Callable[[str], bool]


class Hessian(eqx.Module):
    r"""The Hessian at `theta`, all of it or its diagonal block for the selected parameters.

    With a diagonal preconditioner P and L2 weight decay W it is $P^{-1/2} (H + W) P^{-1/2}$, the Hessian of the loss
    $E + \theta^T W \theta/2$ in the coordinates $P^{1/2} \theta$.

    The products of one call share one forward and backward pass, unless the data are taken in chunks: from a loop over
    vectors the compiler takes out what is the same for all. That is quicker than a linearisation that is kept from
    call to call, since less is written to memory.
    """

    objective: Objective
    theta: Vector
    _index: Int[Array, " d"] | None
    _scale: Vector | None
    _decay: Vector | None

    def __init__(
        self,
        objective: Objective,
        theta: _checks.Numbers,
        select: Select | None = None,
        preconditioner: _checks.Numbers | PyTree | None = None,
        decay: _checks.Numbers | PyTree = 0.0,
    ):
        self.objective, self.theta = objective, checked_theta(objective, theta, half=False)
        if jnp.iscomplexobj(self.theta):
            raise ValueError("theta must be real: at complex parameters the Hessian is not Hermitian.")
        self._index = None if select is None else objective.entries(select)
        self._scale = None if preconditioner is None else _scale_of(objective, self.theta, preconditioner)
        self._decay = _decay_of(objective, self.theta, decay)

    @property
    def size(self) -> int:
        """The number of selected parameters."""
        return self.theta.size if self._index is None else self._index.size

    @property
    def on_cpu(self) -> bool:
        """Whether JAX computes on the CPU."""
        return jax.default_backend() == "cpu"

    def gradient(self) -> Vector:
        """Returns the whole gradient; with P and W it is that of these coordinates too."""
        gradient = _gradient(self.objective, self.theta)
        gradient = gradient if self._decay is None else gradient + self._decay * self.theta
        return gradient if self._scale is None else self._scale * gradient

    def __call__(self, v: Vector | Block) -> Vector | Block:
        """Returns the Hessian times a vector or a block of the selected size."""
        return _multiply(self, v)

    def times_rows(self, rows: np.ndarray) -> np.ndarray:
        """Returns the Hessian times each row, one after another; for any few rows it compiles once."""
        padded = np.zeros((max(AT_ONCE, 1 << (len(rows) - 1).bit_length()), self.size), rows.dtype)
        padded[: len(rows)] = rows
        return np.asarray(_multiply_rows(self, jnp.asarray(padded), jnp.asarray(len(rows))))[: len(rows)]

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
        w = v if self._scale is None else _rowwise(self._scale, v)
        product = self._plain_times(w)
        product = product if self._decay is None else product + _rowwise(self._decay, w)
        return product if self._scale is None else _rowwise(self._scale, product)

    def _plain_times(self, v: Vector | Block) -> Vector | Block:
        if v.ndim == 2 and self.on_cpu:  # where one column after another takes less time than all at once
            return lax.map(lambda column: self.objective.hvp(self.theta, column), v.T).T
        return self.objective.hvp(self.theta, v)


@_loss.needs("loss", _loss.PRODUCTS)
@compiled
def _multiply(hessian: Hessian, v: Vector | Block) -> Vector | Block:
    return hessian.take(hessian._times(hessian.put(v)))


@_loss.needs("loss", _loss.PRODUCTS)
@compiled
def _multiply_rows(hessian: Hessian, rows: Block, count: Int[Array, ""]) -> Block:
    def add(index: Any, products: Block) -> Block:
        return products.at[index].set(hessian.take(hessian._times(hessian.put(rows[index]))))

    return lax.fori_loop(0, count, add, jnp.zeros_like(rows))


@_loss.needs("loss", _loss.PRODUCTS)
@compiled
def _dense(hessian: Hessian) -> Inexact[Array, "d d"]:
    return dense(hessian, hessian.size, hessian.theta.dtype)


@_loss.needs("loss", _loss.PRODUCTS)
@compiled
def _gradient(objective: Objective, theta: Vector) -> Vector:
    # PyTorch keeps its graph for the products that follow; JAX drops what isn't used.
    return objective.gradient(theta) if objective.in_chunks else objective.linearize(theta)[0]


def _scale_of(objective: Objective, theta: Vector, preconditioner: Any) -> Vector:
    """Returns P^-1/2, zero where P is infinite, or raises."""
    P = objective.flat("preconditioner", preconditioner)
    if jnp.iscomplexobj(P):
        raise ValueError(f"preconditioner must be real, got dtype {P.dtype}.")
    scale = (1 / jnp.sqrt(P)).astype(theta.dtype)
    if bad := int(jnp.sum(~jnp.isfinite(scale))):
        needed = "numbers above 0, infinite where a parameter rests"
        raise ValueError(f"preconditioner must hold {needed}, but {bad} of its {P.size} entries are not.")
    return scale


def _decay_of(objective: Objective, theta: Vector, decay: Any) -> Vector | None:
    """Returns the decay of each parameter, or None where there is none, or raises."""
    if isinstance(decay, int | float) and not isinstance(decay, bool) and decay == 0:
        return None
    is_number = hasattr(decay, "__float__") and not np.ndim(decay)
    W = jnp.full_like(theta, _checks.real("decay", decay)) if is_number else objective.flat("decay", decay)
    if jnp.iscomplexobj(W):
        raise ValueError(f"decay must be real, got dtype {W.dtype}.")
    _checks.finite("decay", W)
    return W.astype(theta.dtype)


def _rowwise(factors: Vector, v: Vector | Block) -> Vector | Block:
    return factors * v if v.ndim == 1 else factors[:, None] * v
