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

Select = Callable[[str], bool]


class Hessian(eqx.Module):
    r"""The Hessian at `theta`, all of it or its diagonal block for the selected parameters.

    With a diagonal preconditioner P and L2 weight decay W it is $P^{-1/2} (H + W) P^{-1/2}$, the Hessian of the loss
    $E + \theta^T W \theta/2$ in the coordinates $P^{1/2} \theta$.

    All products share one forward and backward pass, unless the data are taken in chunks.

    Attributes:
        gradient: The whole gradient at `theta`, a by-product; with P and W it is that of these coordinates too.
    """

    objective: Objective
    theta: Vector
    gradient: Vector
    _product: Callable | None
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
        if objective.in_chunks:
            self.gradient, self._product = objective.gradient(self.theta), None
        else:
            self.gradient, self._product = _linearize(objective, self.theta)
        if self._decay is not None:
            self.gradient = self.gradient + self._decay * self.theta
        if self._scale is not None:
            self.gradient = self._scale * self.gradient

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
        w = v if self._scale is None else _rowwise(self._scale, v)
        product = self._plain_times(w)
        product = product if self._decay is None else product + _rowwise(self._decay, w)
        return product if self._scale is None else _rowwise(self._scale, product)

    def _plain_times(self, v: Vector | Block) -> Vector | Block:
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
