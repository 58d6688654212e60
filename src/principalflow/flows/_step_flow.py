"""The modified flow of any optimiser, in real numbers and from its updates alone."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from principalflow import _checks
from principalflow.flows._steps import StepsFlow, damped_weights, order_field
from principalflow.objective import Objective, Vector

if TYPE_CHECKING:
    import optax


class OptaxState(NamedTuple):
    """The state of an optimiser from optax as a flow has it.

    Attributes:
        theta: The parameters.
        optimizer: The optimiser's own state, with numbers in place of its counters. Where it came from a run, averages
            of squares, the `nu` of optax, are there as their logarithms, so that they stay above 0.
    """

    theta: Vector
    optimizer: PyTree


class StepFlow(StepsFlow):
    r"""The modified flow of any update: of p of its steps, in real numbers, from the update alone.

    $$\dot s = \frac1p \sum_{k=1}^{n+1} \frac{(-1)^{k+1}}k \Delta^k s, \qquad \Delta = S^p - 1$$

    with S the update of the whole state s: the parameters, or these with velocities, averages and counters. A period p
    of 2 follows directions that flip their sign at every step, as at the edge of stability; see `TwoStep`, which is
    the same for descent.

    Momentum m gives slower directions complex multipliers of the modulus $m^{p/2}$ over p steps. Where that is above
    0.956 at order 2, 0.839 at order 3 and 0.725 at order 4, the series grows along them (as the formulas of backward
    differentiation do, whose mirror image it is). There further terms damp it, so that all directions up to `modulus`
    decay: for 0.9, six terms at order 3 and nine at order 4. They follow directions that grow less well; where an
    oscillation grows by more than the field has within a third, solutions say so.

    Args:
        step: `step(objective, state)` returns the next state. It must be made of JAX's operations, and depend on
            nothing else.
        period: How many steps p the series is of.
        order: The n above: p steps are exact to the power n + 2 of what they change.
        modulus: Multipliers over p steps up to this modulus decay; 0, for an update without momentum, leaves the series
            as it is.
        h: The time that a step takes; by default 1.
        begin: `begin(objective, theta)` returns the state at the start; by default it is theta.
        read: `read(state)` returns theta; by default it is the state, or the first entry of a tuple.

    Raises:
        ValueError: For what is no function, a period below 1, an order that isn't a whole number from 0 to 46, an h
            that isn't finite and above 0, a modulus that isn't in [0, 1), or one too large for the order.

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
    modulus: float = eqx.field(
        static=True, kw_only=True, default=0.0, converter=lambda m: _checks.fraction("modulus", m)
    )
    h: float = eqx.field(kw_only=True, default=1.0, converter=lambda h: _checks.positive("h", h))
    begin: Callable | None = eqx.field(static=True, kw_only=True, default=None)
    read: Callable | None = eqx.field(static=True, kw_only=True, default=None)

    remedy = "an oscillation grows faster than the series of steps can follow: compare with another order"
    jumps = (
        "the field may jump here, as it does where averages of squares begin at 0: give from_optax the state of a run"
    )

    def __check_init__(self):
        _checks.function("step", self.step, "objective", "state")
        if self.begin is not None:
            _checks.function("begin", self.begin, "objective", "theta")
        if self.read is not None:
            _checks.function("read", self.read, "state")
        if damped_weights(self.order, self.modulus) is None:
            raise ValueError(
                f"order must be lower for a modulus of {self.modulus:g}, got {self.order}: no field of that order was "
                "found that lets all directions decay. Take a lower order or, with less momentum, a smaller modulus."
            )

    @classmethod
    def from_optax(
        cls,
        tx: "optax.GradientTransformation",
        *,
        state: PyTree = None,
        period: int = 2,
        order: int = 2,
        modulus: float = 0.9,
    ) -> "StepFlow":
        r"""Returns the modified flow of an optax optimiser on all samples; a step takes a time of 1.

        Its state is an `OptaxState`. Counters, by which averages are corrected for their start and schedules go on, are
        functions of time. So it is heavy ball's with `optax.sgd(h, momentum=m)`, Nesterov's with `nesterov=True`,
        RMSProp's with `optax.rmsprop(h)` and Adam's with `optax.adam(h)`.

        Args:
            tx: The optimiser. It must not depend on random numbers, nor do something every so many steps.
            state: Its state at the start, to follow a run from where it is; by default `tx.init(params)`. Follow Adam,
                RMSProp and the like from a state: their averages of squares begin at 0, where paths needn't be smooth.
            period: How many steps the series is of.
            order: That of the flow.
            modulus: As for `StepFlow`: at least the momentum to the power of period/2; by default that of two steps
                with momentum 0.9.

        Raises:
            ValueError: For what is no optimiser of optax, or, at the start, one whose counters can't be numbers, or a
                state that isn't of this optimiser and these parameters.

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
        import optax  # here, since importing it takes long

        own = optax.with_extra_args_support(tx)
        # At the start of a run averages of squares are 0, and their logarithm isn't smooth.
        to, back = (_same, _same) if state is None else (_log, jnp.exp)

        def begin(objective: Objective, theta: Vector) -> OptaxState:
            params = objective.unravel(theta)
            given = own.init(params) if state is None else _checked_state(state, jax.eval_shape(own.init, params))
            as_numbers = jax.tree.map(lambda leaf: _as_number(leaf, theta.dtype), given)
            return OptaxState(theta, _of_squares(to, as_numbers))

        def step(objective: Objective, state: OptaxState) -> OptaxState:
            params, optimizer = objective.unravel(state.theta), _of_squares(back, state.optimizer)
            value, gradient = objective.value_and_gradient(state.theta)
            along = dict(value=value, grad=objective.unravel(gradient), value_fn=objective.value)
            updates, following = own.update(objective.unravel(gradient), optimizer, params, **along)
            theta = state.theta + objective.flat("updates", updates)
            following = jax.tree.map(lambda new, old: new.astype(old.dtype), following, optimizer)
            return OptaxState(theta, _of_squares(to, following))

        return cls(step=step, period=period, order=order, modulus=modulus, begin=begin)

    @property
    def step_time(self) -> Any:
        """The time that a step takes."""
        return self.h

    @property
    def weights(self) -> tuple[float, ...]:
        """Those of the series, and of the terms that damp it."""
        return cast(tuple, damped_weights(self.order, self.modulus))

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


def _of_squares(change: Callable[[Array], Array], state: PyTree) -> PyTree:
    """Returns an optimiser's state with its averages of squares changed; parameters may have a `nu` of their own."""

    def averages(node: Any) -> bool:
        return type(node).__module__.split(".")[0] == "optax" and "nu" in getattr(node, "_fields", ())

    def changed(node: Any) -> Any:
        return node._replace(nu=jax.tree.map(change, node.nu)) if averages(node) else node

    return jax.tree.map(changed, state, is_leaf=averages)


