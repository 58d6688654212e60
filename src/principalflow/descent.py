"""Gradient descent itself: the discrete trajectory that everything here models."""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Inexact

from principalflow import _checks
from principalflow.objective import Objective, Vector


@dataclass(frozen=True)
class Path:
    """What gradient descent did.

    Attributes:
        thetas: The iterates, the starting point first; only finite ones.
        losses: The loss at each of them.
        diverged: True if descent left the finite numbers before its last step.
        message: One sentence on how it ended.
    """

    thetas: Inexact[Array, "steps_plus_1 D"]
    losses: Inexact[Array, " steps_plus_1"]
    diverged: bool
    message: str


def descend(objective: Objective, theta: _checks.Numbers, h: float, steps: int) -> Path:
    r"""Runs gradient descent, $\theta_t = \theta_{t-1} - h \nabla E(\theta_{t-1})$ (paper, eq. 1).

    It stops at the first iterate whose parameters or loss are not finite, and says so.

    Args:
        objective: The loss.
        theta: The flat starting point.
        h: The learning rate.
        steps: How many steps to take.

    Returns:
        A `Path` with `thetas` (steps + 1, D) and `losses` (steps + 1), fewer if it diverged.

    Raises:
        ValueError: For h not above 0, steps below 0, or a start where theta or the loss is not finite.

    Example:
        >>> import principalflow as pf
        >>> path = pf.descend(pf.functions.quadratic([[1.0]]), [1.0], h=1.5, steps=3)
        >>> path.thetas[:, 0]
        Array([ 1.   , -0.5  ,  0.25 , -0.125], dtype=float64)
        >>> path.message
        'completed 3 steps'
    """
    h, steps = _checks.positive("h", h), _checks.whole("steps", steps, least=0)
    theta = objective.flat("theta", theta)
    _checks.finite("theta", theta)
    taken, thetas, losses = _descend(objective, theta, jnp.asarray(h), steps)
    taken = int(taken)
    if taken == 0:
        raise ValueError(f"theta must have a finite loss, got E(theta) = {losses[0]}.")
    diverged = taken < steps + 1
    message = f"diverged: step {taken} left the finite numbers" if diverged else f"completed {steps} steps"
    return Path(thetas[:taken], losses[:taken], diverged, message)


@eqx.filter_jit
def _descend(objective: Objective, theta: Vector, h: Array, steps: int):
    """Returns the number of finite iterates, and buffers that start with them."""

    def unfinished(state):
        index, theta, previous_loss, *_ = state
        return (index <= steps) & jnp.isfinite(previous_loss) & jnp.all(jnp.isfinite(theta))

    def step(state):
        index, theta, _, thetas, losses = state
        loss, gradient = objective.value_and_gradient(theta)
        thetas, losses = thetas.at[index].set(theta), losses.at[index].set(loss)
        return index + 1, theta - h * gradient, loss, thetas, losses

    thetas = jnp.zeros((steps + 1, theta.size), theta.dtype)
    losses = jnp.zeros(steps + 1, jax.eval_shape(objective.value, theta).dtype)
    start = (0, theta, losses[0], thetas, losses)
    index, _, last_loss, thetas, losses = lax.while_loop(unfinished, step, start)
    return index - ~jnp.isfinite(last_loss), thetas, losses
