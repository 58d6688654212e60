"""The monitor of JAX training loops."""

import math
from collections.abc import Callable
from functools import cached_property
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.core import Tracer
from jaxtyping import Array, PyTree

from principalflow import _checks
from principalflow._compiled import compiled
from principalflow.monitor._taken import Taken, critical_factor
from principalflow.monitor._watch import Measure, Watch, checked_rate, same_rate
from principalflow.objective import Objective, Vector, as_objective
from principalflow.optimizers import Edge, Moment, SecondMoment, reader
from principalflow.record import Record, Recording, Row


class Monitor(Watch):
    r"""Watches a JAX training loop: sharpness against the optimiser's own edge, what its steps do, all in one row.

    Call `observe` once a step, after it: with the parameters, and with the optimiser's state where one is watched.
    Where a measurement is due, the row has the columns of `principalflow.Record`, the `threshold` of the optimiser and
    `edge`, $\lambda_0$ over it. For Adam and its relatives the curvature is that in their metric, of
    $P^{-1/2} H P^{-1/2}$. Each measurement starts at the eigenpairs of the one before. A learning rate of 0, as a
    warm-up may start with, is not measured, nor is an Adam that has taken no step: the next step is.

    Given the step itself too, `updates`, `gradient`, `loss` and `batch`, each row has what it did, whichever optimiser
    took it: `batch_loss` and its change, `batch_slope` ($g^T\Delta$), `update_norm`, `realised_edge` (above 1 where
    the loss rose) and for Adam `surprise` (the squared gradient over its average). Where the curvature is due there are
    also `directional_sharpness` ($u^THu/g^Tu$ with $\Delta = -hu$), against $2/h$; `batch_sharpness`
    ($v^THv/g^Tv$ with $v = P^{-1}g$), one sample of that mean over batches which stands where $\lambda_0$ does without
    batches; and the split of the realised edge into `landscape`, `direction` and `momentum`.

    Every row has `events`, each a `principalflow.Event`, empty where nothing changed. Numbers that aren't finite never
    raise an error: the row then holds what is known.

    Args:
        objective: The loss to watch, over parameters of the loop's structure: all data, or a fixed part of them.
        optimizer: The loop's optax optimiser, which tells the threshold; its state goes to `observe`. Without one it is
            gradient descent.
        k: How many directions of largest curvature.
        every: Measure the curvature every so many steps, starting with the first one observed.
        measure: `"sharpness"`, or `"cheap"` for no curvature: what `observe` is given of the steps alone.
        tol: The eigenpairs' residual, relative to the largest |eigenvalue|.
        budget: The most time to spend on the curvature, as a share of the loop's own time (0.1 for a tenth): a
            measurement is put off until it can be expected to fit. The first is taken at once, and the seconds that it
            compiles for count as spent. What steps take to be watched doesn't count.
        to: Where rows go: a function that is called with each; a TensorBoard writer (of PyTorch or tensorboardX); a
            Weights & Biases run; the path of a run directory, which is written as the rows come in; or a list of these.
        momentum: Without an optimizer, the loop's heavy-ball momentum m, which moves the threshold from $2/h$ to
            $2(1+m)/h$ (Cohen et al. 2021).
        select: A function of a leaf's path in the parameters, like `"['layers'][0]['weight']"`: the curvature is that
            of the leaves for which it is true, while the others stay. Steps are watched whole.
        on_host: Whether the eigenpairs' vectors are kept in the machine's memory instead of JAX's device's; `memory`
            says how much they take.

    Raises:
        ValueError: For what is no objective or one of half precision, k or every below 1, an unknown measure, a tol not
            above 0 and below 1, a budget not above 0, a momentum that isn't in [0, 1) or beside an optimizer, an
            optimizer that isn't optax's, a select that selects nothing, or a `to` that can't be written to.

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
        optimizer: optax.GradientTransformation | None = None,
        k: int = 3,
        every: int = 10,
        measure: Measure = "sharpness",
        tol: float = 1e-2,
        budget: float | None = None,
        to: Any = None,
        momentum: float = 0.0,
        select: Callable[[str], bool] | None = None,
        on_host: bool = False,
    ):
        self._objective = as_objective(objective)
        _checks.single_or_double("objective.theta", objective.theta)
        record = Record(k=k, tol=tol, on_host=on_host)
        self._take = record.start(objective)
        self._momentum = _checks.fraction("momentum", momentum)
        if optimizer is not None and momentum:
            raise ValueError(f"momentum is read off the optimizer, where one is given; got {momentum} beside it.")
        self._reader = None if optimizer is None else reader(optimizer)
        self._second_moment = None if self._reader is None else SecondMoment(self._read, objective.theta.size)
        self._selected = None if select is None else objective.entries(select)
        self._next: tuple[int, Any] | None = None  # a step and the rate that was given for the next one
        config = dict(momentum=momentum, parameters=objective.theta.size)
        super().__init__(record, every, budget, to, measure, config, objective.theta.itemsize)

    def observe(
        self,
        step: int,
        params: PyTree,
        learning_rate: float | None = None,
        *,
        state: PyTree = None,
        edge: Edge | None = None,
        updates: PyTree = None,
        gradient: PyTree = None,
        loss: Any = None,
        batch: PyTree = None,
    ) -> Row | None:
        """Measures where it is due, and what the step that led here did, where it is given.

        Args:
            step: The number of steps taken, a Python int: an array would make the loop wait for JAX.
            params: The parameters before the next step, a pytree as the objective's or its flat form.
            learning_rate: The next step's; None to read it off the optimiser. Without one, what depends on the rate of
                the step that led here is known only if that was given the time before.
            state: The optimiser's state, of the monitor's `optimizer`.
            edge: The optimiser's edge where the monitor can't read it, in place of the state.
            updates: What the step that led here added to the parameters.
            gradient: The gradient that it came from, before any clipping; left out, it is computed.
            loss: The loss before it, on its batch; left out, it is computed.
            batch: The batch that it was taken on, of the structure of the objective's data; None for these themselves.

        Returns:
            The row, or None where nothing was measured.

        Raises:
            ValueError: Within `jax.jit`; for a step or rate below 0, parameters unlike the objective's (the message has
                the path), no rate and nothing to read it off, a rate other than the optimiser's, or no state where the
                monitor has an optimizer.
        """
        if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves((params, updates, loss))):
            raise ValueError("observe must be called outside of jax.jit, with what the compiled step returns.")
        due, before = self._is_due(step), self._next
        self._next = step, learning_rate if edge is None else edge.learning_rate
        if not due and updates is None:
            return None
        observed = _Observed(self._objective, self._take, params, updates, gradient, _scalar("loss", loss), batch)
        own = self._edge_of(learning_rate, state, edge, params) if due else None
        if own is not None and self._selected is not None:
            own = own.moving(self._selected, jnp.ones_like(self._objective.theta))
        if own is not None and updates is not None:
            if edge is None and state is not None:
                observed.learning_rate = self._read(state, params, last=True).learning_rate
            elif before is not None and before[0] == step - 1 and before[1] is not None:
                observed.learning_rate = checked_rate(before[1])
        if updates is not None and state is not None and self._second_moment is not None:
            observed.second_moment = self._second_moment(state, params)
        return self._measure(step, observed, own)

    def critical_sharpness(
        self, params: PyTree, updates: PyTree, learning_rate: float, *, batch: PyTree = None
    ) -> float:
        r"""Returns $2/h_c$, with $h_c$ the smallest rate at which a step along these updates raises the loss.

        Some six forward passes (arXiv 2601.16979); below $2/h$ the step lowers the loss.

        Args:
            params: The parameters before the step.
            updates: What the step adds to them.
            learning_rate: The rate h of these updates.
            batch: The batch to judge by, of the structure of the objective's data; None for these.

        Returns:
            The critical sharpness: 0 where the loss doesn't rise however far the step goes, and NaN where it rises
            however short the step.

        Raises:
            ValueError: For a rate not above 0, or parameters or updates unlike the objective's.

        Example:
            >>> import jax.numpy as jnp
            >>> import principalflow as pf
            >>> bowl = pf.functions.quadratic(jnp.diag(jnp.array([4.0, 4.0])))
            >>> sharpness = pf.Monitor(bowl).critical_sharpness(jnp.ones(2), -0.1 * 4 * jnp.ones(2), 0.1)
            >>> abs(sharpness - 4) < 4 / 16
            True
        """
        h, objective = _checks.rate("learning_rate", learning_rate), _on(self._objective, batch)
        theta, along = (_flat(objective, name, tree) for name, tree in (("params", params), ("updates", updates)))
        factor = critical_factor(lambda factor: float(objective.value(theta + factor * along)))
        return 2 / (factor * h)

    def _edge_of(self, learning_rate: Any, state: PyTree, edge: Edge | None, params: PyTree) -> Edge:
        if edge is not None:
            return edge
        if self._reader is None:
            if state is not None:
                raise ValueError("state needs the optimizer that it is of: pf.Monitor(objective, optimizer=tx).")
            return Edge.of_descent(checked_rate(learning_rate), momentum=self._momentum)
        if state is None:
            raise ValueError("state must be given to observe where the monitor has an optimizer, got None.")
        edge = self._read(state, params)
        same_rate(learning_rate, edge)
        return edge

    def _read(self, state: PyTree, params: PyTree, *, last: bool = False) -> Edge:
        """Reads the optimiser, whose state may have the parameters' structure also where they are given flat."""
        assert self._reader is not None
        edge = self._reader(state, params, last=last)
        if edge.unknown and not edge.starting and getattr(params, "shape", None) == self._objective.theta.shape:
            structured = self._reader(state, self._objective.unravel(params), last=last)
            return edge if structured.unknown and not structured.starting else structured
        return edge


