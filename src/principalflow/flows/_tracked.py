r"""The principal flow's logarithm, remembered along the path.

A matrix function of hH alone must have its logarithm's cut somewhere, and a path that comes to it slides along it. Here
the flow carries the arguments of $w_i = 1 - h\lambda_i$ for the k eigenvalues with the largest real parts, so that an
eigenvalue may pass any cut. What it must not do is wind on and on: every turn about zero is the same step of descent
($e^{\log w} = w$ on all sheets), but a longer way to it through complex space, and the way is what a model without all
terms is wrong about. So an argument that gets past 3/4 of a turn is taken back by one turn, once and smoothly.
"""

from itertools import product as all_of
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Complex, Float

from principalflow import _loss
from principalflow._compiled import compiled
from principalflow.flows._flow import Field
from principalflow.flows._logarithm import log, phi_times
from principalflow.objective import Objective, Vector
from principalflow.spectrum import krylov_and_space, top_eigenpairs

# All choices of signs are tried at the start, 2^(k - 1) of them.
MOST_TRACKED = 10
# What is remembered comes to what is found at these rates, over h: values and arguments. Fast beside the path, and
# stable in a solver's steps where an eigenvalue is above 1/h: there the path turns at the rate pi/h.
_RATE, _ARGUMENT_RATE = 4.0, 8.0
# It is held so small that a solver's absolute tolerance isn't spent on it: on the sheets the field doesn't depend on
# it, while its rates jump where eigenvalues far from 1/h take each other's place.
_UNIT = 1e-8
_TURN = 2 * np.pi
# An argument is taken back by a turn from the second of these on. Beyond that Re w is above 0, where the logarithm is
# the one next to the real axis'; up to the first nothing is taken back.
_BACK = 0.7 * _TURN, 0.75 * _TURN
# Next to the positive real axis, from the first argument to the second, memory gives way to that logarithm.
_FREE = 0.4 * np.pi, 0.25 * np.pi
# Between the sheets the logarithm goes over smoothly, when what is remembered is so far off, in turns. A real w that
# falls through 0 is half a turn off, and must come out as +i pi: so the middle is beyond half a turn.
_HALF_WIDTH, _SHIFT = 0.05, 0.05
# Of the eigenpairs at the start, relative to the largest.
_RESIDUAL = 1e-4
# Next to a defective Hessian u^T u is zero and eigenvalues move infinitely fast: they are found, not foretold.
_LEAST_SQUARE = 1e-3


class TrackedState(NamedTuple):
    r"""What `Principal(h, branch="tracked")` follows.

    Attributes:
        theta: The parameters, complex.
        small_values: `values`, in a unit of 1e-8.
        small_arguments: `arguments`, in the same unit.
    """

    theta: Vector
    small_values: Complex[Array, " k"]
    small_arguments: Float[Array, " k"]

    @property
    def values(self) -> Complex[Array, " k"]:
        r"""The $h\lambda_i$ of the eigenvalues that are remembered."""
        return self.small_values / _UNIT

    @property
    def arguments(self) -> Float[Array, " k"]:
        r"""Those of $1 - h\lambda_i$, in any turn."""
        return self.small_arguments / _UNIT

    @classmethod
    def of(cls, theta: Vector, values: Array, arguments: Array) -> "TrackedState":
        """Returns the state with these values and arguments, or their derivatives."""
        return cls(theta, _UNIT * values, _UNIT * arguments)


def start(flow: Any, objective: Objective, theta: Vector) -> TrackedState:
    r"""Returns the state at the beginning.

    At real theta an eigenvalue above 1/h has two logarithms that are each other's conjugate, $\pm i\pi$, and all signs
    may be turned together. The signs of the others, beside the largest one's, decide whether eigenvalues set out
    towards the argument 0 or away from it: those are taken that send them there the fastest.
    """
    k = min(flow.k, theta.size)
    if jnp.iscomplexobj(theta) and np.any(theta.imag):
        values = _largest(flow, objective, theta, k)
        return TrackedState.of(theta, values, log(1 - values, "continuous").imag)
    real, h = theta.real, float(flow.h)
    if flow.is_dense(objective):
        lambdas, vectors = jnp.linalg.eigh(objective.hessian(real))
        lambdas, vectors = lambdas[::-1][:k], vectors[:, ::-1][:, :k]
    else:
        pairs = top_eigenpairs(objective, real, k, tol=_RESIDUAL)
        lambdas, vectors = jnp.asarray(pairs.values, real.dtype), jnp.asarray(pairs.vectors, real.dtype)
    z = h * np.asarray(lambdas)
    signs = np.ones(k)
    if np.sum(z > 1) > 1:
        velocities = vectors * (objective.gradient(real) @ vectors / z)  # over i pi, with all signs +
        signs = _signs(z, np.asarray(objective.third(real, vectors, vectors).T @ velocities))
    values = jnp.asarray(z, jnp.promote_types(real.dtype, jnp.complex64))
    arguments = jnp.asarray(np.where(z > 1, signs * np.pi, 0.0), real.dtype)
    return TrackedState.of(theta.astype(values.dtype), values, arguments)


