"""Monitors: what governs the stability of a training loop that somebody else wrote, within a budget of time."""

import math
import os
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from principalflow import _checks, runs
from principalflow._table import table
from principalflow.objective import Objective, Vector, as_objective, flattened
from principalflow.record import Record, Row
from principalflow.runs._export import add_row

# Begins the names of those arrays of a monitor's state that the eigenpairs start from.
_TRAIL = "trail_"


class Threshold(NamedTuple):
    """The curvature beyond which an optimiser is unstable: `times_h` over the learning rate, as a formula and why."""

    times_h: float
    formula: str
    why: str

    @classmethod
    def of(cls, momentum: float = 0.0, nesterov: bool = False, dampening: float = 0.0) -> "Threshold":
        """Returns that of gradient descent, of heavy ball or of Nesterov's momentum (Cohen et al. 2021).

        PyTorch's dampening d multiplies all gradients but the first by 1 - d, which is a smaller rate.
        """
        if not momentum:
            return cls(2.0, "2/h", "")
        if nesterov:
            times_h = (2 + 2 * momentum) / (1 + 2 * momentum)
            return cls(times_h, "2(1+m)/(1+2m)/h", f", the threshold with Nesterov's momentum m = {momentum:g},")
        why = f", the threshold with momentum m = {momentum:g},"
        if dampening:
            return cls((2 + 2 * momentum) / (1 - dampening), "2(1+m)/((1-d)h)", why)
        return cls(2 + 2 * momentum, "2(1+m)/h", why)