class _Observed:
    """One moment of a JAX loop.

    Attributes:
        second_moment: The average of squared gradients, if the optimiser has one.
        learning_rate: Of the step that led here, NaN where it isn't known.
    """

    second_moment: Moment | None = None
    learning_rate = math.nan

    def __init__(
        self,
        objective: Objective,
        take: Recording,
        params: PyTree,
        updates: PyTree,
        gradient: PyTree,
        loss: Any,
        batch: PyTree,
    ):
        self._whole, self._take, self._params, self._updates = objective, take, params, updates
        self._gradient, self._loss, self._batch = gradient, loss, batch

    @cached_property
    def _theta(self) -> Vector:
        return _flat(self._whole, "params", self._params)

    @cached_property
    def _update(self) -> Vector:
        return _flat(self._whole, "updates", self._updates)

    def wait(self) -> None:
        jax.block_until_ready(self._params)

    def loss(self) -> float:
        return float(self._whole.value(self._theta))

    def record(self, edge: Edge) -> Row:
        return self._take(self._theta, edge.learning_rate, edge)

    def taken(self) -> Taken | None:
        if self._updates is None:
            return None
        loss = self._loss
        if self._gradient is None:
            own, self._gradient = _on(self._whole, self._batch).value_and_gradient(self._theta - self._update)
            loss = own if loss is None else loss
        elif loss is None:
            loss = _on(self._whole, self._batch).value(self._theta - self._update)
        given = (self._batch, self._params, self._updates, self._gradient, loss, self.second_moment)
        numbers = np.asarray(_numbers(self._whole, *jax.tree.map(_as_array, given))).tolist()
        eps = float(np.finfo(self._whole.theta.dtype).eps)
        return Taken(*numbers, eps=eps, learning_rate=self.learning_rate)

    def update_square(self, preconditioner: Any) -> float:
        return float(_square(self._update, preconditioner))

    def curvatures(self, preconditioner: Any) -> tuple[float, float]:
        update = self._update
        gradient = _flat(self._whole, "gradient", self._gradient)
        along = gradient if preconditioner is None else gradient / preconditioner
        products = _on(self._whole, self._batch).hvp(self._theta - update, jnp.stack([update, along], axis=1))
        slope = float(along @ gradient)
        return float(update @ products[:, 0]), float(along @ products[:, 1]) / slope if slope else math.nan


