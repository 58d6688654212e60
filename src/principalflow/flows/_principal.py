"""The principal flow, in complex space, for small problems and at network scale."""

from functools import partial
from typing import Literal

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Complex

from principalflow import _checks, _loss
from principalflow._compiled import compiled
from principalflow.flows import _tracked
from principalflow.flows._flow import Field, RateFlow
from principalflow.flows._logarithm import BRANCHES, Branch, phi, phi_times
from principalflow.flows._tracked import TrackedState
from principalflow.objective import Objective, Vector, as_objective, checked_theta
from principalflow.spectrum import krylov

TRACKED = "tracked"
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
            They agree at real theta. `"tracked"` remembers the arguments of $1-h\lambda$ along the path, so that there
            is no cut where eigenvalues of $1/h$ are passed; see below.
        method: `"dense"` takes the matrix function of the whole Hessian; `"krylov"` projects on the
            Krylov space of (H, g), by Lanczos at real and Arnoldi at complex theta; `"auto"` chooses by size.
        rtol: The Krylov method's relative tolerance.
        max_products: The most Hessian products that the Krylov method spends on one field.
        k: How many eigenvalues `"tracked"` remembers, those of the largest real part, at most 10; others are on the
            continuous branch. It takes no further products, but a contraction of third derivatives for each.

    With `branch="tracked"` the state is a `TrackedState`: theta, and for k eigenvalues $h\lambda$ and the argument of
    $1-h\lambda$, which goes on from where it was, whatever cut it meets. One that gets past $3\pi/2$ is taken back by a
    turn, within a fraction of h. At a real start with more than one eigenvalue above 1/h some of them may have
    $\log|1-z| - i\pi$ in place of $+i\pi$ (the largest never): the conjugate sheet, towards which they move.

    Raises:
        ValueError: For an h that isn't finite and above 0, an unknown branch or method, rtol not above 0 and
            below 1, k not from 1 to 10, or max_products below 1, on the tracked branch below k.

    Example:
        >>> import principalflow as pf
        >>> flow = pf.flows.Principal(h=1.5)
        >>> flow.alpha(1.5).round(4)  # log(0.5)/1.5 and pi/1.5
        Array(-0.4621+2.0944j, dtype=complex128)
        >>> flow.field(pf.functions.quadratic([[1.0]]), [1.0]).round(4)
        Array([-0.4621+2.0944j], dtype=complex128)
        >>> flow, bowl = pf.flows.Principal(h=1.5, branch="tracked"), pf.functions.quadratic([[1.0]])
        >>> pf.integrate(flow, bowl, [1.0], time=3.0).states[-1].arguments.round(4)  # of 1 - 1.5, all the way
        Array([3.1416], dtype=float64)
    """

    branch: Branch | Literal["tracked"] = eqx.field(static=True, kw_only=True, default="continuous")
    method: Literal["auto", "dense", "krylov"] = eqx.field(static=True, kw_only=True, default="auto")
    rtol: float = eqx.field(static=True, kw_only=True, default=1e-8, converter=partial(_checks.tolerance, "rtol"))
    max_products: int = eqx.field(
        static=True, kw_only=True, default=60, converter=partial(_checks.whole, "max_products", least=1)
    )
    k: int = eqx.field(
        static=True,
        kw_only=True,
        default=4,
        converter=partial(_checks.whole, "k", least=1, most=_tracked.MOST_TRACKED),
    )

    is_complex = True

    def __check_init__(self):
        _checks.one_of("branch", self.branch, (*BRANCHES, TRACKED))
        _checks.one_of("method", self.method, METHODS)
        if self.branch == TRACKED:
            _checks.whole("max_products", self.max_products, least=self.k)

    def alpha(self, z: _checks.Numbers) -> Complex[Array, "..."]:
        r"""Returns $\varphi(z) = \log(1-z)/z$ on the flow's branch; $|1-z|$ is floored at the machine epsilon."""
        return phi(_checks.finite_numbers("z", z), self.cut)

    @property
    def cut(self) -> Branch:
        """Which branch is taken where nothing is remembered."""
        return "principal" if self.branch == "principal" else "continuous"

    def start(self, objective: Objective, theta: Vector) -> Vector | TrackedState:
        """Returns the state at the beginning: theta, with `branch="tracked"` a `TrackedState`."""
        if self.branch == TRACKED:
            return _tracked.start(self, objective, theta)
        return theta.astype(jnp.promote_types(theta.dtype, jnp.complex64))

    @property
    def jumps(self) -> str:
        """Where the field may jump, and what to try then."""
        if self.branch != "principal":
            return super().jumps
        return "the field may jump here, as the principal branch does; try branch='continuous'"

    def parameters(self, state: Vector | TrackedState) -> Vector:
        """Returns theta."""
        return state.theta if isinstance(state, TrackedState) else state

    def evaluate(self, objective: Objective, state: _checks.Numbers | TrackedState) -> Field:
        """Returns the field at `state`, which is theta, with its error estimate and the Hessian products it took.

        With `branch="tracked"` the state is a `TrackedState`, and so is the field; at parameters alone it is the field
        of a start there.

        Example:
            >>> import principalflow as pf
            >>> result = pf.flows.Principal(h=0.1, method="krylov").evaluate(pf.functions.banana(), [1.3, 1.5])
            >>> int(result.products), bool(result.converged)
            (2, True)
        """
        if self.branch == TRACKED and isinstance(state, TrackedState):
            return _tracked.evaluate(self, objective, state)
        theta = checked_theta(objective, state, half=False)
        if self.branch != TRACKED:
            return _evaluate(self, objective, theta)
        field = _tracked.evaluate(self, objective, self.start(objective, theta))
        return field._replace(vector=field.vector.theta)

    def is_dense(self, objective: Objective) -> bool:
        """Whether the whole Hessian is taken."""
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

    def evaluate(self, objective: Objective, state: _checks.Numbers | TrackedState) -> Field:
        """Returns the field, with the error estimate of its principal part."""
        field = super().evaluate(objective, state)
        added = self.non_principal(objective, state.theta if isinstance(state, TrackedState) else state)
        if isinstance(field.vector, TrackedState):
            vector = field.vector._replace(theta=field.vector.theta + added)
        else:
            vector = field.vector + added
        return field._replace(vector=vector, contractions=field.contractions + 1)

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
            return phi_times(flow.h * T, v, flow.cut)
        values, vectors = jnp.linalg.eigh(T)
        return (vectors * phi(flow.h * values, flow.cut)) @ (vectors.T @ v)

    if flow.is_dense(objective):
        return Field.exact(times(objective.hessian(theta), gradient), theta.size)

    def coefficients(T):
        first = jnp.zeros(T.shape[0], T.dtype).at[0].set(1)
        return times(T, first), jnp.zeros((), T.real.dtype)

    found = krylov(product, gradient, coefficients, flow.rtol, flow.max_products, symmetric=real)
    return Field(found.vector, found.products, found.error, found.converged)