class Watch:
    """What all monitors share: when to measure, what is new, what to say, and where it goes. Subclasses measure.

    Attributes:
        rows: What was measured, the oldest first: the columns of `principalflow.Record`, and `events` where there are.
        events: The step and the sentence of whatever changed.
    """

    _clock = staticmethod(time.perf_counter)
    _take: Any  # the subclass's `record.WarmStart`

    def __init__(self, every: int, budget: float | None, to: Any, config: dict[str, Any]):
        self.rows: list[Row] = []
        self.events: list[tuple[int, str]] = []
        self._every = _checks.whole("every", every, least=1)
        self._budget = None if budget is None else _checks.positive("budget", budget)
        self._sink = _sink(to, dict(every=every, budget=budget, **config))
        self._mark: float | None = None
        self._loop_time = self._spent = self._last_cost = 0.0
        self._put_off = 0
        self._states: dict[str, bool] = {}
        self._threshold = Threshold.of()
        self._closed = False

    @property
    def state(self) -> dict[str, Any]:
        """Arrays on which the next row and its events depend, to be kept and given to `restore`."""
        trail = {_TRAIL + name: array for name, array in self._take.state.items()}
        return trail | {name: np.array(on) for name, on in self._states.items()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Makes the next row and its events what they would have been where `state` was read."""
        trail = {name: array for name, array in state.items() if name.startswith(_TRAIL)}
        self._take.restore({name.removeprefix(_TRAIL): array for name, array in trail.items()})
        self._states = {name: bool(on) for name, on in state.items() if np.ndim(on) == 0}

    @property
    def overhead(self) -> float:
        """The time spent measuring over the loop's own time; NaN before the loop has taken any."""
        return self._spent / self._loop_time if self._loop_time else math.nan

    def table(self) -> Any:
        """Returns the rows as a pandas DataFrame, or as a dict of columns where pandas isn't installed.

        What a row doesn't have is NaN, or empty among words; several events are joined.
        """
        rows = [{**row, "events": "; ".join(row.get("events", []))} for row in self.rows]
        names = dict.fromkeys(name for row in rows for name in row)
        missing = {name: "" if any(isinstance(row.get(name), str) for row in rows) else math.nan for name in names}
        return table([missing | {name: row[name] for name in names if name in row} for row in rows] or [{}])

    def summary(self) -> str:
        """Returns in a few sentences what was seen, and what it means for the learning rate."""
        summary = _summary(self.rows, self.events, self._threshold, self.overhead)
        late = f" At {self._put_off} steps a measurement was due and put off, to keep to the budget."
        return summary + (late if self._put_off else "")

    def close(self, status: str = "done", message: str | None = None) -> None:
        """Ends what `to` was given a path for, with the summary as its message; a second call does nothing."""
        if not self._closed:
            self._sink.close(status=status, message=self.summary() if message is None else message)
            self._closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: Any) -> None:
        if kind is None:
            self.close()
        else:
            self.close("interrupted", f"{kind.__name__}: {error}")

    def _is_due(self, step: int) -> bool:
        """Whether to measure at this step; called at each, so it must be quick."""
        self._loop_time += self._lap()
        step = _checks.whole("step", step, least=0)
        if not self.rows:
            return True
        if 0 <= step - self.rows[-1]["step"] < self._every:
            return False
        fits = self._budget is None or self._spent + self._last_cost <= self._budget * self._loop_time
        self._put_off += not fits
        return fits

    def _measure(
        self,
        step: int,
        learning_rate: float,
        threshold: Threshold,
        wait: Callable[[], Any],
        take: Callable[[float], Row],
        loss: Callable[[], float],
    ) -> Row | None:
        """Returns the row of a step that is due, once `wait` has let the loop's own pending work end."""
        h = _rate(learning_rate)
        if h == 0:  # the step goes nowhere, and there is no 2/h
            return None
        wait()
        self._loop_time += self._lap()
        self._threshold = threshold
        row, failure = self._attempt(take, loss, h)
        row = {"step": step, **row}
        if "eigenvalue_0" in row:
            row["threshold"] = threshold.times_h / h
        sentences = [*self._failures(row, failure), *self._news(row)]
        if sentences:
            row["events"] = sentences
            self.events += [(step, sentence) for sentence in sentences]
        self.rows.append(row)
        self._sink.append(row)
        cost = self._lap()
        self._spent += cost
        # The first finds its eigenpairs from nothing and compiles, which says nothing of the next.
        self._last_cost = cost if len(self.rows) > 1 else 0.0
        return row

    def _attempt(self, take: Callable[[float], Row], loss: Callable[[], float], h: float) -> tuple[Row, str]:
        """Returns the record, or what is known without it and why there is none: numbers must not end a loop."""
        try:
            if not math.isfinite(h):
                raise _checks.NonFiniteError("the learning rate is not finite")
            return take(h), ""
        except ValueError as error:
            # Later on it is the numbers that have changed, not the arguments.
            if not self._states and not isinstance(error, _checks.NonFiniteError | np.linalg.LinAlgError):
                raise
            return {"learning_rate": h, "loss": loss()}, str(error)

    def _failures(self, row: Row, failure: str) -> list[str]:
        broken = not math.isfinite(row["loss"])
        sentences = []
        if self._changes("broken", broken) and broken:
            sentences.append(f"the loss is not finite at step {row['step']}")
        if self._changes("failing", bool(failure)) and failure and not broken:
            sentences.append(f"only the loss could be measured at step {row['step']}: {failure}")
        return sentences

    def _news(self, row: Row) -> list[str]:
        if "eigenvalue_0" not in row:
            return []
        step, sharpness, limit = row["step"], row["eigenvalue_0"], row["threshold"]
        sentences = []
        known, above = "above" in self._states, sharpness > limit
        if self._changes("above", above):
            verb = "fell below" if not above else "crossed" if known else "is above"
            threshold = self._threshold.formula + self._threshold.why
            sentences.append(f"lambda_0 {verb} {threshold} at step {step}: {sharpness:.4g} against {limit:.4g}")
        change, loss = row["loss_change_discrete"], row["loss"]
        if self._changes("rising", change > 0):
            # With momentum the optimiser's own next step is another one.
            what = "the next step" if self._threshold.times_h == 2 else "a step without momentum"
            verb = "raise the loss" if change > 0 else "lower the loss again"
            sentences.append(f"{what} is predicted to {verb} (by {abs(change):.2g}, from {loss:.4g})")
        if self._changes("unconverged", not row["converged"]) and not row["converged"]:
            worst = max(value for name, value in row.items() if name.startswith("residual_"))
            sentences.append(f"the eigenpairs did not converge at step {step}: they are known to {worst:.2g} only")
        return sentences

    def _lap(self) -> float:
        """Returns the time since it was last called."""
        before, self._mark = self._mark, self._clock()
        return 0.0 if before is None else self._mark - before

    def _changes(self, state: str, now: bool) -> bool:
        """Whether a state begins or ends."""
        before, self._states[state] = self._states.get(state, False), now
        return now != before


class Monitor(Watch):
    r"""Watches a JAX training loop: sharpness against 2/h, what the next step will do, the drift, all in one row.

    Call `observe` once a step. Where a measurement is due it returns a row, the columns of `principalflow.Record` and
    the `threshold` 2/h, for the step of gradient descent that starts at these parameters, whichever optimiser makes the
    loop's own; else None, at once. Each measurement starts at the eigenpairs of the one before. A learning rate of 0,
    as a warm-up may start with, is not measured: the next step is.

    A row has `events`, sentences, where something changed: $\lambda_0$ crossed $2/h$ or fell back below; the next step
    is predicted to raise the loss, or no longer; the eigenpairs did not converge; the loss is not finite. Numbers that
    aren't finite never raise an error: the row then holds what is known.

    Args:
        objective: The loss to watch, over parameters of the loop's structure: all data, or a fixed part of them.
        k: How many directions of largest curvature.
        every: Measure every so many steps, from the first that is observed on.
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
        >>> monitor.events[0]
        (2, 'lambda_0 crossed 2/h at step 2: 3 against 2.857')
    """

    def __init__(
        self,
        objective: Objective,
        k: int = 3,
        every: int = 10,
        tol: float = 1e-2,
        budget: float | None = None,
        to: Any = None,
        momentum: float = 0.0,
    ):
        self._objective = as_objective(objective)
        _checks.single_or_double("objective.theta", objective.theta)
        self._take = Record(k=k, tol=tol).start(objective)
        self._own_threshold = Threshold.of(_checks.fraction("momentum", momentum))
        super().__init__(every, budget, to, dict(k=k, tol=tol, momentum=momentum, parameters=objective.theta.size))

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
        if not self._is_due(step):
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


