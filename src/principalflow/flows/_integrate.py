"""Following a flow through time."""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Inexact, PyTree

from principalflow import _checks
from principalflow._compiled import bound
from principalflow._holomorphic import require_holomorphic
from principalflow._progress import progress as progress_bar
from principalflow.flows._flow import Flow, as_flow
from principalflow.flows._runge_kutta import RKC, SOLVERS, Followed, adaptive, euler, pairs_of
from principalflow.objective import Objective, as_objective, checked_theta
from principalflow.status import Status

EULER = "euler"
# Below this tolerance the 8th-order pair needs fewer evaluations than the 5th-order one.
_TIGHT = 1e-8
# From this tolerance on it is stability that bounds the steps of flows through the edge, not accuracy.
_COARSE = 3e-4
# How many numbers come with a slope, in one array: each that a device returns takes its time.
_NUMBERS = 4
# More Euler steps than these aren't meant: they would take hours for the smallest of losses.
_MOST_EULER_STEPS = 10**9


@dataclass(frozen=True)
class Solution:
    """A flow's solution, as far as it was reached.

    Attributes:
        times: The times that were asked for and reached.
        thetas: The parameters at each of them; finite, complex for complex flows.
        states: The flow's states at each of them: the parameters, or whatever it follows, as `flow.start` has it.
        time: How far it got.
        theta: The parameters there, to go on from.
        evaluations: Evaluations of the vector field.
        products: Hessian products that these took.
        cost: The price of all of it, in gradients at real parameters, as `Field.cost` counts it.
        steps: Solver steps, rejected ones included.
        solver: "tsit5", "dopri8", "rkc" or "euler".
        status: "completed", or what kept it from the end: "stuck" (the step size fell to nothing), "diverged",
            "max_steps", "interrupted"; "inexact" if somewhere on the way the field was less exact than `rtol`.
        message: The status in a sentence, with what to try.
    """

    times: Float[Array, " saves"] = dataclasses.field(repr=False)
    thetas: Inexact[Array, "saves D"] = dataclasses.field(repr=False)
    states: list[PyTree] = dataclasses.field(repr=False)
    time: float
    theta: Inexact[Array, " D"] = dataclasses.field(repr=False)
    evaluations: int
    products: int
    cost: float
    steps: int
    solver: str
    status: Status
    message: str


