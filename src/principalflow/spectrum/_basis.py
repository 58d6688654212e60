"""An orthonormal basis with a symmetric operator's products, for NumPy, JAX and PyTorch arrays alike."""

from collections.abc import Callable
from typing import Any

import numpy as np
from array_api_compat import array_namespace, device, is_array_api_obj, is_torch_array

from principalflow import _checks


class Basis:
    """An orthonormal basis S with H S, one vector a row, and T = S H S^T.

    The arrays have room for more rows, zero until they are used, so that JAX compiles once.
    """

    def __init__(self, product: "Counted", block: Any, rows: int):
        self.xp, self.product = product.xp, product
        self.eps = float(self.xp.finfo(block.dtype).eps)
        self.S = self.HS = self.xp.matrix_transpose(block)[:0]
        self.T = np.zeros((0, 0))
        self.make_room(rows)
        check_rank(block, self.extend(self.xp.matrix_transpose(block)))

    @property
    def size(self) -> int:
        """The dimension of the space."""
        return self.S.shape[1]

    @property
    def room(self) -> int:
        """How many vectors still fit."""
        return self.S.shape[0] - len(self.T)

    def make_room(self, rows: int) -> None:
        """Makes room for so many vectors in all."""
        more = self.like(np.zeros((max(rows - self.S.shape[0], 0), self.size)))
        self.S, self.HS = self.xp.concat([self.S, more], axis=0), self.xp.concat([self.HS, more], axis=0)

    def fill(self, width: int) -> None:
        """Adds random vectors until there are `width`."""
        random = np.random.default_rng(2023)  # not 0, with which many a guess is made
        while len(self.T) < min(width, self.size):
            self.extend(self.like(random.standard_normal((width - len(self.T), self.size))))

    def extend(self, W: Any) -> int:
        """Adds what the rows of W have beyond the basis; returns how many directions that were."""
        W = orthonormal(self.xp, W, self.S if len(self.T) else None)
        old, added = len(self.T), W.shape[0]
        if added:
            HW = self.xp.matrix_transpose(self.product(self.xp.matrix_transpose(W)))
            place = self.like(np.eye(self.S.shape[0])[:, old : old + added])
            self.S, self.HS = self.S + place @ W, self.HS + place @ HW
            T = np.zeros((old + added, old + added))
            T[:old, :old] = self.T
            # Both sides of the new rows and columns are measured, so that a product that isn't symmetric shows.
            T[:, old:] = to_numpy(self.S @ self.xp.matrix_transpose(HW))[: old + added]
            T[old:, :old] = to_numpy(W @ self.xp.matrix_transpose(self.HS))[:, :old]
            self.T = T
        return added

    def product_with(self, v: Any) -> Any:
        """Returns H v; the vector joins the basis."""
        self.extend(self.xp.reshape(v, (1, -1)))
        return (self.S @ v) @ self.HS

    def beyond(self, v: Any) -> Any:
        """Returns what a vector has beyond the basis."""
        return v - (self.S @ v) @ self.S

    def combine(self, Y: np.ndarray, rows: Any) -> Any:
        """Returns the combinations of `rows`, S or HS, whose coefficients are the columns of Y."""
        padded = np.zeros((Y.shape[1], rows.shape[0]))
        padded[:, : len(Y)] = Y.T
        return self.like(padded) @ rows

    def restart(self, Y: np.ndarray) -> None:
        """Keeps the combinations Y alone, orthonormal ones."""
        kept = np.zeros((len(Y), self.S.shape[0]))
        kept[:, : Y.shape[1]] = Y
        self.S, self.HS = self.combine(kept, self.S), self.combine(kept, self.HS)
        self.T = Y.T @ self.T @ Y

    def like(self, x: np.ndarray) -> Any:
        """Returns `x` as an array of the basis's kind."""
        return like(self.xp, x, self.S)


class Counted:
    """A product that counts its columns and refuses what can't be right."""

    def __init__(self, product: Callable[[Any], Any], xp: Any):
        self.product, self.xp, self.products = product, xp, 0

    def __call__(self, block: Any) -> Any:
        result = self.product(block)
        if not is_array(result) or array_namespace(result) != self.xp or result.dtype != block.dtype:
            got = f"{type(result).__name__} of {getattr(result, 'dtype', 'no dtype')}"
            raise ValueError(f"product must return a {type(block).__name__} of {block.dtype}, as it gets, got a {got}.")
        result = result.detach() if is_torch_array(result) else result
        if tuple(result.shape) != tuple(block.shape):
            raise ValueError(f"product must keep the block's shape {tuple(block.shape)}, got {tuple(result.shape)}.")
        if not bool(self.xp.all(self.xp.isfinite(result))):
            raise _checks.NonFiniteError("product must be finite, but it returned entries that are not.")
        self.products += block.shape[1]
        return result


def orthonormal(xp: Any, W: Any, S: Any) -> Any:
    """Returns orthonormal rows for what the rows of W have beyond those of S; dependent ones are left out."""
    least = float(xp.finfo(W.dtype).eps) ** 0.5
    for _ in range(1 if S is None else 2):  # once more repairs what cancellation lost
        W = W / _largest(xp, W)  # else the square of a length may overflow
        W = W / _or_one(xp, xp.linalg.vector_norm(W, axis=1, keepdims=True))
        if S is not None:
            W = W - (W @ xp.matrix_transpose(S)) @ S
        Q, R = xp.linalg.qr(xp.matrix_transpose(W))
        W = xp.matrix_transpose(Q)
        independent = np.abs(np.diagonal(to_numpy(R))) > least
        if not np.all(independent):
            W = rows(xp, W, np.flatnonzero(independent))
    return W


def check_rank(guess: Any, rank: int) -> None:
    """Raises unless as many columns as the guess has were found independent."""
    if rank < guess.shape[1]:
        raise ValueError(f"guess must have independent columns, got rank {rank} of {guess.shape[1]}.")


def is_array(x: Any) -> bool:
    """Whether it is an array of NumPy, JAX or PyTorch."""
    return is_array_api_obj(x)


def rows(xp: Any, X: Any, which: np.ndarray) -> Any:
    """Returns some rows of an array."""
    return xp.take(X, xp.asarray(which, device=device(X)), axis=0)


def to_numpy(x: Any) -> np.ndarray:
    """Returns an array as NumPy's, in float64."""
    return np.asarray(x.detach().cpu() if is_torch_array(x) else x, dtype=np.float64)


def like(xp: Any, x: np.ndarray, example: Any) -> Any:
    """Returns `x` as an array like the example, of its kind, dtype and device."""
    return xp.asarray(x, dtype=example.dtype, device=device(example))


def norms(xp: Any, X: Any) -> np.ndarray:
    """Returns the length of each row, in float64, also where its square overflows."""
    largest = _largest(xp, X)
    return to_numpy(largest)[:, 0] * to_numpy(xp.linalg.vector_norm(X / largest, axis=1))


def _largest(xp: Any, X: Any) -> Any:
    return _or_one(xp, xp.max(xp.abs(X), axis=1, keepdims=True))


def _or_one(xp: Any, x: Any) -> Any:
    return xp.where(x > 0, x, xp.ones_like(x))