def _signs(z: np.ndarray, pull: np.ndarray) -> np.ndarray:
    """Returns the signs with which arguments shrink the fastest; `pull[i, j]` is how direction j drives z_i."""
    beyond = z > 1
    growth = np.where(beyond[:, None] & beyond, pull / np.maximum(abs(1 - z), np.finfo(z.dtype).eps)[:, None], 0)
    choices = np.array([(1, *others) for others in all_of((1, -1), repeat=z.size - 1)])
    total = np.einsum("si,ij,sj->s", choices, growth, choices)
    # The first of equals: where nothing pulls, all signs are +.
    return choices[np.argmax(total <= np.min(total) + 1e-9 * np.sum(abs(growth)))]


@_loss.needs("loss", _loss.PRODUCTS)
@compiled
def evaluate(flow: Any, objective: Objective, state: TrackedState) -> Field:
    """Returns the derivative of a state, with the error estimate of theta's."""
    found, values, vectors = _at(flow, objective, state.theta, state)
    _, slots, arguments = _matched(values, state)
    squares = jnp.sum(vectors * vectors, axis=0)[slots]
    vectors = vectors[:, slots]
    moved = objective.third(state.theta, vectors, vectors).T @ found.vector
    known = jnp.abs(squares) > _LEAST_SQUARE
    foretold = jnp.where(known, flow.h * moved / jnp.where(known, squares, 1), 0)
    change = TrackedState.of(
        found.vector,
        foretold + _RATE / flow.h * (values[slots] - state.values),
        _ARGUMENT_RATE / flow.h * (arguments - state.arguments),
    )
    return found._replace(vector=change, contractions=slots.size)


@compiled
def _largest(flow: Any, objective: Objective, theta: Vector, k: int) -> Complex[Array, " k"]:
    values = _at(flow, objective, theta, None)[1]
    return values[lax.top_k(values.real, k)[1]]


def _at(
    flow: Any, objective: Objective, theta: Vector, state: TrackedState | None
) -> tuple[Field, Complex[Array, " n"], Complex[Array, "D n"]]:
    """Returns the field of theta, and the eigenvalues, times h, and unit eigenvectors that it was taken of."""
    gradient, times = objective.linearize(theta)

    def combined(Z: Array, v: Array) -> tuple[Array, Array, Array]:
        values, vectors = jnp.linalg.eig(Z)
        vector = phi_times(Z, v, "continuous")
        if state is not None:
            turns = _matched(values, state)[0]
            weights = jnp.linalg.solve(vectors, v)  # without a full set of eigenvectors infinite, where no turns are
            here = turns == 0
            vector += vectors @ jnp.where(here, 0, 1j * _TURN * turns * weights / jnp.where(here, 1, values))
        return vector, values, vectors

    if flow.is_dense(objective):
        vector, values, vectors = combined(flow.h * objective.hessian(theta), gradient)
        return Field.exact(vector, theta.size), values, vectors

    def coefficients(T: Array) -> tuple[Array, Array]:
        first = jnp.zeros(T.shape[0], T.dtype).at[0].set(1)
        return combined(flow.h * T, first)[0], jnp.zeros((), T.real.dtype)

    applied, basis, T = krylov_and_space(times, gradient, coefficients, flow.rtol, flow.max_products, symmetric=False)
    values, vectors = jnp.linalg.eig(flow.h * T)
    return Field(applied.vector, applied.products, applied.error, applied.converged), values, basis.T @ vectors


def _matched(values: Array, state: TrackedState) -> tuple[Float[Array, " n"], Array, Float[Array, " k"]]:
    """Returns how each eigenvalue and what is remembered belong together.

    That is, the turns that each is beyond the continuous branch; and for what is remembered the numbers of the
    eigenvalues that it is of, and the arguments that it goes to.
    """
    k = state.values.size
    largest = lax.top_k(values.real, k)[1]
    slots = largest[_nearest(jnp.abs(state.values[:, None] - values[largest]))]
    argument = log(1 - values[slots], "continuous").imag
    off = (state.arguments - argument) / _TURN + _SHIFT
    sheet = jnp.round(off)
    here = argument + _TURN * sheet
    back = jnp.sign(here) * _smooth_step((jnp.abs(here) - _BACK[0]) / (_BACK[1] - _BACK[0]))
    principal = jnp.abs(argument)
    off *= 1 - _smooth_step((principal - _FREE[0]) / (_FREE[1] - _FREE[0]))
    turns = jnp.floor(off) + _smooth_step((off - jnp.floor(off) - 0.5 + _HALF_WIDTH) / (2 * _HALF_WIDTH))
    return jnp.zeros(values.size, turns.dtype).at[slots].set(turns), slots, here - _TURN * back


def _nearest(distances: Float[Array, "k k"]) -> Array:
    """Returns for each row a column of its own, the closest pairs first."""
    k = len(distances)

    def match(_: Any, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        distances, columns = carry
        row, column = jnp.divmod(jnp.argmin(distances), k)
        taken = (jnp.arange(k)[:, None] == row) | (jnp.arange(k) == column)
        return jnp.where(taken, jnp.inf, distances), columns.at[row].set(column)

    distances = jnp.where(jnp.isfinite(distances), distances, jnp.finfo(distances.dtype).max)
    return lax.fori_loop(0, k, match, (distances, jnp.zeros(k, int)))[1]


def _smooth_step(x: Array) -> Array:
    """Returns 0 below 0 and 1 above 1, with two derivatives in between."""
    x = jnp.clip(x, 0, 1)
    return x**3 * (10 + x * (6 * x - 15))
