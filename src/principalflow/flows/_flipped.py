"""The gradient flow with one eigendirection turned round."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Inexact

from principalflow import _checks, _loss
from principalflow._compiled import compiled
from principalflow.flows._flow import Field, Flow
from principalflow.objective import Objective, Vector, checked_theta
from principalflow.spectrum import Applied, krylov

# Up to here all eigenvectors cost less than the Krylov basis with its bookkeeping.
_DENSE_SIZE = 64


class FlippedDirection(Flow):
    r"""The negative gradient flow with the sign of one Hessian eigendirection turned (paper, section 5).

    $$\dot\theta = \nabla E^T u_i\, u_i - \sum_{j \ne i} \nabla E^T u_j\, u_j = -\nabla E + 2 (\nabla E^T u_i)\, u_i$$

    It resembles the principal flow where $\lambda_i$ alone is above $2/h$, and asks whether one direction is enough to
    make training unstable. The eigenvector is that of the Hessian where the flow is, found anew at every evaluation
    by Lanczos; where $\lambda_i$ meets its neighbour it jumps, and the solver slows down. Lanczos sees a repeated
    eigenvalue once, so there `index` counts different eigenvalues.

    Args:
        index: Which eigendirection, counted from the largest eigenvalue, 0.
        rtol: How exactly to know the eigenvector.
        max_products: The most Hessian products to spend on it.

    Raises:
        ValueError: For an index below 0 or, at evaluation, not below the number of parameters; rtol not above 0
            and below 1; max_products not above the index.

    Example:
        >>> import jax.numpy as jnp
        >>> import principalflow as pf
        >>> bowl = pf.functions.quadratic(jnp.diag(jnp.array([1.0, 3.0])))
        >>> pf.flows.FlippedDirection(index=0).field(bowl, [1.0, 1.0])
        Array([-1.,  3.], dtype=float64)
    """

    index: int = eqx.field(static=True, default=0, converter=partial(_checks.whole, "index", least=0))
    rtol: float = eqx.field(static=True, kw_only=True, default=1e-6, converter=partial(_checks.tolerance, "rtol"))
    max_products: int = eqx.field(
        static=True, kw_only=True, default=60, converter=partial(_checks.whole, "max_products", least=1)
    )

    def __check_init__(self):
        _checks.whole("max_products", self.max_products, least=self.index + 1)

    def evaluate(self, objective: Objective, state: Vector) -> Field:
        found = self.direction(objective, state)
        gradient = objective.gradient(state)
        vector = -gradient + 2 * (gradient @ found.vector) * found.vector
        return Field(vector, found.products, found.error, found.converged)

    def direction(self, objective: Objective, theta: _checks.Numbers) -> Applied:
        """Returns the eigenvector at `theta`, with its error estimate and the Hessian products it took.

        Args:
            objective: The loss.
            theta: Where; real.

        Raises:
            ValueError: For a theta that is complex or not finite, or has no more parameters than `index`.

        Example:
            >>> import principalflow as pf
            >>> bowl = pf.functions.quadratic([[3.0, 0.0], [0.0, 1.0]])
            >>> abs(pf.flows.FlippedDirection(0).direction(bowl, [1.0, 1.0]).vector)
            Array([1., 0.], dtype=float64)
        """
        theta = checked_theta(objective, theta, half=False)
        if jnp.iscomplexobj(theta):
            raise ValueError("theta must be real: FlippedDirection is a flow in real space.")
        if self.index >= theta.size:
            raise ValueError(f"index must be below the number of parameters, {theta.size}, got {self.index}.")
        return _direction(self, objective, theta)

    def jacobian_eigenvalues(self, lambdas: _checks.Numbers) -> Inexact[Array, " D"]:
        r"""Returns $-\lambda_j$, and $+\lambda_i$ for the flipped direction: the Jacobian at a critical point.

        Args:
            lambdas: The Hessian's eigenvalues at the critical point, real; all of them, or the largest.

        Returns:
            One eigenvalue for each of them, in the same order.

        Raises:
            ValueError: For lambdas that aren't a finite real vector longer than `index`.

        Example:
            >>> import principalflow as pf
            >>> pf.flows.FlippedDirection().jacobian_eigenvalues([1.0, 3.0, 2.0])
            Array([-1.,  3., -2.], dtype=float64)
        """
        lambdas = _checks.inexact("lambdas", lambdas)
        if jnp.iscomplexobj(lambdas) or lambdas.ndim != 1 or lambdas.size <= self.index:
            raise ValueError(
                f"lambdas must be a real vector longer than index={self.index}, got shape {lambdas.shape}."
            )
        _checks.finite("lambdas", lambdas)
        flipped = jnp.argsort(-lambdas)[self.index]
        return -lambdas.at[flipped].multiply(-1)


@_loss.needs("loss", _loss.PRODUCTS)
@compiled
def _direction(flow: FlippedDirection, objective: Objective, theta: Vector) -> Applied:
    if theta.size <= _DENSE_SIZE:
        hessian = objective.hessian(theta)
        vector = jnp.linalg.eigh(hessian)[1][:, -1 - flow.index]  # eigh may overlook an infinity
        return Applied.exact(jnp.where(jnp.all(jnp.isfinite(hessian)), vector, jnp.nan), theta.size)
    gradient, product = objective.linearize(theta)
    # The gradient alone may be blind to the direction, and then the next one would be taken for it.
    noise = jax.random.normal(jax.random.key(0), theta.shape, theta.dtype)
    length = jnp.linalg.norm(gradient)
    start = gradient / jnp.where(length > 0, length, 1) + noise / jnp.linalg.norm(noise)

    def coefficients(T):
        # Rows that aren't filled yet are zero: put below all eigenvalues, they aren't mistaken for the eigenvalue 0.
        below = -4 * jnp.max(jnp.abs(T)) * jnp.eye(T.shape[0], dtype=T.dtype)
        filled = jnp.any(T != 0, axis=1, keepdims=True)
        vector = jnp.linalg.eigh(jnp.where(filled, T, below))[1][:, -1 - flow.index]
        return vector * jnp.where(vector[0] < 0, -1, 1), jnp.zeros((), T.dtype)

    found = krylov(product, start, coefficients, flow.rtol, flow.max_products, symmetric=True)
    length = jnp.linalg.norm(found.vector)
    lost = length == 0  # the Krylov space ended before it had so many directions
    unit = found.vector / jnp.where(lost, 1, length)
    return Applied(unit, jnp.where(lost, jnp.inf, found.error), found.products, found.converged & ~lost)
