"""The monitor of JAX training loops."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from principalflow import _checks
from principalflow.monitor._threshold import Threshold
from principalflow.monitor._watch import Watch
from principalflow.objective import Objective, Vector, as_objective
from principalflow.record import Record, Row


class Monitor(Watch):
    r"""Watches a JAX training loop: sharpness against 2/h, what the next step will do, the drift, all in one row.

    Call `observe` once a step. Where a measurement is due it returns a row, the columns of `principalflow.Record` and
    the `threshold` 2/h, for the step of gradient descent that starts at these parameters, whichever optimiser makes the
    loop's own; else None, at once. Each measurement starts at the eigenpairs of the one before. A learning rate of 0,
    as a warm-up may start with, is not measured: the next step is.

    A row has `events`, each a `principalflow.Event`, where something changed: $\lambda_0$ crossed $2/h$ or fell back
    below; the next step is predicted to raise the loss, or no longer; the eigenpairs did not converge; the loss is not
    finite. Numbers that aren't finite never raise an error: the row then holds what is known.

    Args:
        objective: The loss to watch, over parameters of the loop's structure: all data, or a fixed part of them.
        k: How many directions of largest curvature.
        every: Measure every this many steps, from the first that is observed on.
        tol: The eigenpairs' residual, relative to the largest |eigenvalue|.
        budget: The most time to spend measuring, as a share of the loop's own time (0.1 for a tenth): a measurement is
            put off until it can be expected to fit. The first is taken at once, and the seconds that it compiles for
            count as spent.
        to: Where rows go: a function that is called with each; a TensorBoard writer (of PyTorch or tensorboardX); or
            the path of a run directory, which is written as the rows come in.
        momentum: The loop's heavy-ball momentum m, which moves the threshold from $2/h$ to $2(1+m)/h$ (Cohen et al.
            2021).

    Raises:
        ValueError: For what is no objective or one of half precision, k or every below 1, a tol not above 0 and below
            1, a budget not above 0, a momentum that isn't in [0, 1), or a `to` that can't be written to.

    Example:
        >>> import jax.numpy as jnp
        >>> import principalflow as pf
        >>> bowl = pf.functions.quadratic(jnp.diag(jnp.array([1.0, 3.0])))
        >>> theta, monitor = jnp.ones(2), pf.Monitor(bowl, k=1, every=2)
        >>> for step, h in enumerate([0.5, 0.6, 0.7, 0.8]):
        ...     row = monitor.observe(step, theta, h)
        ...     theta = theta - h * bowl.gradient(theta)
        >>> monitor.table()["eigenvalue_0"].tolist()
        [3.0, 3.0]
        >>> print(monitor.events[0])
        lambda_0 crossed 2/h at step 2: 3 against 2.857
    """

    def __init__(
        self,
        objective: Objective,
        *,
        k: int = 3,
        every: int = 10,
        tol: float = 1e-2,
        budget: float | None = None,
        to: Any = None,
        momentum: float = 0.0,
    ):
        self._objective = as_objective(objective)
        _checks.single_or_double("objective.theta", objective.theta)
        record = Record(k=k, tol=tol)
        self._take = record.start(objective)
        self._own_threshold = Threshold.of(_checks.fraction("momentum", momentum))
        super().__init__(record, every, budget, to, dict(momentum=momentum, parameters=objective.theta.size))

    def observe(self, step: int, params: PyTree, learning_rate: float) -> Row | None:
        """Measures where it is due.

        Args:
            step: The number of steps taken, a Python int: an array would make the loop wait for JAX.
            params: The parameters before the next step, a pytree as the objective's or its flat form.
            learning_rate: The next step's.

        Returns:
            The row, or None where nothing was measured.

        Raises:
            ValueError: For a step or rate below 0, or parameters unlike the objective's; the message has the path.
        """
        if not self._schedule.is_due(step):
            return None
        theta = _flat(self._objective, params)
        return self._measure(
            step,
            learning_rate,
            self._own_threshold,
            wait=lambda: jax.block_until_ready(theta),
            take=lambda h: self._take(theta, h),
            loss=lambda: float(self._objective.value(theta)),
        )


def _flat(objective: Objective, params: PyTree) -> Vector:
    """Returns parameters as the objective's flat vector in its dtype, finite or not."""
    theta = objective.flat("params", params)
    if jnp.iscomplexobj(theta) and not jnp.iscomplexobj(objective.theta):
        raise ValueError(f"params must be real, as the objective's are, got {theta.dtype}.")
    return theta.astype(objective.theta.dtype)
