"""The paper's analytic objectives."""

import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial
from jaxtyping import Array

from principalflow import _checks
from principalflow._compiled import Programs
from principalflow.objective import Objective, Vector

__all__ = ["banana", "cosine_valley", "quadratic"]


def quadratic(A: _checks.Numbers, b: _checks.Numbers | None = None) -> Objective:
    r"""Returns $E(\theta) = \frac12 \theta^T A \theta + b^T \theta$, whose Hessian is $A$ (paper, section 3).

    The paper's figures use $\theta^T A \theta$ without the half: give twice their matrix (erratum 8).

    Args:
        A: A symmetric (D, D) matrix.
        b: The linear term (D,); zero if left out.

    Returns:
        An objective that starts at the vector of ones.

    Raises:
        ValueError: For an A that isn't square, symmetric and finite, or a b of another length, or one that is complex
            where A is real.

    Example:
        >>> import principalflow as pf
        >>> bowl = pf.functions.quadratic([[2.0, 0.0], [0.0, 0.02]])
        >>> bowl.value([1.0, 1.0])
        Array(1.01, dtype=float64)
    """
    A = _checks.symmetric("A", A)
    b = jnp.zeros(A.shape[0], A.dtype) if b is None else _checks.vector("b", b, A.shape[0])
    if jnp.iscomplexobj(b) and not jnp.iscomplexobj(A):
        raise ValueError(f"b must be real where A is real, got dtype {b.dtype}.")
    # The numbers are arguments and not constants, so that another quadratic of the same size doesn't compile again.
    return Objective(Partial(_quadratic, A, b), jnp.ones(A.shape[0], A.dtype), holomorphic=True)


def banana() -> Objective:
    r"""Returns the banana function $E(x, y) = (1-x)^2 + 100 (y-x^2)^2$ (paper, fig. banana; Rosenbrock 1960).

    Its minimum is (1, 1), at the bottom of a curved valley; it starts at (1.3, 1.5), on the valley's wall.

    Example:
        >>> import principalflow as pf
        >>> pf.functions.banana().gradient([1.0, 1.0])
        Array([0., 0.], dtype=float64)
    """
    return Objective(_banana, jnp.array([1.3, 1.5]), holomorphic=True)


def cosine_valley() -> Objective:
    r"""Returns $\cos\theta + \theta$ left of zero, $2(\theta/3)^2 + 1 + \theta/3$ right of it (paper, fig. 1d_cosine).

    The paper prints the right piece as "(theta/3)^22 + 1 + theta/3" (erratum 9). The function is
    holomorphic on each side of Re theta = 0 and continuous there, with a jump of the slope from 1 to 1/3.
    It never decreases to the right: its stationary points are the inflections at -3 pi/2, -7 pi/2, ...
    where flows that come from the right stop (erratum 11).

    Example:
        >>> import principalflow as pf
        >>> pf.functions.cosine_valley().value([3.0])
        Array(4., dtype=float64)
    """
    return Objective(_cosine_valley, jnp.array([2.0]), holomorphic=True)


def _quadratic(A: Array, b: Vector, theta: Vector):
    return 0.5 * theta @ (A @ theta) + b @ theta


def _banana(theta: Vector):
    x, y = theta
    return (1 - x) ** 2 + 100 * (y - x**2) ** 2


def _cosine_valley(theta: Vector):
    (x,) = theta
    left = jnp.cos(x) + x
    right = 2 * (x / 3) ** 2 + 1 + x / 3
    return jnp.where(x.real < 0, left, right)


# These losses stay, and so does what is compiled for them.
_PROGRAMS = [Programs.of(loss) for loss in (Partial(_quadratic, np.zeros(1), np.zeros(1)), _banana, _cosine_valley)]