def _rate(learning_rate: Any) -> float:
    """Returns the rate; one that isn't finite is no wrong argument but the fate of a run."""
    try:
        if not math.isfinite(learning_rate):
            return math.nan
    except (TypeError, ValueError, OverflowError):
        pass  # the check says what is wrong
    rate = _checks.non_negative("learning_rate", learning_rate)
    least, most = _checks.RATES  # below them it counts as 0, above them it isn't known
    return 0.0 if rate < least else rate if rate <= most else math.nan


def _flat(objective: Objective, params: PyTree) -> Vector:
    """Returns parameters of the objective's structure as its flat vector, finite or not."""
    if getattr(params, "shape", None) == objective.theta.shape:
        return _in_its_dtype(objective, objective.flat("params", params))
    return _in_its_dtype(objective, flattened(objective, "params", params))


def _in_its_dtype(objective: Objective, theta: Vector) -> Vector:
    if jnp.iscomplexobj(theta) and not jnp.iscomplexobj(objective.theta):
        raise ValueError(f"params must be real, as the objective's are, got {theta.dtype}.")
    return theta.astype(objective.theta.dtype)


def _sink(to: Any, config: dict[str, Any]) -> Any:
    """Returns an object with the `append` and `close` of a run directory for whatever rows can go to."""
    if isinstance(to, str | os.PathLike):
        return runs.create(_checks.path("to", to), config)
    if hasattr(to, "add_scalar"):
        return _Function(lambda row: add_row(to, row))  # the writer is the user's and stays open
    if to is None or callable(to):
        return _Function(to or (lambda row: None))
    raise ValueError(
        "to must be a function of a row, a TensorBoard writer with add_scalar, or the path of a run directory, "
        f"got a {type(to).__name__}."
    )


class _Function:
    """Rows go to a function."""

    def __init__(self, call: Callable[[Row], Any]):
        self.append = call

    def close(self, status: str, message: str) -> None:
        pass


def _summary(rows: list[Row], events: list[tuple[int, str]], threshold: Threshold, overhead: float) -> str:
    """Returns a paragraph on what was measured, and what it means for the learning rate."""
    known = [row for row in rows if "eigenvalue_0" in row]
    if not known:
        return "Nothing was measured." if not rows else f"Nothing but the loss could be measured: {events[0][1]}."
    first, last = known[0], known[-1]
    h, sharpness, formula = last["learning_rate"], last["eigenvalue_0"], threshold.formula
    limit, length = threshold.times_h / h, h * last["gradient_norm"]
    crossed = next((step for step, event in events if event.startswith(("lambda_0 crossed", "lambda_0 is"))), None)
    predicted = [row for row in known if row["loss_change_discrete"] > 0]
    rose = sum(row["loss_change"] > 0 for row in predicted)
    share = f", {last['drift_estimate'] / length:.0%} of its length" if length else ""
    timed = f"; all of them took {overhead:.0%} of the loop's own time" if math.isfinite(overhead) else ""
    begin, end, was = rows[0]["step"], rows[-1]["step"], f"{first['eigenvalue_0']:.4g}"
    several = f"{len(rows)} measurements over steps {begin} to {end}: lambda_0 went from {was} to {sharpness:.4g}, "
    return (
        (several if len(rows) > 1 else f"One measurement, at step {end}: lambda_0 was {was}, ")
        + f"which is {sharpness / limit:.2f} times {formula} = {limit:.4g}, "
        + (
            f"and never was above {formula}. "
            if crossed is None
            else f"and first was above {formula} at step {crossed}. "
        )
        + f"At {len(predicted)} of the measurements descent's next step was predicted to raise the loss, "
        f"and at {rose} of these it would. "
        f"The last one drifts about {last['drift_estimate']:.2g} from the gradient flow{share}. "
        f"A measurement took {np.mean([row['products'] for row in known]):.1f} Hessian products on average{timed}. "
        + _advice(rows[-1], last, threshold)
    )


def _advice(end: Row, last: Row, threshold: Threshold) -> str:
    """Returns one sentence on the learning rate."""
    h, sharpness = last["learning_rate"], last["eigenvalue_0"]
    if sharpness <= 0:
        return "Nothing curves upwards here, so that the curvature sets the rate no limit."
    largest = threshold.times_h / sharpness
    if not math.isfinite(end["loss"]):
        return f"The run left the finite numbers: at the last known curvature, rates below {largest:.3g} are stable."
    if h > largest:
        return f"The rate is beyond the edge of stability: at this curvature those below {largest:.3g} are stable."
    return f"The rate is {h / largest:.0%} of {largest:.3g}, up to which rates are stable at this curvature."
