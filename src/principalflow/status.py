"""How a computation ended: one vocabulary for all results."""

from enum import StrEnum

__all__ = ["Status"]


class Status(StrEnum):
    """How a computation stands or ended. Each is its own word, so `status == "completed"` works too.

    Results have a `status` for programs, and a `message` for people: what happened here, and what to try.

    Attributes:
        RUNNING: It has not ended yet.
        COMPLETED: It did what was asked.
        INEXACT: It came to its end, but something is known less exactly than was asked.
        STUCK: The step size fell to nothing, as at a jump of the field.
        MAX_STEPS: It gave up after as many steps as it was allowed.
        DIVERGED: The numbers left the range of what can be computed with.
        INTERRUPTED: It was stopped from outside; what it had is kept.

    Example:
        >>> import principalflow as pf
        >>> bowl = pf.functions.quadratic([[1.0]])
        >>> pf.integrate(pf.flows.NegativeGradient(), bowl, [1.0], time=1.0).status is pf.Status.COMPLETED
        True
    """

    RUNNING = "running"
    COMPLETED = "completed"
    INEXACT = "inexact"
    STUCK = "stuck"
    MAX_STEPS = "max_steps"
    DIVERGED = "diverged"
    INTERRUPTED = "interrupted"