def _checked_state(state: PyTree, known: PyTree) -> PyTree:
    """Returns an optimiser's state if it is as the optimiser makes it, or raises."""
    if jax.tree.structure(state) != jax.tree.structure(known):
        raise ValueError(f"state must be one of tx, as tx.init(params) returns it, got {_checks.shown(state)}.")
    for given, own in zip(jax.tree.leaves(state), jax.tree.leaves(known), strict=True):
        if jnp.shape(given) != own.shape:
            raise ValueError(
                f"state must be one of tx for these parameters: it has an array of shape {jnp.shape(given)} where "
                f"tx.init(params) has {own.shape}."
            )
    return state


def _same(x: Array) -> Array:
    return x


def _log(x: Array) -> Array:
    """Returns the logarithm; that of 0, as of a weight that no sample reaches, is finite."""
    return jnp.log(jnp.maximum(x, jnp.finfo(x.dtype).tiny))


def _as_number(leaf: Any, dtype: Any) -> Array:
    """Returns an entry of an optimiser's state as a number that a flow can change."""
    array = jnp.asarray(leaf)
    if jnp.issubdtype(array.dtype, jnp.integer):
        return array.astype(dtype)
    if not jnp.issubdtype(array.dtype, jnp.floating):
        raise ValueError(f"tx must have a state of numbers, but it has {array.dtype}: no flow can follow that.")
    return array
