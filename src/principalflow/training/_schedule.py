"""Learning rates over the steps of a run."""

import numpy as np

from principalflow import _checks


def rates(learning_rate: float, schedule: str, warmup: int, steps: int) -> np.ndarray:
    """Returns the rate of every step from 0 to `steps`.

    Args:
        learning_rate: Where it starts, after the warm-up.
        schedule: "constant"; "linear" or "cosine", which end at 0; or "STEP:RATE,..." for rates that begin at a step.
        warmup: Steps over which the rate first rises linearly.
        steps: How many steps there are.

    Raises:
        ValueError: For a schedule that can't be read.
    """
    time = np.arange(steps + 1)
    done = np.clip((time - warmup) / max(steps - warmup, 1), 0, 1)
    if schedule in _SHAPES:
        rate = learning_rate * _SHAPES[schedule](done)
    else:
        rate = np.full(steps + 1, learning_rate)
        for step, value in _changes(schedule):
            rate[step:] = value
    return rate * np.minimum((time + 1) / (warmup + 1), 1)


def check(schedule: str) -> None:
    """Raises a ValueError for a schedule that can't be read."""
    if schedule not in _SHAPES:
        _changes(schedule)


def depends_on_steps(schedule: str) -> bool:
    """Whether more steps would change the rates of the earlier ones."""
    return schedule in ("linear", "cosine")


_SHAPES = {
    "constant": np.ones_like,
    "linear": lambda done: 1 - done,
    "cosine": lambda done: (1 + np.cos(np.pi * done)) / 2,
}


def _changes(schedule: str) -> list[tuple[int, float]]:
    try:
        parts = [part.split(":") for part in schedule.split(",")]
        changes = [(int(step), _checks.positive("schedule", float(rate))) for step, rate in parts]
    except ValueError as error:
        given, guess = _checks.shown(schedule), _checks.did_you_mean(schedule, _SHAPES)
        raise ValueError(
            f"schedule must be one of {', '.join(_SHAPES)}, or STEP:RATE,STEP:RATE,..., got {given}.{guess}"
        ) from error
    steps = [step for step, _ in changes]
    if sorted(set(steps)) != steps or steps[0] < 0:
        raise ValueError(f"schedule must name its steps in increasing order, got {_checks.shown(schedule)}.")
    return changes
