"""Following a flow through time."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import optimistix
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Inexact, PyTree

from principalflow import _checks
from principalflow._compiled import compiled
from principalflow._holomorphic import require_holomorphic
from principalflow.flows._flow import Flow, as_flow
from principalflow.objective import Objective, as_objective, checked_theta

SOLVERS = {"euler": diffrax.Euler, "tsit5": diffrax.Tsit5, "dopri8": diffrax.Dopri8}
# Without its own compilation, which is never forgotten: it is part of a larger one here.
_diffeqsolve: Callable = diffrax.diffeqsolve.__wrapped__  # pyright: ignore
# Below this tolerance the 8th-order pair needs fewer evaluations than the 5th-order one.
_TIGHT = 1e-8
# More Euler steps than these aren't meant: they would take hours for the smallest of losses.
_MOST_EULER_STEPS = 10**9
# Field evaluations per step; the adaptive pairs reuse their last stage as the next step's first.
_STAGES = {"euler": 1, "tsit5": 6, "dopri8": 13}

Status = Literal["completed", "stuck", "diverged", "max_steps", "inexact"]


@dataclass(frozen=True)
class Solution:
    """A flow's solution, as far as it was reached.

    Attributes:
        times: The times that were asked for and reached.
        thetas: The parameters at each of them; finite, complex for complex flows.
        evaluations: Evaluations of the vector field.
        steps: Solver steps, rejected ones included.
        status: "completed", or what kept it from the end: "stuck" (the step size fell to nothing),
            "diverged", "max_steps"; "inexact" if at the start or the end the field was less exact than `rtol`.
        message: The status in a sentence, with what to try.
    """

    times: Float[Array, " saves"]
    thetas: Inexact[Array, "saves D"]
    evaluations: int
    steps: int
    status: Status
    message: str


def integrate(
    flow: Flow,
    objective: Objective,
    theta: _checks.Numbers,
    time: float,
    rtol: float = 1e-6,
    atol: float = 1e-9,
    solver: Literal["auto", "tsit5", "dopri8", "euler"] = "auto",
    step: float | None = None,
    saves: int | Sequence[float] | Array | None = None,
    max_steps: int = 1000,
) -> Solution:
    """Follows a flow from `theta` for `time`; one learning rate of time is one step of descent.

    Args:
        flow: The flow; a complex one needs a holomorphic loss, which is checked first.
        objective: The loss.
        theta: The flat starting point.
        time: How long to follow the flow.
        rtol: Relative tolerance of a solver step, below 1.
        atol: Absolute tolerance of a solver step.
        solver: `"auto"` takes tsit5, and dopri8 for rtol below 1e-8. `"euler"` with `step=5e-5` is the
            paper's way (appendix C), for comparison.
        step: The step of `"euler"`; the other solvers choose theirs.
        saves: None for start and end, a whole number n for n + 1 evenly spaced times from 0 to `time`,
            or the times themselves. The solver steps on them.
        max_steps: The solver gives up after this many steps, and says so. "euler" takes what it needs.

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
        'completed'
    """
    time = _checks.non_negative("time", time)
    rtol, atol = _checks.tolerance("rtol", rtol), _checks.non_negative("atol", atol)
    max_steps = _checks.whole("max_steps", max_steps, least=1)
    _checks.one_of("solver", solver, ("auto", *SOLVERS))
    if (step is None) == (solver == "euler"):
        given = f"step={_checks.shown(step)}, solver={solver!r}"
        raise ValueError(f"step goes with solver='euler', and only with it; got {given}.")
    times = _save_times(time, saves, as_objective(objective).theta)
    theta = check_start(flow, objective, theta)
    if solver == "euler":
        step = _checks.positive("step", step)
        if time > _MOST_EULER_STEPS * step:
            raise ValueError(f"step must be at least time / {_MOST_EULER_STEPS}, got {step:g} for time={time:g}.")
        max_steps = int(np.ceil(time / step)) + 2
    else:
        rtol = _checks.resolvable("rtol", rtol, theta.dtype)
    chosen = solver_for(rtol) if solver == "auto" else solver
    state = flow.start(objective, theta)
    to_the_end = times if times[-1] == time else np.append(times, time)
    solution, _ = solve(flow, objective, state, to_the_end, rtol, atol, chosen, step, max_steps, field_rtol=rtol)
    if solution.steps == 0 and solution.status == "diverged":
        raise ValueError("theta must have a finite vector field under the flow; it is not finite there.")
    return replace(solution, times=solution.times[: len(times)], thetas=solution.thetas[: len(times)])


def check_start(flow: Flow, objective: Objective, theta: _checks.Numbers) -> Array:
    """Returns `theta` as an array if the flow can be followed from it on this loss, or raises."""
    as_flow(flow)
    theta = checked_theta(objective, theta, half=False)
    if flow.is_complex or jnp.iscomplexobj(theta):
        require_holomorphic(objective, theta)
    return theta


def solver_for(rtol: float) -> str:
    """Returns the name of the adaptive solver that reaches `rtol` with the fewest evaluations."""
    return "dopri8" if rtol < _TIGHT else "tsit5"


def solve(
    flow: Flow,
    objective: Objective,
    state: PyTree,
    times: np.ndarray,
    rtol: float,
    atol: float,
    solver: str,
    step: float | None,
    max_steps: int,
    field_rtol: float,
) -> tuple[Solution, PyTree]:
    """Returns the solution from `state` to the last of `times`, and the state it ended in; see `integrate`.

    It is called inexact where the field's own relative error is above `field_rtol`.
    """
    # Numbers become arrays, so that another learning rate, tolerance or time doesn't compile again.
    flow = jax.tree.map(lambda leaf: jnp.asarray(leaf) if isinstance(leaf, float) else leaf, flow)
    slope = flow.field(objective, state)
    if not np.isfinite(_size(slope)):
        reached = jnp.asarray(times[times == 0])
        thetas = jnp.broadcast_to(flow.parameters(state), (len(reached), objective.theta.size))
        return Solution(reached, thetas, 1, 0, "diverged", "diverged: the field is not finite at the start"), state
    if step is None:
        # The whole time at once if that moves the state little; the controller corrects a bold guess.
        step = min(times[-1], 0.1 * float((1 + _norm(state)) / _norm(slope)))
    dtype = ravel_pytree(state)[0].real.dtype
    numbers = (times, rtol, atol, step if times[-1] > 0 else 1.0)
    arrays = tuple(jnp.asarray(number, dtype) for number in numbers)
    with warnings.catch_warnings():
        # Explicit solvers are sound on complex states; tests compare them with scipy's.
        warnings.filterwarnings("ignore", message="Complex dtype support in Diffrax")
        saved, states, end, last, steps, result = _solve(flow, objective, state, slope, arrays, solver, max_steps)

    status, message = _describe(flow, result, float(times[-1]), float(end), int(steps), max_steps)
    if _runs_away(flow, objective, state, last, float(times[-1]) if status == "stuck" else 0.0):
        status, message = "diverged", "diverged: the parameters ran to infinity before the end"
    elif status == "completed":
        field_error = np.max([float(flow.field_error(objective, at) or 0) for at in (state, last)])
        if not field_error <= field_rtol:  # NaN is not known at all
            status = "inexact"
            message = f"reached the end, but the field is only known to {field_error:.1e}: {flow.remedy}"
    thetas = jax.vmap(flow.parameters)(states)
    reached = int(np.sum(np.isfinite(saved) & np.all(np.isfinite(thetas), axis=1)))
    # The adaptive solvers evaluate once more than their steps: at the start.
    evaluations = _STAGES[solver] * int(steps) + (solver != "euler")
    return Solution(saved[:reached], thetas[:reached], evaluations, int(steps), status, message), last


@compiled
def _solve(flow, objective, state, slope, numbers, solver, max_steps):
    times, rtol, atol, step = numbers
    time = times[-1]
    if solver == "euler":
        controller, solver_state = diffrax.ConstantStepSize(), None
    else:
        least = time * max(1e-10, 16 * jnp.finfo(time.dtype).eps)
        controller = diffrax.PIDController(rtol=rtol, atol=atol, dtmin=least, force_dtmin=False, norm=_norm)
        # Step on the times to save: interpolating between steps would lose digits to the tolerance.
        controller = diffrax.ClipStepSizeController(controller, step_ts=times)
        solver_state = (jnp.asarray(False), slope)  # not the first step: its first stage is known
    solution = _diffeqsolve(
        diffrax.ODETerm(lambda _, y, __: _while_in_range(y, flow.field(objective, y))),
        SOLVERS[solver](),
        t0=jnp.zeros_like(time),
        t1=time,
        dt0=step,
        y0=state,
        stepsize_controller=controller,
        saveat=diffrax.SaveAt(subs=[diffrax.SubSaveAt(ts=times), diffrax.SubSaveAt(t1=True)]),
        adjoint=diffrax.ForwardMode(),  # nothing is differentiated, and this compiles in half the time
        max_steps=max_steps,
        throw=False,
        solver_state=solver_state,
    )
    (saved, end), (states, last) = solution.ts, solution.ys  # pyright: ignore[reportGeneralTypeIssues]
    last = jax.tree.map(lambda leaf: leaf[-1], last)
    return saved, states, end[-1], last, solution.stats["num_steps"], solution.result


def _norm(state: PyTree) -> Array:
    """Root mean square, infinite for NaN: the controller shrinks its step at infinity but hangs at NaN."""
    norm = optimistix.rms_norm(state)
    return jnp.where(jnp.isnan(norm), jnp.inf, norm)


def _while_in_range(state: PyTree, slope: PyTree) -> PyTree:
    """Returns the slope, NaN once it or the state is beyond measure.

    The controller rejects a step with a NaN in it, but takes one to infinity for exact.
    """
    entries = jnp.abs(ravel_pytree((state, slope))[0])
    in_range = jnp.max(entries) < jnp.sqrt(jnp.finfo(entries.dtype).max)
    return jax.tree.map(lambda leaf: jnp.where(in_range, leaf, jnp.nan), slope)


def _runs_away(flow: Flow, objective: Objective, start: PyTree, last: PyTree, time: float) -> bool:
    """Whether the last state is beyond measure, or grows by its size or the start's in a millionth of the time."""
    size = _size(last)
    largest = float(jnp.finfo(ravel_pytree(last)[0].dtype).max) ** 0.25  # the solver stops short of its square
    if not size < largest:
        return True
    return time > 0 and 1e-6 * time * _size(flow.field(objective, last)) > max(size, _size(start))


def _size(state: PyTree) -> float:
    return float(jnp.max(jnp.abs(ravel_pytree(state)[0])))


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


def _describe(flow: Flow, result, time: float, end: float, steps: int, max_steps: int) -> tuple[Status, str]:
    if result == diffrax.RESULTS.successful:
        return "completed", f"completed: time {time:g} in {steps} steps"
    hint = "the field may jump here"
    if getattr(flow, "branch", None) == "principal":
        hint += ", as the principal branch does; try branch='continuous'"
    if result == diffrax.RESULTS.dt_min_reached:
        return "stuck", f"stuck at time {end:.4g}: the step size fell to nothing after {steps} steps; {hint}"
    where = f"stopped at time {end:.4g} after max_steps={max_steps} steps"
    return "max_steps", f"{where}: allow more, or a larger rtol; {hint}"
