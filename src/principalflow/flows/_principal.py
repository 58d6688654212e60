"""The principal flow, in complex space, for small problems and at network scale."""

from functools import partial
from typing import Literal

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Complex

from principalflow import _checks, _loss
from principalflow._compiled import compiled
from principalflow.flows._flow import Field, RateFlow
from principalflow.flows._logarithm import BRANCHES, Branch, phi, phi_times
from principalflow.objective import Objective, Vector, as_objective, checked_theta
from principalflow.spectrum import krylov

METHODS = ("auto", "dense", "krylov")
# Up to here all eigenvalues cost less than the Krylov basis with its bookkeeping.
_DENSE_SIZE = 64


class Principal(RateFlow):
    r"""The principal flow (paper, definition 3.1), which lives in complex space.

    $$\dot\theta = \sum_i \frac{\log(1-h\lambda_i)}{h\lambda_i} (\nabla E^T u_i)\, u_i$$

    It is the matrix function $\varphi(hH)\,g$ with $\varphi(z) = \log(1-z)/z$: exact for descent on quadratics, in
    all regimes, and complex where an eigenvalue passes $1/h$. So the loss must be holomorphic.

    Args:
        h: The learning rate of the descent that is modelled.
        branch: The logarithm's cut. `"continuous"` puts it on the negative imaginary axis, so that the
            field doesn't jump where $h\lambda > 1$; `"principal"` is the textbook's, on the negative real axis.
            They agree at real theta.
        method: `"dense"` takes the matrix function of the whole Hessian; `"krylov"` projects on the
            Krylov space of (H, g), by Lanczos at real and Arnoldi at complex theta; `"auto"` chooses by size.
        rtol: The Krylov method's relative tolerance.
        max_products: The most Hessian products that the Krylov method spends on one field.

    Raises:
        ValueError: For an h that isn't finite and above 0, an unknown branch or method, rtol not above 0 and
            below 1, or max_products below 1.

    Example:
        >>> import principalflow as pf
        >>> flow = pf.flows.Principal(h=1.5)
        >>> flow.alpha(1.5).round(4)  # log(0.5)/1.5 and pi/1.5
        Array(-0.4621+2.0944j, dtype=complex128)
        >>> flow.field(pf.functions.quadratic([[1.0]]), [1.0]).round(4)
        Array([-0.4621+2.0944j], dtype=complex128)
    """

    branch: Branch = eqx.field(static=True, kw_only=True, default="continuous")
    method: Literal["auto", "dense", "krylov"] = eqx.field(static=True, kw_only=True, default="auto")
    rtol: float = eqx.field(static=True, kw_only=True, default=1e-8, converter=partial(_checks.tolerance, "rtol"))
    max_products: int = eqx.field(
        static=True, kw_only=True, default=60, converter=partial(_checks.whole, "max_products", least=1)
    )

    is_complex = True

    def __check_init__(self):
        _checks.one_of("branch", self.branch, BRANCHES)
        _checks.one_of("method", self.method, METHODS)

    def alpha(self, z: _checks.Numbers) -> Complex[Array, "..."]:
        r"""Returns $\varphi(z) = \log(1-z)/z$ on the flow's branch; $|1-z|$ is floored at the machine epsilon."""
        return phi(_checks.finite_numbers("z", z), self.branch)

    def start(self, objective: Objective, theta: Vector) -> Vector:
        return theta.astype(jnp.promote_types(theta.dtype, jnp.complex64))

    @property
    def jumps(self) -> str:
        """Where the field may jump, and what to try then."""
        if self.branch == "continuous":
            return super().jumps
        return "the field may jump here, as the principal branch does; try branch='continuous'"

    def evaluate(self, objective: Objective, state: _checks.Numbers) -> Field:
        """Returns the field at `state`, which is theta, with its error estimate and the Hessian products it took.

        Example:
            >>> import principalflow as pf
            >>> result = pf.flows.Principal(h=0.1, method="krylov").evaluate(pf.functions.banana(), [1.3, 1.5])
            >>> int(result.products), bool(result.converged)
            (2, True)
        """
        return _evaluate(self, objective, checked_theta(objective, state, half=False))

    def _is_dense(self, objective: Objective) -> bool:
        return self.method == "dense" or (self.method == "auto" and objective.theta.size <= _DENSE_SIZE)


class PrincipalThirdOrder(Principal):
    r"""The principal flow with the third-order non-principal term (paper, eq. pf_with_non_principal).

    $$\dot\theta = \varphi(hH)\,g - \tfrac{h^2}{12}\, g^T (\nabla^3 E)\, g$$

    Arguments as for `Principal`. `alpha` is the principal part's; the added term vanishes at critical points
    together with its derivative, so `jacobian_eigenvalues` are the principal flow's.

    Example:
        >>> import principalflow as pf
        >>> banana = pf.functions.banana()
        >>> pf.flows.PrincipalThirdOrder(h=0.0006).field(banana, banana.theta).real.round(2)
        Array([-368.79,  136.38], dtype=float64)
    """

    def evaluate(self, objective: Objective, state: _checks.Numbers) -> Field:
        """Returns the field, with the error estimate of its principal part."""
        field = super().evaluate(objective, state)
        return field._replace(vector=field.vector + self.non_principal(objective, state), contractions=1)

    def non_principal(self, objective: Objective, theta: _checks.Numbers) -> Vector:
        r"""Returns the added term alone, $-\frac{h^2}{12}\, g^T (\nabla^3 E)\, g$."""
        gradient = as_objective(objective).gradient(theta)
        return -(self.h**2) / 12 * objective.third(theta, gradient, gradient)


@_loss.needs("loss", _loss.PRODUCTS)
@compiled
def _evaluate(flow: Principal, objective: Objective, theta: Vector) -> Field:
    gradient, product = objective.linearize(theta)
    real = not jnp.iscomplexobj(theta)

    def times(T, v):
        if not real:
            return phi_times(flow.h * T, v, flow.branch)
        values, vectors = jnp.linalg.eigh(T)
        return (vectors * phi(flow.h * values, flow.branch)) @ (vectors.T @ v)

    if flow._is_dense(objective):
        return Field.exact(times(objective.hessian(theta), gradient), theta.size)

    def coefficients(T):
        first = jnp.zeros(T.shape[0], T.dtype).at[0].set(1)
        return times(T, first), jnp.zeros((), T.real.dtype)

    found = krylov(product, gradient, coefficients, flow.rtol, flow.max_products, symmetric=real)
    return Field(found.vector, found.products, found.error, found.converged)
