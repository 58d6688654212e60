"""What holds the sharpness at the edge in central flows: directions, third derivatives and the covariance."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from principalflow.objective import Objective, Vector

# Directions whose sharpness over the threshold, times 2, is above this take part in what holds it.
NEAR = 1.95
# The residual of tracked directions beside the sharpness, ...
RESIDUAL = 1e-3
# ... and how many Rayleigh-Ritz steps on them and their residuals are taken for it.
_MOST_REFINEMENTS = 10
# Steps of the projected gradient for the covariance, which has k(k+1)/2 unknowns, until it changes by so little.
_COVARIANCE_STEPS, _COVARIANCE_CHANGE = 1000, 1e-9


class Pairs(NamedTuple):
    """The pairs i <= j of k directions.

    Attributes:
        first: i of each.
        second: j of each.
        number: Which pair each entry of a k x k matrix belongs to.
    """

    first: Array
    second: Array
    number: Array

    @classmethod
    def of(cls, k: int) -> "Pairs":
        """Returns those of k directions."""
        first, second = jnp.triu_indices(k)
        upper = jnp.zeros((k, k), int).at[first, second].set(jnp.arange(first.size))
        return cls(first, second, jnp.maximum(upper, upper.T))

    def of_both(self, near: Bool[Array, " k"]) -> Bool[Array, " pairs"]:
        """Returns which pairs are of two directions that are near."""
        return near[self.first] & near[self.second]

    def thirds(
        self, objective: Objective, theta: Vector, U: Float[Array, "D k"], near: Bool[Array, " k"]
    ) -> Float[Array, "pairs D"]:
        """Returns the gradients of u_i^T H u_j where both are near, and zero elsewhere."""

        def one(pair: tuple[Array, Array, Array]) -> Vector:
            i, j, is_wanted = pair
            third = lambda: objective.third(theta, U[:, i], U[:, j])  # noqa: E731
            return lax.cond(is_wanted, third, lambda: jnp.zeros_like(theta))

        return lax.map(one, (self.first, self.second, self.of_both(near)))

    def matrix(self, entries: Float[Array, " pairs"]) -> Float[Array, "k k"]:
        """Returns the symmetric matrix with these entries."""
        return entries[self.number]

    def operator(self, entries: Float[Array, "pairs pairs"]) -> Float[Array, "k k k k"]:
        """Returns the operator on symmetric matrices with these entries."""
        return entries[self.number][:, :, self.number]

    def total(self, X: Float[Array, "k k"], of: Float[Array, "pairs D"]) -> Vector:
        """Returns the sum over all i and j of X_ij times what belongs to the pair."""
        return jnp.tensordot(X, of[self.number], 2)


class Refined(NamedTuple):
    """The sharpest directions, as found.

    Attributes:
        values: Eigenvalues (k,), largest first.
        vectors: Eigenvectors (D, k).
        products: Products that it took.
    """

    values: Array
    vectors: Array
    products: Any

    def turned(self, former: Float[Array, "D k"]) -> Float[Array, "D k"]:
        """Returns the vectors with the signs of the former ones: those of eigenvectors are arbitrary."""
        return self.vectors * jnp.where(jnp.sum(self.vectors * former, axis=0) < 0, -1, 1)


def refined(product: Callable[[Vector], Vector], guess: Float[Array, "D k"]) -> Refined:
    """Returns the largest eigenpairs by Rayleigh-Ritz steps from a guess, largest first."""
    k = guess.shape[1]
    times = jax.vmap(product, in_axes=1, out_axes=1)

    def ritz(V: Array, HV: Array) -> tuple[Array, Array, Array]:
        values, turns = jnp.linalg.eigh((V.T @ HV + HV.T @ V) / 2)
        turns = turns[:, ::-1][:, :k]
        return values[::-1][:k], V @ turns, HV @ turns

    def residual(values: Array, U: Array, HU: Array) -> Array:
        return HU - U * values

    def unfinished(carry: tuple) -> Array:
        values, U, HU, _, count = carry
        size = jnp.max(jnp.linalg.norm(residual(values, U, HU), axis=0))
        return (count < _MOST_REFINEMENTS) & (size > RESIDUAL * jnp.max(jnp.abs(values)))

    def refine(carry: tuple) -> tuple:
        values, U, HU, last, count = carry
        new = residual(values, U, HU)
        new = new / jnp.maximum(jnp.linalg.norm(new, axis=0), jnp.finfo(new.dtype).tiny)
        # Orthonormal from the known ones on; the former step's direction makes it a conjugate one.
        V, R = jnp.linalg.qr(jnp.concatenate([U, new, last], axis=1))
        HV = jnp.concatenate([HU, times(V[:, k:])], axis=1)
        HV = HV.at[:, :k].set(HU / jnp.diag(R)[:k])
        values, W, HW = ritz(V, HV)
        return values, W, HW, W - U @ (U.T @ W), count + 1

    U, _ = jnp.linalg.qr(guess)
    values, U, HU = ritz(U, times(U))
    start = values, U, HU, jnp.zeros_like(U), 0
    values, U, HU, _, count = lax.while_loop(unfinished, refine, start)
    return Refined(values, U, k * (1 + 2 * count))


def covariance(A: Array, B: Array, near: Array) -> Array:
    """Returns the positive semidefinite X, zero but where `near`, that minimises X.B[X]/2 + A.X (Cohen et al.).

    Where no third derivatives are left to hold the sharpness, so that there is no such X, it is zero.
    """
    k = A.shape[0]
    both = near[:, None] & near[None, :]
    A, B = jnp.where(both, A, 0), jnp.where(both[:, :, None, None] & both, B, 0)
    matrix = B.reshape(k * k, k * k)
    steep = jnp.linalg.eigvalsh(matrix)[-1]
    held = steep > jnp.finfo(A.dtype).eps * jnp.max(jnp.abs(A))
    A, steep = jnp.where(held, A, 0), jnp.where(held, steep, 1)

    def step(carry: tuple) -> tuple:
        X, ahead, t, _, count = carry
        new = positive(ahead - (A + jnp.tensordot(B, ahead, 2)) / steep)
        back = jnp.sum((ahead - new) * (new - X)) > 0  # it turns back: momentum is dropped
        t = jnp.where(back, 1.0, t)
        later = (1 + jnp.sqrt(1 + 4 * t**2)) / 2
        ahead = new + jnp.where(back, 0.0, (t - 1) / later) * (new - X)
        return new, ahead, later, jnp.max(jnp.abs(new - X)), count + 1

    def unfinished(carry: tuple) -> Array:
        X, _, _, change, count = carry
        return (count < _COVARIANCE_STEPS) & (change > _COVARIANCE_CHANGE * jnp.max(jnp.abs(X)))

    one = jnp.ones((), A.dtype)
    return lax.while_loop(unfinished, step, step((jnp.zeros_like(A), jnp.zeros_like(A), one, one, 0)))[0]


def positive(X: Array) -> Array:
    """Returns the symmetric part of a matrix without its negative eigenvalues."""
    values, vectors = jnp.linalg.eigh((X + X.T) / 2)
    return (vectors * jnp.maximum(values, 0)) @ vectors.T