def integrate(
    flow: Flow,
    objective: Objective,
    theta: _checks.Numbers | PyTree,
    time: float,
    *,
    rtol: float = 1e-6,
    atol: float = 1e-9,
    solver: Literal["auto", "tsit5", "dopri8", "rkc", "euler"] = "auto",
    step: float | None = None,
    saves: int | Sequence[float] | np.ndarray | Array | None = None,
    max_steps: int = 1000,
    progress: bool | None = None,
) -> Solution:
    """Follows a flow from `theta` for `time`; one learning rate of time is one step of descent.

    Ctrl-C ends it with what it has.

    Args:
        flow: The flow; a complex one needs a holomorphic loss, which is checked first.
        objective: The loss.
        theta: The starting point, flat or as the parameters that the objective was made with.
        time: How long to follow the flow.
        rtol: Relative tolerance of a solver step, below 1.
        atol: Absolute tolerance of a solver step.
        solver: `"auto"` takes tsit5, and dopri8 for rtol below 1e-8. For `TwoStep`, `BackwardError` and `Pair`, whose
            fast directions decay at a rate that is known, it takes rkc for rtol from 3e-4 on: steps of many h, with as
            many stages as it takes to be stable. Central flows it follows by Euler's steps of their `substep`.
            `"euler"` with `step=5e-5` is the paper's way (appendix C), for comparison.
        step: The step of `"euler"`. An adaptive solver that gets stuck or runs out of `max_steps`, as it does where a
            field jumps, begins again at the start with Euler's steps of this length, if it is given, however many they
            are; `solver` of the solution says so.
        saves: None for start and end, a whole number n for n + 1 evenly spaced times from 0 to `time`,
            or the times themselves. They don't change the adaptive solvers' steps: the states between these are taken
            from a polynomial of order 4 (tsit5) or 7 (dopri8).
        max_steps: An adaptive solver gives up after this many steps, and says so. "euler" takes what it needs.
        progress: Whether to show how far it is; None for where there is a terminal.

    Returns:
        A `Solution`. A solve that didn't get to the end is cut there, with the reason in `status` and `message`.

    Raises:
        ValueError: For a bad argument, a start of half precision, a non-finite start or field, more saves than there is
            memory for, or a complex flow on a loss that isn't holomorphic.

    Example:
        >>> import principalflow as pf
        >>> bowl = pf.functions.quadratic([[1.0]])
        >>> solution = pf.integrate(pf.flows.Principal(h=1.5), bowl, [1.0], time=3.0, saves=2)
        >>> solution.thetas.real.round(5)  # descent's 1, -0.5, 0.25
        Array([[ 1.  ],
               [-0.5 ],
               [ 0.25]], dtype=float64)
        >>> solution.status
        <Status.COMPLETED: 'completed'>
    """
    time = _checks.non_negative("time", time)
    rtol, atol = _checks.tolerance("rtol", rtol), _checks.non_negative("atol", atol)
    max_steps = _checks.whole("max_steps", max_steps, least=1)
    _checks.one_of("solver", solver, ("auto", EULER, RKC, *SOLVERS))
    if solver == EULER and step is None:
        raise ValueError("step must be given with solver='euler', got None.")
    step = None if step is None else check_step(step, time)
    times = _save_times(time, saves, as_objective(objective).theta)
    theta = check_start(flow, objective, theta)
    if solver != EULER:
        rtol = _checks.resolvable("rtol", rtol, theta.dtype)
    method = solver_for(rtol, flow) if solver == "auto" else solver
    if method == EULER and step is None:
        step = check_step(flow.euler_step, time)
    if method == RKC and flow.fastest_decay is None:
        raise ValueError(
            f"solver must not be 'rkc' for {type(flow).__name__}: it isn't known how fast its states decay."
        )
    field = StateField(flow, objective, flow.start(objective, theta))
    to_the_end = np.concatenate([[0.0], times, [time]])
    with progress_bar(100, progress) as show:
        path = follow(field, field.start, to_the_end, rtol, atol, method, step, max_steps, show)
    if path.status is Status.DIVERGED and not path.steps and not np.all(np.isfinite(field(field.start))):
        raise ValueError("theta must have a finite vector field under the flow; it is not finite there.")
    reached = min(len(path.states) - 1, len(times))
    states = path.states[1 : 1 + reached]
    thetas = field.stacked([field.parameters(state) for state in states] or [theta])[:reached]
    spent = field.spent
    status, message = path.status, path.message
    if status is Status.COMPLETED and not spent.error <= rtol:  # NaN is not known at all
        status = Status.INEXACT
        known = f"is only known to {spent.error:.1e}" if np.isfinite(spent.error) else "isn't known all the way"
        message = f"reached the end, but the field {known}: {flow.advice(spent.error)}"
    return Solution(
        jax.device_put(times[:reached]),
        thetas,
        [field.unravelled(state) for state in states],
        path.time,
        jax.device_put(field.parameters(path.last)),
        spent.evaluations,
        spent.products,
        spent.cost,
        path.steps,
        path.solver,
        status,
        message,
    )


def check_start(flow: Flow, objective: Objective, theta: _checks.Numbers | PyTree) -> Array:
    """Returns `theta` as an array if the flow can be followed from it on this loss, or raises."""
    as_flow(flow)
    theta = checked_theta(objective, theta, half=False)
    if flow.is_complex or jnp.iscomplexobj(theta):
        require_holomorphic(objective, theta)
    return theta


def check_step(step: Any, time: float) -> float:
    """Returns Euler's step, or raises if it is none, or would take for ever."""
    step = _checks.positive("step", step)
    if time > _MOST_EULER_STEPS * step:
        raise ValueError(f"step must be at least time / {_MOST_EULER_STEPS}, got {step:g} for time={time:g}.")
    return step


