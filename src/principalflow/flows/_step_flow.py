"""The modified flow of any optimiser, in real numbers and from its updates alone."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, PyTree

from principalflow import _checks
from principalflow.flows._steps import StepsFlow, order_field
from principalflow.objective import Objective, Vector


class OptaxState(NamedTuple):
    """The state of an optimiser from optax as a flow has it.

    Attributes:
        theta: The parameters.
        optimizer: The optimiser's own state, with numbers in place of its counters.
    """

    theta: Vector
    optimizer: PyTree


class StepFlow(StepsFlow):
    r"""The modified flow of any update: of p of its steps, in real numbers, from the update alone.

    $$\dot s = \frac1p \sum_{k=1}^{n+1} \frac{(-1)^{k+1}}k \Delta^k s, \qquad \Delta = S^p - 1$$

    with S the update of the whole state s: the parameters, or these with velocities, averages and counters. A period p
    of 2 follows directions that flip their sign at every step, as at the edge of stability; see `TwoStep`, which is
    the same for descent.

    Momentum gives slower directions complex multipliers, whose modulus is $\sqrt b$ for momentum b. A series up to
    order 1 keeps these stable at any period, one of order 2 up to a modulus of 0.956 for p steps, of order 3 up to
    0.840, of order 4 up to 0.725 (as the formulas of backward differentiation, of which this is the mirror image).
    With momentum 0.9 on every second step the modulus is 0.9.

    Args:
        step: `step(objective, state)` returns the next state. It must be made of JAX's operations, and depend on
            nothing else.
        period: How many steps p the series is of.
        order: The n above: p steps are exact to the power n + 2 of what they change.
        h: The time that a step takes; by default 1.
        begin: `begin(objective, theta)` returns the state at the start; by default it is theta.
        read: `read(state)` returns theta; by default it is the state, or the first entry of a tuple.

    Raises:
        ValueError: For what is no function, a period below 1, an order that isn't a whole number from 0 to 46, or an h
            that isn't finite and above 0.

    Example:
        >>> import principalflow as pf
        >>> bowl = pf.functions.quadratic([[2.0]])
        >>> flow = pf.flows.StepFlow(lambda objective, x: x - 0.95 * objective.gradient(x), order=3)
        >>> print(pf.integrate(flow, bowl, [1.0], time=20).theta.round(3))
        [0.122]
    """

    step: Callable = eqx.field(static=True)
    period: int = eqx.field(
        static=True, kw_only=True, default=2, converter=lambda p: _checks.whole("period", p, least=1)
    )
    order: int = order_field(kw_only=True, default=2)
    h: float = eqx.field(kw_only=True, default=1.0, converter=lambda h: _checks.positive("h", h))
    begin: Callable | None = eqx.field(static=True, kw_only=True, default=None)
    read: Callable | None = eqx.field(static=True, kw_only=True, default=None)

    remedy = "the series of steps diverges, or rounding is all that is left: take a lower order, or double precision"

    def __check_init__(self):
        _checks.function("step", self.step, "objective", "state")
        if self.begin is not None:
            _checks.function("begin", self.begin, "objective", "theta")
        if self.read is not None:
            _checks.function("read", self.read, "state")

    @classmethod
    def from_optax(
        cls,
        tx: optax.GradientTransformation,
        *,
        state: PyTree = None,
        period: int = 2,
        order: int = 2,
    ) -> "StepFlow":
        r"""Returns the modified flow of an optax optimiser on all samples; a step takes a time of 1.

        Its state is an `OptaxState`. Counters, by which averages are corrected for their start and schedules go on, are
        functions of time.

        Args:
            tx: The optimiser. It must not depend on random numbers, nor do something every so many steps.
            state: Its state at the start, to follow a run from where it is; by default `tx.init(params)`.
            period: How many steps the series is of.
            order: That of the flow.

        Raises:
            ValueError: For what is no optimiser of optax, or, at the start, one whose counters can't be numbers.

        Example:
            >>> import optax
            >>> import principalflow as pf
            >>> bowl = pf.functions.quadratic([[2.0]])
            >>> flow = pf.flows.StepFlow.from_optax(optax.sgd(0.01, momentum=0.5))
            >>> solution = pf.integrate(flow, bowl, [1.0], time=20)
            >>> path = pf.descend(bowl, [1.0], 0.01, 20, momentum=0.5)
            >>> print(solution.theta.round(4), path.thetas[-1].round(4))
            [0.4468] [0.4468]
        """
        if not all(callable(getattr(tx, name, None)) for name in ("init", "update")):
            raise ValueError(f"tx must be an optax.GradientTransformation, got {_checks.shown(tx)}.")
        own = optax.with_extra_args_support(tx)

        def begin(objective: Objective, theta: Vector) -> OptaxState:
            params = objective.unravel(theta)
            given = own.init(params) if state is None else state
            as_numbers = jax.tree.map(lambda leaf: _as_number(leaf, theta.dtype), given)
            return OptaxState(theta, as_numbers)

        def step(objective: Objective, state: OptaxState) -> OptaxState:
            params = objective.unravel(state.theta)
            value, gradient = objective.value_and_gradient(state.theta)
            along = dict(value=value, grad=objective.unravel(gradient), value_fn=objective.value)
            updates, following = own.update(objective.unravel(gradient), state.optimizer, params, **along)
            theta = state.theta + objective.flat("updates", updates)
            return OptaxState(theta, jax.tree.map(lambda new, old: new.astype(old.dtype), following, state.optimizer))

        return cls(step=step, period=period, order=order, begin=begin)

    @property
    def step_time(self) -> Any:
        """The time that a step takes."""
        return self.h

    def start(self, objective: Objective, theta: Vector) -> PyTree:
        """Returns the state at the start."""
        return theta if self.begin is None else self.begin(objective, theta)

    def parameters(self, state: PyTree) -> Vector:
        """Returns the modelled parameters of a state."""
        if self.read is not None:
            return self.read(state)
        return state[0] if isinstance(state, tuple) else state

    def increment(self, objective: Objective, state: PyTree) -> PyTree:
        """Returns what a step adds to a state."""
        return jax.tree.map(jnp.subtract, self.step(objective, state), state)

    def _checked(self, objective: Objective, state: PyTree) -> PyTree:
        return state


def _as_number(leaf: Any, dtype: Any) -> Array:
    """Returns an entry of an optimiser's state as a number that a flow can change."""
    array = jnp.asarray(leaf)
    if jnp.issubdtype(array.dtype, jnp.integer):
        return array.astype(dtype)
    if not jnp.issubdtype(array.dtype, jnp.floating):
        raise ValueError(f"tx must have a state of numbers, but it has {array.dtype}: no flow can follow that.")
    return array
