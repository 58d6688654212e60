"""The curvature that steps on batches see, and how much of it they bear."""

from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int

from principalflow import _checks, _loss
from principalflow._compiled import compiled
from principalflow.objective import Objective, Vector, checked_theta
from principalflow.optimizers import Edge


@dataclass(frozen=True)
class BatchSharpness:
    """The mean curvature of batches along their own gradients.

    Attributes:
        mean: The mean over the batches that were drawn; NaN where the gradient is zero on every one of them.
        standard_error: Of the mean, by how much the batches differ; 0 where the batch is all samples, and NaN where
            fewer than two have a gradient.
        batches: How many batches it is the mean over: those that were drawn, but for those with a gradient of zero.
    """

    mean: float
    standard_error: float
    batches: int


class BatchThresholds(NamedTuple):
    """The batch sharpness up to which descent with momentum is stable, for two limits of the batch's size.

    Attributes:
        small: For batches so small that their noise decides.
        large: For batches so large that they are like all samples.
    """

    small: float
    large: float


def batch_sharpness(
    objective: Objective, theta: _checks.Numbers, batch_size: int, *, batches: int = 100, seed: int = 0
) -> BatchSharpness:
    r"""Returns the mean over random batches B of $g_B^T H_B g_B / \|g_B\|^2$, with its standard error.

    With batches it is this that training brings up to $2/h$, while $\lambda_0$ of all samples stays below (Andreyev and
    Beneventano, arXiv 2412.20553). Each batch is drawn without regard to the others, of samples that differ.

    Args:
        objective: The loss, a mean over samples.
        theta: Where; real.
        batch_size: Samples in a batch. All of them make one batch, and its curvature along the gradient is exact.
        batches: How many batches to draw; each costs a gradient and a Hessian product on its samples.
        seed: Of the batches.

    Returns:
        The `BatchSharpness`: `mean`, `standard_error` and `batches`.

    Raises:
        ValueError: For an objective without data, a batch_size that isn't in 1 to the number of samples, batches below
            2 or beyond memory, a bad theta or seed, or derivatives that aren't finite.

    Example:
        >>> import jax.numpy as jnp
        >>> import principalflow as pf
        >>> loss = lambda theta, curvatures: jnp.mean(curvatures) * theta[0] ** 2 / 2
        >>> objective = pf.Objective(loss, jnp.ones(1), data=jnp.array([1.0, 3.0]))
        >>> pf.stability.batch_sharpness(objective, [1.0], batch_size=2)
        BatchSharpness(mean=2.0, standard_error=0.0, batches=1)
        >>> found = pf.stability.batch_sharpness(objective, [1.0], batch_size=1, batches=400)
        >>> abs(found.mean - 2) < 3 * found.standard_error, round(found.standard_error, 2)
        (True, 0.05)
    """
    theta = checked_theta(objective, theta, half=False)
    if jnp.iscomplexobj(theta):
        raise ValueError(f"theta must be real, got {theta.dtype}.")
    samples = objective.samples
    if samples is None:
        raise ValueError("objective must have data of which batches can be drawn: pf.Objective(loss, params, data).")
    batch_size = _checks.whole("batch_size", batch_size, least=1, most=samples)
    batches = _checks.whole("batches", batches, least=2)
    random = np.random.default_rng(_checks.whole("seed", seed, least=0))
    whole = batch_size == samples
    _checks.fits("batches", 8 * batches * batch_size, f"the positions of {batches} batches of {batch_size} samples")
    drawn = [random.choice(samples, batch_size, replace=False) for _ in range(1 if whole else batches)]
    along, squares = np.asarray(_along_gradients(objective, theta, jnp.asarray(np.stack(drawn), jnp.int32)))
    if not np.all(np.isfinite([along, squares])):
        raise _checks.NonFiniteError("the gradient and the Hessian at theta must be finite on all batches.")
    found = along[squares > 0] / squares[squares > 0]
    error = 0.0 if whole else float(np.std(found, ddof=1) / np.sqrt(len(found))) if len(found) > 1 else np.nan
    return BatchSharpness(float(np.mean(found)) if len(found) else np.nan, error, len(found))


def batch_thresholds(h: float, *, momentum: float = 0.0) -> BatchThresholds:
    r"""Returns the batch sharpness at which descent with momentum m on batches becomes unstable: $2(1 \mp m)/h$.

    It is $2(1-m)/h$ on small batches, whose noise the velocity adds up, and $2(1+m)/h$ on large ones, as on all samples
    (arXiv 2604.14108). Which of the two a batch is near to isn't known beforehand. Without momentum both are $2/h$.

    Args:
        h: The learning rate.
        momentum: The factor m of the velocity.

    Returns:
        `BatchThresholds`: `small` and `large`.

    Raises:
        ValueError: For an h that is no learning rate, or a momentum that isn't in [0, 1).

    Example:
        >>> import principalflow as pf
        >>> pf.stability.batch_thresholds(0.25, momentum=0.5)
        BatchThresholds(small=4.0, large=12.0)
    """
    part = Edge.of_descent(_checks.rate("h", h), momentum=_checks.fraction("momentum", momentum)).part
    return BatchThresholds(part.small_batch_threshold, part.threshold)


@_loss.needs("loss", _loss.PRODUCTS)
@compiled
def _along_gradients(objective: Objective, theta: Vector, batches: Int[Array, "n b"]) -> Float[Array, "2 n"]:
    """Returns g.Hg and g.g of each batch, with g scaled to a largest entry of 1: its square may be out of range."""

    def of_batch(index: Int[Array, " b"]) -> Float[Array, "2"]:
        gradient, product = objective.batch(index).linearize(theta)
        largest = jnp.max(jnp.abs(gradient))
        along = gradient / jnp.where(largest > 0, largest, 1)
        return jnp.stack([along @ product(along), along @ along])

    return lax.map(of_batch, batches).T
