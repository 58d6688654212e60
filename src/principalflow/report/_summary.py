"""A run in words, and runs side by side."""

from collections.abc import Callable
from typing import SupportsFloat

import numpy as np

from principalflow.report._run import OF_DESCENT, RELATIVE, SCALED, Run, of_descent

_NONE = "none"
_STATUS = {
    "running": "The run is still going",
    "completed": "The run completed",
    "diverged": "The run diverged",
    "interrupted": "The run was interrupted",
}


def sentences(run: Run) -> list[str]:
    """Returns what a reader wants to know first."""
    tellers = (_status, _steps, _loss, _divergence, _rises, _sharpness, _rises_at_measurements)
    return [sentence for tell in tellers if (sentence := tell(run))]


def comparison(runs: list[Run]) -> tuple[list[str], list[list[str]]]:
    """Returns the head and rows of a table: the options that differ, and how each run ended."""
    options = dict.fromkeys(option for run in runs for option in run.config)
    differing = [option for option in options if len({run.config.get(option) for run in runs}) > 1]
    curvature, column = ("largest h λ₀", SCALED) if of_descent(runs) else ("largest λ₀ / threshold", RELATIVE)
    head = ["run", *differing, "final loss", "smallest loss", curvature, "status"]
    return head, [
        [
            run.name,
            *(run.config.get(option, _NONE) for option in differing),
            _number(run.columns["loss"][-1]) if np.isfinite(run.columns["loss"][-1]) else "not finite",
            _extreme(np.min, run, "loss"),
            _extreme(np.max, run, column.format(0)),
            run.status or _NONE,
        ]
        for run in runs
    ]


def _status(run: Run) -> str:
    status, message = _STATUS.get(run.status, ""), run.message.strip().rstrip(".")
    if status and message.startswith(run.status):  # "interrupted at step 4 of 9"
        return f"{status}{message.removeprefix(run.status)}."
    told = ": ".join(part for part in (status, message) if part)
    return f"{told}." if told else ""


def _steps(run: Run) -> str:
    steps, (measured, _) = run.columns["step"], run.recorded("step", "eigenvalue_0")
    rows = f"The run has {_count(len(steps), 'row', 'rows')}, {_span(steps)}"
    if not len(measured):
        return f"{rows}."
    return f"{rows}, and {_count(len(measured), 'measurement', 'measurements')} of the curvature, {_span(measured)}."


def _span(steps: np.ndarray) -> str:
    first, last = _whole(steps[0]), _whole(steps[-1])
    return f"at step {first}" if len(steps) == 1 else f"from step {first} to step {last}"


def _loss(run: Run) -> str:
    finite = np.isfinite(run.columns["loss"])
    steps, losses = run.columns["step"][finite], run.columns["loss"][finite]
    if not len(losses):
        return "No loss is a finite number."
    if len(losses) == 1:
        return f"The loss was {_number(losses[0])}."
    smallest = np.argmin(losses)
    first, last = (f"{_number(losses[i])} at step {_whole(steps[i])}" for i in (0, -1))
    lowest = f"{_number(losses[smallest])}, at step {_whole(steps[smallest])}"
    verb = "rose" if losses[-1] > losses[0] else "fell" if losses[-1] < losses[0] else "went"
    return f"The loss {verb} from {first} to {last}; its smallest value was {lowest}."


def _divergence(run: Run) -> str:
    steps = run.columns["step"][~np.isfinite(run.columns["loss"])]
    return f"At step {_whole(steps[0])} the loss was no longer a finite number." if len(steps) else ""


def _sharpness(run: Run) -> str:
    if run.unknown:
        return _sharpness_alone(run)
    steps, relative, eigenvalues, thresholds = run.recorded("step", RELATIVE.format(0), "eigenvalue_0", "threshold")
    if not len(steps):
        return ""
    above, edge = np.flatnonzero(relative > 1), run.edge
    measurements = _count(len(steps), "measurement", "measurements")
    sharpness = f"λ₀ in {run.metric}'s metric" if run.metric else "λ₀"
    if not len(above):
        largest = np.argmax(relative)
        scaled, name = (2 * relative, "h λ₀") if run.edge == OF_DESCENT else (relative, "λ₀ over it")
        where = f"{_number(scaled[largest])}, at step {_whole(steps[largest])}"
        return f"{sharpness} was above {edge} in none of {measurements}; the largest {name} was {where}."
    first = above[0]
    when = f"first passed {edge} at step {_whole(steps[first])}" if first else f"began above {edge}"
    values = f"{_number(eigenvalues[first])} against {_number(thresholds[first])}"
    share = f"{len(above):,} of {measurements} ({len(above) / len(steps):.0%})"
    return f"{sharpness} {when}: {values}. It was above {edge} in {share}."


def _sharpness_alone(run: Run) -> str:
    steps, eigenvalues = run.recorded("step", "eigenvalue_0")
    largest = np.argmax(eigenvalues)
    where = f"{_number(eigenvalues[largest])}, at step {_whole(steps[largest])}"
    return f"The largest λ₀ was {where}; no threshold is known for {run.optimizer}."


def _rises(run: Run) -> str:
    steps, losses = run.recorded("step", "loss")
    known = (np.diff(steps) == 1) & np.isfinite(losses[:-1])
    if run.of_batches or not np.any(known):
        return ""
    rises = np.count_nonzero(known & (losses[1:] > losses[:-1]))
    return f"{_of(rises, np.count_nonzero(known), 'step', 'steps')} raised the loss."


def _rises_at_measurements(run: Run) -> str:
    changes, relative = run.recorded("loss_change", RELATIVE.format(0))
    if not len(changes) or run.edge != OF_DESCENT:  # with momentum the step is another one
        return ""
    rises, above = np.count_nonzero(changes > 0), np.count_nonzero((changes > 0) & (relative > 1))
    where = _of(rises, len(changes), "measurement", "measurements").lower()
    step = f"A step down the gradient in {run.metric}'s metric" if run.metric else "A step of plain gradient descent"
    told = f"{step} raises the loss at {where}"
    return f"{told}; λ₀ was above {run.edge} at {_whole(above)} of these." if rises else f"{told}."


def _extreme(which: Callable[[np.ndarray], float], run: Run, column: str) -> str:
    (values,) = run.recorded(column)
    finite = values[np.isfinite(values)]
    return _number(which(finite)) if len(finite) else _NONE


def _number(value: SupportsFloat) -> str:
    return f"{float(value):.4g}"


def _whole(value: SupportsFloat) -> str:
    return f"{float(value):,.0f}"


def _count(number: SupportsFloat, one: str, many: str) -> str:
    return f"{_whole(number)} {one if number == 1 else many}"


def _of(part: SupportsFloat, number: SupportsFloat, one: str, many: str) -> str:
    return f"{_whole(part) if part else 'None'} of {_count(number, one, many)}"