def solver_for(rtol: float, flow: Flow) -> str:
    """Returns the name of the solver that reaches `rtol` with the fewest evaluations, or that the flow is made for."""
    if flow.euler_step is not None:
        return EULER
    if rtol >= _COARSE and flow.fastest_decay is not None:
        return RKC
    return "dopri8" if rtol < _TIGHT else "tsit5"


@dataclass
class Spent:
    """What evaluations of a field took since the last count, and how exact the worst one of an accepted step was."""

    evaluations: int = 0
    products: int = 0
    most_products: int = 0
    cost: float = 0.0
    error: float = 0.0
    converged: bool = True
    trials: list[float] = dataclasses.field(default_factory=list)
    settled: bool = False

    def settle(self, count: int) -> None:
        """Takes the errors of the last `count` evaluations, those of a step that was accepted, and forgets others.

        The first one of all, at the start, counts with the first step.
        """
        first = self.trials[:1] if not self.settled else []
        self.error = float(np.max([self.error, *first, *self.trials[-count:]]))  # which keeps a NaN
        self.trials, self.settled = [], True


class StateField:
    """The field of a flow as a function of its state's numbers in one vector, which counts what it spends."""

    def __init__(self, flow: Flow, objective: Objective, state: PyTree):
        # Numbers become arrays, so that another learning rate doesn't compile again.
        self._flow = jax.tree.map(lambda leaf: jnp.asarray(leaf) if isinstance(leaf, float) else leaf, flow)
        vector, self._unravel = ravel_pytree(state)
        self._whole = isinstance(state, Array) and state.ndim == 1
        self._parameters = self._flow.parameters
        self._evaluate = bound(_evaluate, self._flow, objective, self._unravel, vector)
        self._on_cpu = all(device.platform == "cpu" for device in vector.devices())
        self.start, self.spent = self._placed(vector), Spent()

    def state(self, state: PyTree) -> Any:
        """Returns a state in one vector."""
        return self._placed(ravel_pytree(state)[0])

    def __call__(self, vector: Any) -> Any:
        evaluated = self._placed(self._evaluate(vector))
        slope, numbers = evaluated[:-_NUMBERS], evaluated[-_NUMBERS:]
        products, error, converged, cost = np.asarray(numbers.real).tolist()
        spent = self.spent
        spent.evaluations += 1
        spent.products += int(products)
        spent.most_products = max(spent.most_products, int(products))
        spent.cost += cost
        spent.trials.append(error)
        spent.converged &= bool(converged)
        return slope

    @property
    def fastest_decay(self) -> float | None:
        """The rate of the fastest decay in the field, if the flow knows it."""
        rate = self._flow.fastest_decay
        return None if rate is None else float(rate)

    @property
    def jumps(self) -> str:
        """Where the field may jump, and what to try then."""
        return self._flow.jumps

    def unravelled(self, vector: Any) -> PyTree:
        """Returns a state that is in one vector as the flow has it."""
        return vector if self._whole else self._unravel(jax.device_put(vector))

    def parameters(self, vector: Any) -> Array:
        """Returns the modelled parameters of a state."""
        return self._parameters(self.unravelled(vector))

    def stacked(self, thetas: list[Array]) -> Array:
        """Returns parameters one below the other; on a CPU nothing is compiled for their number."""
        return jax.device_put(np.stack(thetas)) if self._on_cpu else jnp.stack(thetas)

    def _placed(self, vector: Array) -> Any:
        return np.asarray(vector) if self._on_cpu else vector


class StatePath(NamedTuple):
    """The states that were reached of those asked for, the last of all, and how it ended."""

    states: list
    last: Any
    time: float
    steps: int
    solver: str
    status: Status
    message: str


