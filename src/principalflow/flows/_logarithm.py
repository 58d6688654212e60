r"""The principal flow's function $\varphi(z) = \log(1-z)/z$, of numbers and of matrices.

The logarithm's branch matters off the real axis. With the cut of $\log w$ on the negative real axis
(`"principal"`), $\varphi$ jumps where $1 - h\lambda < 0$, which is where the principal flow lives at the edge
of stability. With the cut on the negative imaginary axis (`"continuous"`) the values at real $z$ are the
same, $\log|1-z| + i\pi$ for $z > 1$, and nothing jumps near the real axis: the jump is now at Re z = 1, Im z > 0.
"""

from functools import partial
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Complex, Inexact

Branch = Literal["continuous", "principal"]
BRANCHES = ("continuous", "principal")

# Inverse scaling and squaring: five square roots bring |w| in [1e-16, 1e16] to within a factor of
# 3.2 of 1, where 16 Gauss-Legendre nodes leave a relative error under 1e-16 in log. Up to _LARGEST it grows to 1e-12.
_SQUARE_ROOTS = 5
_LARGEST = 1e24
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)
_NODES, _WEIGHTS = (_NODES + 1) / 2, _WEIGHTS / 2


def log(w: Inexact[Array, "..."], branch: Branch) -> Complex[Array, "..."]:
    """Returns the logarithm on the branch, with |w| floored at the machine epsilon.

    The floor is what keeps the flow finite at an eigenvalue of exactly 1/h, where descent lands on
    the minimum in one step: there the flow shrinks the distance to it by the epsilon per step instead.
    """
    w = w.astype(jnp.promote_types(w.dtype, jnp.complex64))
    eps = jnp.finfo(w.dtype).eps
    w = jnp.where(jnp.abs(w) < eps, eps, w)
    if branch == "continuous":  # turn the cut by a quarter: arguments in (-pi/2, 3 pi/2]
        return jnp.log(-1j * w) + 0.5j * jnp.pi
    # Rounding must not decide on which side of the cut a real negative number lies.
    real_negative = (w.real < 0) & (jnp.abs(w.imag) < 8 * eps * jnp.abs(w.real))
    return jnp.log(jnp.where(real_negative, lax.complex(w.real, jnp.zeros_like(w.real)), w))


@partial(jax.jit, static_argnames="branch")  # else each of its operations would be compiled by itself
def phi(z: Inexact[Array, "..."], branch: Branch) -> Complex[Array, "..."]:
    r"""Returns $\varphi(z) = \log(1-z)/z$, and its limits -1 at zero and 0 at infinity."""
    z = z.astype(jnp.promote_types(z.dtype, jnp.complex64))
    small = jnp.abs(z) < 0.5  # all branches agree here, and 1 - z would lose the digits of z
    near_zero = jnp.where(small, z, 0.25)
    ratio = jnp.where(small, jnp.log1p(-near_zero), log(1 - z, branch)) / jnp.where(z == 0, 1, z)
    return jnp.where(z == 0, -1, jnp.where(jnp.isinf(z), 0, ratio))


def phi_times(Z: Complex[Array, "n n"], v: Complex[Array, " n"], branch: Branch) -> Complex[Array, " n"]:
    r"""Returns $\varphi(Z) v$ for any complex matrix, defective and singular ones included.

    The logarithm of the bordered matrix [[I - Z, v], [0, 1]] has $-\varphi(Z) v$ in its last column: a divided
    difference, so nothing is divided by Z. The logarithm itself is taken by Schur decomposition
    and inverse scaling and squaring (Higham, Functions of Matrices, 2008, section 11.5), which needs no
    eigenvectors: for a defective Hessian this is the paper's Jordan form (appendix A.7) without computing one.
    NaN where an eigenvalue is beyond 1e24, further than this logarithm goes.
    """
    size = v.size
    length = jnp.linalg.norm(v)
    unit = v / jnp.where(length > 0, length, 1)
    bordered = jnp.eye(size + 1, dtype=Z.dtype).at[:size, :size].add(-Z).at[:size, size].set(unit)
    T, Q = jax.scipy.linalg.schur(bordered, output="complex")
    diagonal = log(jnp.where(jnp.abs(jnp.diag(T)) <= _LARGEST, jnp.diag(T), jnp.nan), branch)
    T = T + jnp.diag(jnp.exp(diagonal) - jnp.diag(T))  # the floor, and the side of the cut
    T = lax.fori_loop(1, _SQUARE_ROOTS + 1, lambda k, T: _triangular_root(T, jnp.exp(diagonal / 2**k)), T)
    X = T - jnp.eye(size + 1, dtype=Z.dtype)
    last = X @ Q[size].conj()

    # log(I + X) = integral over s in [0, 1] of X (I + s X)^-1, by Gauss-Legendre quadrature.
    def add_node(total, node_and_weight):
        node, weight = node_and_weight
        shifted = jnp.eye(size + 1, dtype=Z.dtype) + node * X
        return total + weight * jax.scipy.linalg.solve_triangular(shifted, last), None

    rule = jnp.asarray(_NODES, v.real.dtype), jnp.asarray(_WEIGHTS, v.real.dtype)
    column, _ = lax.scan(add_node, jnp.zeros_like(last), rule)
    return -(2**_SQUARE_ROOTS) * length * (Q @ column)[:size]


def _triangular_root(T: Complex[Array, "n n"], roots: Complex[Array, " n"]) -> Complex[Array, "n n"]:
    """Returns the upper triangular square root of T with these square roots of its diagonal.

    Column by column (Björck and Hammarling 1983): R_j R[:j, j] + R[:j, j] r_j = T[:j, j].
    """
    rows = jnp.arange(roots.size)

    def fill_column(j, R):
        above = rows < j
        leading = jnp.where(above[:, None] & above[None, :], R, 0)
        system = leading + jnp.diag(jnp.where(above, roots[j], 1))
        column = jax.scipy.linalg.solve_triangular(system, jnp.where(above, T[:, j], 0))
        return R.at[:, j].add(column)

    return lax.fori_loop(1, roots.size, fill_column, jnp.diag(roots))