@compiled
def _numbers(
    objective: Objective,
    batch: PyTree,
    params: PyTree,
    updates: PyTree,
    gradient: PyTree,
    loss: Any,
    moment: Moment | None,
) -> Any:
    """Returns the numbers of a `Taken`, in one array: the loop waits for JAX once."""
    objective = _on(objective, batch)
    update, slope = (_parts(objective, name, tree) for name, tree in (("updates", updates), ("gradient", gradient)))
    numbers = [loss, objective.value(params), _dot(update, slope), *(_dot(x, x) ** 0.5 for x in (slope, update))]
    if moment is not None:
        roots = [jnp.sqrt(part) for part in _parts(objective, "state", moment.average)]
        ratios = [
            jnp.where(root > 0, g / jnp.where(root > 0, root, 1), 0) for g, root in zip(slope, roots, strict=True)
        ]
        numbers.append(moment.share * _dot(ratios, slope) / sum(jnp.sum(root) for root in roots))
    return jnp.stack([jnp.asarray(number, objective.theta.dtype) for number in numbers])


def _parts(objective: Objective, name: str, tree: PyTree) -> list[Array]:
    """Returns numbers of the parameters' structure, or flat ones, leaf by leaf: sums need no copy in one piece."""
    return jax.tree.leaves(eqx.filter(objective.unravel(objective.flat(name, tree)), eqx.is_inexact_array))


def _dot(a: list[Array], b: list[Array]) -> Any:
    return sum(jnp.vdot(x, y) for x, y in zip(a, b, strict=True))


def _as_array(leaf: Any) -> Any:
    """Returns numbers of Python's and NumPy's as JAX's: others of a compiled function's arguments are part of it."""
    return jnp.asarray(leaf) if isinstance(leaf, float | np.ndarray | np.generic) else leaf


def _square(update: Vector, preconditioner: Any) -> Any:
    """Returns the square of an update in the metric P; parameters that rest have no part in it."""
    if preconditioner is None:
        return update @ update
    return jnp.sum(jnp.where(jnp.isfinite(preconditioner), preconditioner * update**2, 0))


def _on(objective: Objective, batch: PyTree) -> Objective:
    return objective if batch is None else objective.over(batch)


def _scalar(name: str, value: Any) -> Any:
    """Returns one number, or None, as it is: the loop doesn't wait for it."""
    if np.shape(value):
        raise ValueError(f"{name} must be one number, got shape {np.shape(value)}.")
    return value


def _flat(objective: Objective, name: str, params: PyTree) -> Vector:
    """Returns parameters as the objective's flat vector in its dtype, finite or not."""
    theta = objective.flat(name, params)
    if jnp.iscomplexobj(theta) and not jnp.iscomplexobj(objective.theta):
        raise ValueError(f"{name} must be real, as the objective's are, got {theta.dtype}.")
    return theta.astype(objective.theta.dtype)
