"""CDAT, the learning rate from the curvature along any optimiser's update, for optax (Roulet et al. 2024)."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, PyTree

from principalflow import _along, _checks, _updates
from principalflow._curvature import Curvature, Measure, checked_curvature, checked_measure

# An update whose cosine to the gradient is above this doesn't do so by its weight decay alone.
_UPHILL = 0.1


class CDATState(NamedTuple):
    """The state of `cdat`; read it with `optax.tree.get(state, "curvature_learning_rate")`.

    Attributes:
        base: The state of the base optimiser.
        count: How many updates were made.
        slope: The measured (or averaged) fall of the loss along the base's update u, -g.u over |u|²; 1 for descent.
        curvature: The measured (or averaged) curvature along it, |u.Hu| over |u|²; for the drift |Hu| over |u|.
        curvature_learning_rate: What the base's last update was multiplied by.
        length: The norm of the base's update when the curvature was measured; of an average, the root mean square.
        nonfinite: How often the gradient or the curvature was not finite, whether it was passed on or skipped.
    """

    base: optax.OptState
    count: ArrayLike  # pyright: ignore[reportIncompatibleMethodOverride]
    slope: Array
    curvature: Array
    curvature_learning_rate: Array
    length: Array
    nonfinite: ArrayLike


def cdat(
    base: optax.GradientTransformation | None = None,
    *,
    scale: float = 2.0,
    power: float = 1.0,
    max_learning_rate: float = 1.0,
    measure: Measure = "directional",
    curvature: Curvature = "hvp",
    every: int = 1,
    average: float | None = 0.9,
    skip_nonfinite: bool = False,
) -> optax.GradientTransformationExtraArgs:
    r"""Returns an optimiser that multiplies another one's updates by a rate from the curvature along them.

    The base must be a whole optimiser, whose updates point down the slope: `optax.adam(1.0)`, not
    `optax.scale_by_adam()`, whose sign `optax.scale(-1)` has to turn.

    A step is $\theta \leftarrow \theta + h u$ with u the base's update and

    $$h = \text{scale} \cdot \frac{\max(-g \cdot u, 0)}{|u^T H u|}$$

    (Roulet et al. 2024). Along u a quadratic falls fastest at a scale of 1, and neither falls nor rises at 2, the edge.
    Numerator and denominator are running averages. For $u = -g$ it is $\text{scale}/|\hat g^T H \hat g|$.

    With `measure="drift"` it is DAL along the base's update: $\|H u\| \|u\|$ takes the place of $|u^T H u|$, which it
    is never below; for $u = -g$ and a scale of 2 that is DAL's $2/\|H \hat g\|$. `docs/dal.md` derives it.

    The rate multiplies all of u, so the base's own should be 1. Weight decay that the base has, as `optax.adamw`, is in
    u too: measured with it, and multiplied by h. Clipping belongs in the base, `optax.chain(clip, optax.adam(1.0))`:
    before `cdat` it would make g, and so the rate, smaller.

    `update` takes these keyword arguments, the first or the second at least, and gives the base all that it is given:

    - `value_fn`: the loss as a function of the parameters. In the same `jax.jit` as the gradient its work is shared,
      but for `every` above 1, `optax.MultiSteps` and the like, which measure inside of a `lax.cond`.
    - `curvature_fn`: the loss on another, larger batch; g and H are then those of this function.
    - `all_params`: all parameters, needed inside `optax.masked`, `optax.partition` and the like, which hide some of
      them. Hidden parameters are held fixed.

    Args:
        base: The optimiser to scale, of rate 1; by default `optax.adam(1.0)`.
        scale: 2 is on the edge, and less is safer. On mini-batches none suits Adam: of our runs some diverged
            at 2 and at 1, and none with `optax.rmsprop(1.0)` as the base, best with `measure="drift"` (`docs/dal.md`).
        power: p, for $h = \text{scale}/c^p$ with c the denominator over the numerator, as DAL-p.
        max_learning_rate: The cap on the rate. With 1 no parameter of Adam's moves by more than about 1 in a step; for
            `optax.sgd(1.0)` 5 is DAL's.
        measure: `"directional"` for $|u^T H u|$, `"drift"` for $\|H u\| \|u\|$, with smaller and safer steps.
        curvature: `"hvp"` or `"finite_difference"`, see `scale_by_dal`.
        every: The rate is computed every this many steps and kept in between, see `scale_by_dal`.
        average: The decay, in [0, 1), of the running averages, corrected for their start as Adam's are; None for none.
            Without them the loss jumps where the base has momentum, whose updates hardly see the sharpest directions.
        skip_nonfinite: Where the gradient or the curvature is not finite, the update is zero and the state, the base's
            included, stays as it was. By default it is passed on. Either way `nonfinite` in the state counts it.

    Returns:
        An `optax.GradientTransformationExtraArgs`, whose state is a `CDATState`. Where the base's update doesn't point
        down the slope the rate is 0, and the base goes on.

    Raises:
        ValueError: For an option out of its range, here; for a base that climbs, in `init`, unless it is compiled; for
            missing or unfit arguments, in `update`.

    Example:
        >>> import jax, jax.numpy as jnp, optax, principalflow as pf
        >>> loss = lambda x: 2.0 * x**2  # its second derivative is 4
        >>> x, tx = jnp.array(3.0), pf.cdat(optax.sgd(1.0), scale=1.0)
        >>> state = tx.init(x)
        >>> updates, state = tx.update(jax.grad(loss)(x), state, x, value_fn=loss)
        >>> print(optax.apply_updates(x, updates), optax.tree.get(state, "curvature_learning_rate"))
        0.0 0.25

    References:
        Roulet, Agarwala, Grill, Swirszcz, Blondel, Pedregosa, *Stepping on the Edge: Curvature Aware Learning Rate
        Tuners*, NeurIPS 2024.
    """
    if not isinstance(base, optax.GradientTransformation | None):
        raise ValueError(f"base must be an optax.GradientTransformation, got {_checks.shown(base)}.")
    proposing = optax.with_extra_args_support(optax.adam(1.0) if base is None else base)
    scale = _along.option(_checks.positive, "scale", scale)
    power = _along.option(_checks.non_negative, "power", power)
    max_learning_rate = _along.option(_checks.positive, "max_learning_rate", max_learning_rate)
    measure = checked_measure(measure)
    curvature = checked_curvature(curvature)
    every = _along.option(lambda name, value: _checks.whole(name, value, 1), "every", every)
    average = None if average is None else _along.option(_checks.fraction, "average", average)
    skip_nonfinite = _checks.flag("skip_nonfinite", skip_nonfinite)

    def init(params: PyTree) -> CDATState:
        _along.check_parameters(params, curvature)
        _refuse_climbing(proposing, params)
        # An array of its own each, so that the state can be donated.
        slope, bend, rate, length = (jnp.zeros((), _updates.wide(params)) for _ in range(4))
        counts = jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32)
        return CDATState(proposing.init(params), counts[0], slope, bend, rate, length, counts[1])

    def update(
        updates: PyTree,
        state: Any,
        params: PyTree | None = None,
        *,
        value_fn: Callable | None = None,
        curvature_fn: Callable | None = None,
        all_params: PyTree | None = None,
        **extra: Any,
    ) -> tuple[PyTree, CDATState]:
        _along.check_state(state, CDATState)
        gradient, params = _along.checked_update(updates, params, all_params)
        if value_fn is None and curvature_fn is None:
            got = f"none, but {sorted(extra)}; a wrapper may have dropped it"
            raise ValueError(f"update needs value_fn=, the loss as a function of the parameters, got {got}.")
        if params is None:
            raise ValueError(_updates.NO_PARAMS)
        extra |= dict(value_fn=value_fn, curvature_fn=curvature_fn, all_params=all_params)
        steps, base_state = proposing.update(gradient, state.base, params, **extra)
        size = _updates.norm(steps).astype(state.length.dtype)
        kept = state.slope, state.curvature, state.length

        def measured() -> tuple[Array, Array, Array]:
            direction = _along.unit(steps, size, params)
            with _along.measured_loss(value_fn, curvature_fn, params, all_params, curvature) as loss:
                own, product = _along.gradient_and_product(loss, params, direction, curvature)
            fall = -_updates.dot(gradient if curvature_fn is None else own, direction)
            slope = jnp.maximum(fall, 0) / jnp.where(size > 0, size, 1)
            bend = jnp.abs(_updates.dot(direction, product)) if measure == "directional" else _updates.norm(product)
            new = slope, bend, size
            if average is not None:
                new = _averaged(new, kept, _along.newest_weight(average, state.count // every))
            return jax.tree.map(lambda x: x.astype(size.dtype), new)

        def is_due() -> Array:
            return (state.count % every == 0) | (state.slope == 0)  # not to rest until the next

        (slope, bend, length), part = _along.held(measured, kept, is_due=is_due, every=every, size=size)
        rate = jnp.where(slope == 0, 0, jnp.minimum(scale / (bend / slope) ** power, max_learning_rate)) * part
        rate = rate.astype(size.dtype)
        after = CDATState(base_state, optax.safe_increment(state.count), slope, bend, rate, length, state.nonfinite)
        steps = _updates.scaled(steps, rate, per_parameter=False)
        return _along.counted(steps, after, state, numbers=(rate, slope, bend), skip=skip_nonfinite)

    return optax.GradientTransformationExtraArgs(init, update)


def _refuse_climbing(base: optax.GradientTransformationExtraArgs, params: PyTree) -> None:
    """Raises if the base's first update clearly points up the slope, by a trial; loops compile all that follows."""
    try:
        params = jax.tree.map(jnp.asarray, params)
        gradient = jax.tree.map(lambda w: jnp.cos(jnp.arange(w.size)).reshape(w.shape).astype(w.dtype), params)
        update, _ = base.update(gradient, base.init(params), params)
    except Exception:
        return  # parameters are shapes alone, or it needs more than a gradient
    rise, most = _updates.dot(gradient, update), _updates.norm(gradient) * _updates.norm(update)
    if not isinstance(rise, Tracer) and rise > _UPHILL * most:
        raise ValueError(
            "base must point down the slope, but its first update points up: is it one of optax's scale_by_..., "
            "which optax.chain(..., optax.scale(-1)) turns round?"
        )


def _averaged(new: tuple, old: tuple, weight: ArrayLike) -> tuple[Array, Array, Array]:
    """Returns the averages of slope and curvature in which each counts by its squared length, and their length.

    That makes slope over curvature the ratio of the averages of -g.u and of u.Hu, without squares that could overflow.
    """
    known = jnp.all(jnp.isfinite(jnp.array(old)))  # what was not finite is forgotten
    weight = jnp.where(known, weight, 1)
    old = tuple(jnp.where(known, x, 0) for x in old)
    length = jnp.hypot(jnp.sqrt(weight) * new[2], jnp.sqrt(1 - weight) * old[2])
    part = jnp.where(length == 0, 1, weight * (new[2] / length) ** 2)
    slope, bend = (part * a + (1 - part) * b for a, b in zip(new[:2], old[:2], strict=True))
    return slope, bend, length
