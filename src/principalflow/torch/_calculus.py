"""The loss of a PyTorch model and its derivatives as JAX sees them: what `ModelObjective` takes them from."""

# pyright: reportMissingImports=false

import threading
from collections.abc import Callable
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax import lax
from jax.core import Tracer
from jax.custom_derivatives import SymbolicZero
from jax.flatten_util import ravel_pytree
from jax.tree_util import Partial
from jaxtyping import Array, Inexact, PyTree
from numpy.typing import NDArray
from torch import Tensor

from principalflow.objective import Block, Vector
from principalflow.torch._host_call import Function, host_call
from principalflow.torch._model import Here, ModelLoss

# While it is evaluated a model is changed, and compiled programs may call from several threads.
_ONE_AT_A_TIME = threading.RLock()


class HasHost(Protocol):
    """What these are derivatives of."""

    @property
    def host(self) -> "Host":
        """Who computes them."""
        ...


def value(objective: HasHost, theta: Vector) -> Inexact[Array, ""]:
    """Returns the loss."""
    return objective.host.value(theta)


def value_and_gradient(objective: HasHost, theta: Vector) -> tuple[Inexact[Array, ""], Vector]:
    """Returns the loss and its gradient."""
    return objective.host.value_and_gradient(theta)


def hvp(objective: HasHost, theta: Vector, v: Vector | Block) -> Vector | Block:
    """Returns the Hessian times a vector, or a block of them."""
    if jnp.iscomplexobj(v) and not jnp.iscomplexobj(theta):
        return lax.complex(hvp(objective, theta, v.real), hvp(objective, theta, v.imag))
    return objective.host.product(theta, v.astype(theta.dtype))


def third(objective: HasHost, theta: Vector, u: Vector | Block, v: Vector | Block) -> Vector | Block:
    """Returns the third derivatives contracted with two vectors, or blocks of them column by column."""
    return objective.host.third(theta, u.astype(theta.dtype), v.astype(theta.dtype))


def hessian(objective: HasHost, theta: Vector) -> Inexact[Array, "D D"]:
    """Returns the dense Hessian."""
    return objective.host.product(theta, jnp.eye(theta.size, dtype=theta.dtype))


def linearize(objective: HasHost, theta: Vector) -> tuple[Vector, Callable[[Vector], Vector]]:
    """Returns the gradient and the function that multiplies vectors like theta by the Hessian."""
    return objective.host.linearized(theta)[1], Partial(objective.host.product, theta)


