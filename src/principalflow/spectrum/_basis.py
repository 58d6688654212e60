"""An orthonormal basis with a symmetric operator's products, for NumPy, JAX and PyTorch arrays alike."""

import math
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from array_api_compat import array_namespace, device, is_array_api_obj, is_jax_array, is_torch_array

from principalflow import _checks


class Basis:
    """An orthonormal basis S with H S, one vector a row, and T = S H S^T.

    JAX's arrays have all their rows from the start, zero until they are used, so that it compiles once.
    """

    def __init__(self, product: "Counted", block: Any, rows: int):
        self.xp, self.product = product.xp, product
        self.eps = float(self.xp.finfo(block.dtype).eps)
        self.T = np.zeros((0, 0))
        self._S = self._HS = self.xp.matrix_transpose(block)[:0]
        self.make_room(rows)
        self.extend(self.xp.matrix_transpose(block))

    @property
    def S(self) -> Any:  # noqa: N802
        """The vectors."""
        return self._used(self._S)

    @property
    def HS(self) -> Any:  # noqa: N802
        """The operator times the vectors."""
        return self._used(self._HS)

    @property
    def size(self) -> int:
        """The dimension of the space."""
        return self._S.shape[1]

    @property
    def room(self) -> int:
        """How many vectors still fit."""
        return self._S.shape[0] - len(self.T)

    def make_room(self, rows: int) -> None:
        """Makes room for so many vectors in all."""
        more = max(rows - self._S.shape[0], 0)
        zeros = self.xp.zeros((more, self.size), dtype=self._S.dtype, device=device(self._S))
        self._S, self._HS = (self.xp.concat([old, zeros], axis=0) for old in (self._S, self._HS))

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
            T = np.zeros((old + added, old + added))
            T[:old, :old], self.T = self.T, T
            self._S, self._HS = _with_rows(self._S, W, old), _with_rows(self._HS, HW, old)
            # Both sides of the new rows and columns are measured, so that a product that isn't symmetric shows.
            T[:, old:] = to_numpy(self.S @ self.xp.matrix_transpose(HW))[: old + added]
            T[old:, :old] = to_numpy(W @ self.xp.matrix_transpose(self.HS))[:, :old]
        return added

    def times(self, v: Any) -> Any:
        """Returns H v for a vector that lies in the basis."""
        return (self.S @ v) @ self.HS

    def combine(self, Y: np.ndarray, rows: Any) -> Any:
        """Returns the combinations of `rows`, S or HS, whose coefficients are the columns of Y."""
        padded = np.zeros((Y.shape[1], rows.shape[0]))
        padded[:, : len(Y)] = Y.T
        return self.like(padded) @ rows

    def restart(self, Y: np.ndarray) -> None:
        """Keeps the combinations Y alone, orthonormal ones."""
        S, HS, rows = self.combine(Y, self.S), self.combine(Y, self.HS), self._S.shape[0]
        self._S, self._HS, self.T = S, HS, Y.T @ self.T @ Y
        self.make_room(rows)

    def like(self, x: np.ndarray) -> Any:
        """Returns `x` as an array of the basis's kind."""
        return like(self.xp, x, self._S)

    def _used(self, rows: Any) -> Any:
        return rows if is_jax_array(rows) else rows[: len(self.T)]


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
        with np.errstate(over="ignore", invalid="ignore"):
            total = float(self.xp.sum(result))  # quicker than to look at each, and finite only if all are
        if not math.isfinite(total) and not bool(self.xp.all(self.xp.isfinite(result))):
            raise _checks.NonFiniteError("product must be finite, but some of its entries are not.")
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


def rank(xp: Any, rows: Any) -> int:
    """Returns how many of the rows are independent."""
    return orthonormal(xp, rows, None).shape[0]


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


def _with_rows(X: Any, new: Any, start: int) -> Any:
    """Returns X with new rows from `start` on; where arrays can be written to, it is X itself."""
    if is_jax_array(X):
        return jax.lax.dynamic_update_slice(X, new, (start, 0))
    X[start : start + new.shape[0]] = new
    return X


def _or_one(xp: Any, x: Any) -> Any:
    return xp.where(x > 0, x, xp.ones_like(x))
