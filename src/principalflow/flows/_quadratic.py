"""Flows on quadratics in closed form."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Inexact

from principalflow import _checks
from principalflow.flows._flow import SpectralFlow, as_flow


def solve_quadratic(
    flow: SpectralFlow, A: _checks.Numbers, b: _checks.Numbers, theta: _checks.Numbers, times: _checks.Numbers
) -> Inexact[Array, "times D"]:
    r"""Returns a spectral flow's solution on $E = \frac12\theta^T A\theta + b^T\theta$, in closed form.

    In each eigendirection, with $a = \lambda\,\alpha(h\lambda)$,
    $$\theta(t)\cdot u = e^{at}\,(\theta(0)\cdot u) + \frac{e^{at}-1}{\lambda}\,(b\cdot u),$$
    and $t\,\alpha(0)\,(b\cdot u)$ for the last term where $\lambda = 0$. The paper's remark 3.1 prints another
    last term, which is not a solution (erratum 2). For the principal flow this is descent itself at times $nh$.

    Args:
        flow: A flow with a coefficient `alpha`.
        A: The Hessian (D, D), real and symmetric.
        b: The linear term (D,).
        theta: The start (D,).
        times: The times, one or several.

    Returns:
        The parameters at each time.

    Raises:
        ValueError: For a flow without such a coefficient, an A that isn't real, square and symmetric or is of half
            precision, vectors that don't fit it, or times that aren't real and finite.

    Example:
        >>> import principalflow as pf
        >>> flow = pf.flows.Principal(h=1.2)
        >>> pf.flows.solve_quadratic(flow, [[1.0]], [-0.6], [0.0], times=[1.2, 2.4]).real.round(9)
        Array([[0.72 ],
               [0.576]], dtype=float64)
    """
    as_flow(flow, SpectralFlow)
    A = _checks.symmetric("A", A)
    _checks.single_or_double("A", A)
    if jnp.iscomplexobj(A):
        raise ValueError(f"A must be real, as its eigenvectors are orthogonal only then, got {A.dtype}.")
    b, theta = _checks.vector("b", b, A.shape[0]), _checks.vector("theta", theta, A.shape[0])
    times = jnp.atleast_1d(_checks.inexact("times", times))
    if times.ndim != 1 or jnp.iscomplexobj(times):
        raise ValueError(f"times must be one real number or a vector of them, got {times.dtype}{times.shape}.")
    _checks.finite("times", times)
    values, vectors = jnp.linalg.eigh(A)
    with _checks.renamed(**{"h*lambdas": "h times the eigenvalues of A"}):
        alpha = flow.coefficients(values)
    exponent = times[:, None] * (values * alpha)
    # (e^(at) - 1)/lambda = t alpha (e^x - 1)/x at x = at, which has no trouble at lambda = 0.
    growth = jnp.where(exponent == 0, 1, jnp.expm1(exponent) / jnp.where(exponent == 0, 1, exponent))
    along = jnp.exp(exponent) * (vectors.T @ theta) + times[:, None] * alpha * growth * (vectors.T @ b)
    return jnp.einsum("ti,di->td", along, vectors, precision=jax.lax.Precision.HIGHEST)