class Host:
    """The loss of parameters, with functions that JAX traces and differentiates, and PyTorch computes.

    The graph at the last parameters is kept, since products with one Hessian come one by one.

    Attributes:
        of: The model, its loss and its data.
        value: Of theta.
        value_and_gradient: Of theta.
        linearized: The same, where products will follow.
        product: The Hessian's, of theta and a vector or a block.
        third: Third derivatives contracted, of theta and two vectors or blocks.
    """

    def __init__(self, of: ModelLoss):
        self.of = of
        self._theta, self._here = np.zeros(0), of.here()
        self.value = _differentiable(self._value, lambda theta: [_number(theta)], self._value_rule)
        both = lambda theta: [_number(theta), theta]  # noqa: E731
        self.value_and_gradient = _differentiable(self._value_and_gradient, both, self._gradient_rule)
        self.linearized = _differentiable(self._linearized, both, self._gradient_rule)
        self.product = _differentiable(self._product, lambda theta, v: [v], self._product_rule, symmetric=True)

    def __call__(self, params: PyTree) -> Inexact[Array, ""]:
        """Returns the loss of parameters by their names."""
        return self.value(ravel_pytree(params)[0])

    def third(self, theta: Vector, u: Vector | Block, v: Vector | Block) -> Vector | Block:
        return host_call(self._third, [v], theta, u, v, symmetric=True)[0]

    def settle(self) -> None:
        """Evaluates all that will be asked for, so that what can fail does so now, and how products are made is known.

        Within a program errors would be JAX's.
        """
        theta = self.of.theta().numpy(force=True)
        gradient = self._linearized(theta)[1]
        self._product(theta, gradient)
        self._theta, self._here = np.zeros(0), self.of.here()

    def _value_rule(self, at: tuple, along: tuple) -> tuple:
        value, gradient = self.value_and_gradient(*at)
        return value, gradient @ along[0]

    def _gradient_rule(self, at: tuple, along: tuple) -> tuple:
        value, gradient = self.linearized(*at)
        return (value, gradient), (gradient @ along[0], self.product(*at, *along))

    def _product_rule(self, at: tuple, along: tuple) -> tuple:
        (theta, v), (by_theta, by_v) = at, along
        tangents = []
        if not isinstance(by_v, SymbolicZero):
            tangents.append(self.product(theta, by_v))
        if not isinstance(by_theta, SymbolicZero):
            u = by_theta if v.ndim == 1 else jnp.broadcast_to(by_theta[:, None], v.shape)
            tangents.append(self.third(theta, v, u))
        return self.product(theta, v), sum(tangents, jnp.zeros_like(v))

    def _value(self, theta: NDArray) -> list[NDArray]:
        with _ONE_AT_A_TIME:
            return [np.asarray(self.of.value(self._tensor(theta)), theta.dtype)]

    def _value_and_gradient(self, theta: NDArray) -> list[NDArray]:
        with _ONE_AT_A_TIME:
            here = self._here if self._is_at(theta) else self.of.here(self._tensor(theta), keep=False)
            return self._both(here, theta)

    def _linearized(self, theta: NDArray) -> list[NDArray]:
        with _ONE_AT_A_TIME:
            return self._both(self._at(theta), theta)

    def _product(self, theta: NDArray, v: NDArray) -> list[NDArray]:
        return self._by_columns(v, lambda block: self._at(theta).times(block))

    def _third(self, theta: NDArray, u: NDArray, v: NDArray) -> list[NDArray]:
        along = iter(self._tensor(u.reshape(len(u), -1)).T)
        columns = lambda block: torch.stack([self._at(theta).third(next(along), c) for c in block.T], 1)  # noqa: E731
        return self._by_columns(v, columns)

    def _by_columns(self, v: NDArray, function: Callable[[Tensor], Tensor]) -> list[NDArray]:
        if not v.size:
            return [v.copy()]
        with _ONE_AT_A_TIME:
            found = function(self._tensor(v.reshape(len(v), -1)))
        return [found.numpy(force=True).astype(v.dtype, copy=False).reshape(v.shape)]

    def _both(self, here: Here, theta: NDArray) -> list[NDArray]:
        loss, gradient = here.loss_and_gradient()
        return [np.asarray(loss, theta.dtype), gradient.numpy(force=True).astype(theta.dtype, copy=False)]

    def _at(self, theta: NDArray) -> Here:
        if not self._is_at(theta):
            self._theta, self._here = theta.copy(), self.of.here(self._tensor(theta))
        return self._here

    def _is_at(self, theta: NDArray) -> bool:
        return theta.dtype == self._theta.dtype and np.array_equal(theta, self._theta)

    def _tensor(self, array: NDArray) -> Tensor:
        return torch.tensor(array, device=self.of.device)


def _differentiable(call: Function, like: Callable, rule: Callable, symmetric: bool = False) -> Callable[..., Any]:
    """Returns a function of the host with its derivative; where all arguments have values, JAX has no part in it."""

    def function(*arguments: Array) -> Any:
        found = host_call(call, like(*arguments), *arguments, symmetric=symmetric)
        return tuple(found) if len(found) > 1 else found[0]

    traced = jax.custom_jvp(function)
    traced.defjvp(rule, symbolic_zeros=symmetric)
    return lambda *arguments: (traced if any(isinstance(a, Tracer) for a in arguments) else function)(*arguments)


def _number(theta: Vector) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((), theta.dtype)
