"""DAL, the drift-adjusted learning rate, as optax transformations (paper, sections 6.2, 6.3 and 7)."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, ArrayLike, PyTree

from principalflow import _along, _checks, _updates
from principalflow._curvature import Curvature, checked_curvature


class ScaleByDALState(NamedTuple):
    """What `scale_by_dal` remembers; read it with `optax.tree.get(state, "drift_learning_rate")`.

    Attributes:
        count: How many updates were made.
        curvature: The measured (or averaged) curvature along the step; per parameter, a tree like the parameters.
        drift_learning_rate: The learning rate of the last update, in the same form.
        length: The norm of the updates when the curvature was measured.
    """

    count: ArrayLike  # pyright: ignore[reportIncompatibleMethodOverride]
    curvature: Array | PyTree
    drift_learning_rate: Array | PyTree
    length: Array


class DALState(NamedTuple):
    """The state of `dal`.

    Attributes:
        scale: The state of `scale_by_dal`.
        momentum: The velocity, if there is one.
        nonfinite: How often the gradient or the curvature was not finite, whether it was passed on or skipped.
    """

    scale: ScaleByDALState
    momentum: optax.OptState
    nonfinite: ArrayLike


def dal(
    *,
    power: float = 1.0,
    max_learning_rate: float = 5.0,
    factor: float = 2.0,
    momentum: float | None = None,
    per_parameter: bool = False,
    curvature: Curvature = "hvp",
    every: int = 1,
    average: float | None = None,
    weight_decay: float | None = None,
    skip_nonfinite: bool = False,
) -> optax.GradientTransformationExtraArgs:
    r"""Returns gradient descent with the drift-adjusted learning rate, an optimiser without a rate to choose.

    A step is $\theta \leftarrow \theta - h(\theta)\, g$ with $h = \min(2/\|H \hat g\|^p, 5)$ and $\hat g = g/\|g\|$
    (paper, sections 6.2 and 6.3). With momentum m it is $v \leftarrow m v - h(\theta)\, g$,
    $\theta \leftarrow \theta + v$ (section 7; the factor printed there is 1/2, erratum 10: `factor=0.5`).

    `update` takes, besides gradients, state and parameters, what `scale_by_dal` needs: `value_fn` or `hvp`.

    Args:
        power: p. The larger, the smaller and safer the steps where the curvature is above 1.
        max_learning_rate: The cap on the rate, 5 in the paper (appendix C).
        factor: The rate at curvature 1, 2 in the paper.
        momentum: m in [0, 1), or None for no momentum.
        per_parameter: A rate for each parameter, see `scale_by_dal`.
        curvature: `"hvp"` or `"finite_difference"`, see `scale_by_dal`.
        every: The curvature is measured every this many steps and kept in between, see `scale_by_dal`.
        average: The decay, in [0, 1), of a running average of the curvature, see `scale_by_dal`; None for none.
        weight_decay: Decoupled: subtracts `weight_decay` times the rate times the parameters.
        skip_nonfinite: Where the gradient or the curvature is not finite, the update is zero and the state stays as it
            was. By default it is passed on. Either way `nonfinite` in the state counts it.

    Returns:
        An `optax.GradientTransformationExtraArgs`, whose state is a `DALState`.

    Raises:
        ValueError: For an option out of its range, here; for missing or contradictory arguments, in `update`.

    Example:
        >>> import jax, jax.numpy as jnp, optax, principalflow as pf
        >>> loss = lambda x: 2.0 * x @ x  # its Hessian is 4 times the identity
        >>> x, tx = jnp.array([3.0, 4.0]), pf.dal(factor=1.0)
        >>> state = tx.init(x)
        >>> updates, state = tx.update(jax.grad(loss)(x), state, x, value_fn=loss)
        >>> print(optax.apply_updates(x, updates), optax.tree.get(state, "drift_learning_rate"))
        [0. 0.] 0.25

    References:
        Rosca, Wu, Qin, Dherin, *On a continuous time model of gradient descent dynamics and instability in deep
        learning*, TMLR 2023.
    """
    scaling: Any = scale_by_dal(
        power=power,
        max_learning_rate=max_learning_rate,
        factor=factor,
        per_parameter=per_parameter,
        curvature=curvature,
        every=every,
        average=average,
    )
    momentum = None if momentum is None else _along.option(_checks.fraction, "momentum", momentum)
    weight_decay = None if weight_decay is None else _along.option(_checks.non_negative, "weight_decay", weight_decay)
    skip_nonfinite = _checks.flag("skip_nonfinite", skip_nonfinite)
    inertia = optax.identity() if momentum is None else optax.trace(momentum)

    def init(params: PyTree) -> DALState:
        return DALState(scaling.init(params), inertia.init(params), jnp.zeros((), jnp.int32))

    def update(updates: PyTree, state: Any, params: PyTree | None = None, **extra: Any) -> tuple[PyTree, DALState]:
        _along.check_state(state, DALState)
        steps, scale = scaling.update(updates, state.scale, params, **extra)
        steps, velocity = inertia.update(steps, state.momentum, params)
        if weight_decay is not None:
            if params is None:
                raise ValueError(_updates.NO_PARAMS)
            decay = _updates.scaled(params, scale.drift_learning_rate, per_parameter)
            steps = jax.tree.map(lambda step, d: (step + weight_decay * d).astype(step.dtype), steps, decay)
        steps = jax.tree.map(jnp.negative, steps)
        after = DALState(scale, velocity, state.nonfinite)
        numbers = scale.drift_learning_rate, scale.curvature
        return _along.counted(steps, after, state, numbers=numbers, skip=skip_nonfinite)

    return optax.GradientTransformationExtraArgs(init, update)


def scale_by_dal(
    *,
    power: float = 1.0,
    max_learning_rate: float = 5.0,
    factor: float = 2.0,
    per_parameter: bool = False,
    curvature: Curvature = "hvp",
    every: int = 1,
    average: float | None = None,
) -> optax.GradientTransformationExtraArgs:
    r"""Returns the transformation that multiplies updates by the drift-adjusted learning rate.

    The rate is $\min(\text{factor} / c^p, \text{max_learning_rate})$. The curvature c is $\|H \hat u\|$ with
    $\hat u = u/\|u\|$ the direction of the updates u, which are the gradient unless another transformation came before
    (paper, sections 6.2 and 6.3). Per parameter it is $|(H u)_i|$, not normalised (appendix D), and there the absolute
    value and the cap make every sign and zero safe.

    `update` takes these keyword arguments, exactly one of the first two, and ignores unknown ones:

    - `value_fn`: the loss as a function of the parameters. In the same `jax.jit` as the gradient its work is shared,
      but for `every` above 1, `optax.MultiSteps` and the like, which measure inside of a `lax.cond`.
    - `hvp`: $H u$, if it is known already, a tree like the updates: of the very updates that come here, so only where
      no clipping, accumulation or mask comes before.
    - `curvature_fn`: the loss on another, larger batch; curvature and its direction are then those of this function
      (suggested in appendix C). It takes the place of `value_fn`, which may still be given.
    - `all_params`: all parameters, needed with `value_fn` inside `optax.masked`, `optax.partition` and the like, which
      hide some of them. Hidden parameters are held fixed.

    Args:
        power: p.
        max_learning_rate: The cap.
        factor: The rate at curvature 1.
        per_parameter: A rate for each parameter instead of one for all.
        curvature: `"hvp"` for the exact product, a jvp of the gradient; `"finite_difference"` for
            $(\nabla E(\theta + \epsilon u) - \nabla E(\theta))/\epsilon$ with $\epsilon = 0.01/\|u\|$ (appendix C).
        every: The curvature is measured every this many updates and kept in between. So that a kept rate can't blow up,
            updates that are longer than the measured ones are scaled down to their length.
        average: The decay, in [0, 1), of a running average of the measured curvature, for noisy batches; None for none.
            The average is corrected for its start, as Adam's are, and never below the newest measurement: it falls
            slowly and rises at once.

    Returns:
        An `optax.GradientTransformationExtraArgs`, whose state is a `ScaleByDALState`. Where the updates are
        not finite or the curvature is NaN, the rate and the result are NaN; `dal` counts such steps, and can skip them.

    Raises:
        ValueError: As for `dal`.

    Example:
        >>> import jax, jax.numpy as jnp, optax, principalflow as pf
        >>> loss = lambda x: 2.0 * x @ x
        >>> x = jnp.array([3.0, 4.0])
        >>> tx = optax.chain(optax.clip_by_global_norm(1.0), pf.scale_by_dal(power=0.5), optax.scale(-1))
        >>> state = tx.init(x)
        >>> updates, state = tx.update(jax.grad(loss)(x), state, x, value_fn=loss)
        >>> print(optax.tree.get(state, "curvature"), optax.tree.get(state, "drift_learning_rate"))
        4.0 1.0
    """
    power = _along.option(_checks.non_negative, "power", power)
    max_learning_rate = _along.option(_checks.positive, "max_learning_rate", max_learning_rate)
    factor = _along.option(_checks.positive, "factor", factor)
    per_parameter = _checks.flag("per_parameter", per_parameter)
    curvature = checked_curvature(curvature)
    every = _along.option(lambda name, value: _checks.whole(name, value, 1), "every", every)
    average = None if average is None else _along.option(_checks.fraction, "average", average)

    def init(params: PyTree) -> ScaleByDALState:
        _along.check_parameters(params, curvature)
        dtype = _updates.wide(params)

        def zero() -> Array | PyTree:  # an array of its own each time, so that the state can be donated
            return jax.tree.map(lambda w: jnp.zeros_like(w, dtype), params) if per_parameter else jnp.zeros((), dtype)

        return ScaleByDALState(jnp.zeros((), jnp.int32), zero(), zero(), jnp.zeros((), dtype))

    def update(
        updates: PyTree,
        state: Any,
        params: PyTree | None = None,
        *,
        value_fn: Callable | None = None,
        hvp: PyTree | None = None,
        curvature_fn: Callable | None = None,
        all_params: PyTree | None = None,
        **unused: Any,
    ) -> tuple[PyTree, ScaleByDALState]:
        _along.check_state(state, ScaleByDALState)
        updates, params = _along.checked_update(updates, params, all_params)
        if per_parameter:
            _updates.matching("updates", updates, state.curvature, "the parameters")
        if (value_fn is None and curvature_fn is None) == (hvp is None):
            got = f"neither, but {sorted(unused)}; a wrapper may have dropped it" if hvp is None else "both"
            raise ValueError(
                "update needs either value_fn=, the loss as a function of the parameters, or hvp=, its Hessian times "
                f"the updates, got {got}."
            )
        size = _updates.norm(updates).astype(state.length.dtype)

        def measure() -> tuple[Array | PyTree, Array]:
            along, length = updates, size
            if hvp is not None:
                product = _updates.over(_updates.matching("hvp", hvp, updates), length)
            else:
                with _along.measured_loss(value_fn, curvature_fn, params, all_params, curvature) as loss:
                    if curvature_fn is not None:
                        along = jax.grad(loss)(params)
                        length = _updates.norm(along)
                    direction = _along.unit(along, length, params)
                    _, product = _along.gradient_and_product(loss, params, direction, curvature)
            measured = jax.tree.map(lambda p: jnp.abs(p) * length, product) if per_parameter else _updates.norm(product)
            if average is not None:
                weight = _along.newest_weight(average, state.count // every)

                def smoothed(new: Array, old: Array) -> Array:
                    # Never below the newest: an average that lags when the curvature rises makes DAL diverge.
                    return jnp.where(jnp.isfinite(old), jnp.maximum(new, weight * new + (1 - weight) * old), new)

                measured = jax.tree.map(smoothed, measured, state.curvature)
            return jax.tree.map(lambda new, old: new.astype(old.dtype), measured, state.curvature), size

        def is_due() -> Array:
            return (state.count % every == 0) | (state.length == 0)  # a gradient of zero has no direction to measure

        kept = state.curvature, state.length
        (c, length), part = _along.held(measure, kept, is_due=is_due, every=every, size=size)
        rate = jax.tree.map(lambda c: (jnp.minimum(factor / c**power, max_learning_rate) * part).astype(c.dtype), c)
        state = ScaleByDALState(optax.safe_increment(state.count), c, rate, length)
        return _updates.scaled(updates, rate, per_parameter), state

    return optax.GradientTransformationExtraArgs(init, update)