def follow(
    field: StateField,
    state: Any,
    times: np.ndarray,
    rtol: float,
    atol: float,
    solver: str,
    step: float | None,
    max_steps: int,
    show: Callable[[int, str], None] = lambda done, words: None,
) -> StatePath:
    """Returns the path of a state through the times, by Euler's steps where the adaptive solver gets stuck."""
    end = float(times[-1])

    def tell(time: float, evaluations: int) -> None:
        field.spent.settle(evaluations)
        show(int(100 * time / end) if end else 100, f"time {time:.4g} of {end:.4g}, {field.spent.evaluations} fields")

    with np.errstate(all="ignore"):  # a step that overflows is rejected
        if solver == EULER:
            return _path(field, euler(field, state, times, step or end, tell), times, EULER, max_steps)
        followed = adaptive(field, state, times, pairs_of(solver, field.fastest_decay), rtol, atol, max_steps, tell)
        path = _path(field, followed, times, solver, max_steps)
        if path.status in (Status.STUCK, Status.MAX_STEPS) and step is not None:
            field.spent.error = 0.0
            again = _path(field, euler(field, state, times, step, tell), times, EULER, max_steps)
            return again._replace(steps=path.steps + again.steps)
    return path


def _path(field: StateField, followed: Followed, times: np.ndarray, solver: str, max_steps: int) -> StatePath:
    status, steps, end = followed.status, followed.steps, float(times[-1])
    if status is Status.STUCK and _runs_away(followed, end):
        status = Status.DIVERGED
    where = f"at time {followed.time:.4g}"
    jumps = f"{field.jumps}; or give step, to begin again with Euler's steps"
    message = {
        Status.COMPLETED: f"completed: time {end:g} in {steps} steps",
        Status.STUCK: f"stuck {where}: the step size fell to nothing after {steps} steps; {jumps}",
        Status.MAX_STEPS: f"stopped {where} after max_steps={max_steps} steps: allow more, or a larger rtol; {jumps}",
        Status.DIVERGED: f"diverged: the parameters ran to infinity {where}, before the end",
        Status.INTERRUPTED: f"interrupted {where} of {end:.4g}",
    }[status]
    if status is Status.DIVERGED and not steps:
        message = "diverged: the field at the start is too large to be followed"
    return StatePath(followed.states, followed.last, followed.time, steps, solver, status, message)


def _runs_away(followed: Followed, time: float) -> bool:
    """Whether the last state grows by its size or the start's in a millionth of the time."""
    start, last, slope = (float(abs(x).max()) for x in (followed.states[0], followed.last, followed.slope))
    return 1e-6 * time * slope > max(start, last)


def _evaluate(flow: Flow, objective: Objective, unravel: Callable, vector: Array) -> Array:
    """Returns the slope of a state in a vector, and behind it the products, error, convergence and cost of it."""
    field = flow.evaluate(objective, unravel(vector))
    numbers = (field.products, field.error, field.converged, field.cost)
    return jnp.concatenate([ravel_pytree(field.vector)[0], jnp.stack([jnp.asarray(n, vector.dtype) for n in numbers])])


def _save_times(time: float, saves, theta: Array) -> np.ndarray:
    if saves is None:
        return np.array([0.0, time])
    if isinstance(saves, int | np.integer):
        count = _checks.whole("saves", saves, least=1) + 1
        _check_memory(count, theta)
        return np.linspace(0.0, time, count)
    try:
        times = np.asarray(saves, dtype=float)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"saves must be times, or how many, got {_checks.shown(saves)}.") from error
    ordered = times.ndim == 1 and times.size > 0 and bool(np.all(np.diff(times) >= 0))
    if not ordered or not (times[0] >= 0 and times[-1] <= time):
        raise ValueError(f"saves must be increasing times from 0 to time={time}, got {_checks.shown(saves)}.")
    _check_memory(times.size, theta)
    return times


def _check_memory(saves: int, theta: Array) -> None:
    # A complex flow's states are twice as large.
    _checks.fits("saves", 2 * saves * theta.nbytes, f"{saves} states of {theta.size} parameters")
