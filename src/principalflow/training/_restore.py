"""What a run has learned."""

from pathlib import Path
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from principalflow.objective import Objective, Vector
from principalflow.runs import CONFIG, RunError, find, last_checkpoint
from principalflow.training._member import THETA
from principalflow.training._options import Options
from principalflow.training._problem import problem


class Restored(NamedTuple):
    """A run's loss, and where the run got to.

    Attributes:
        objective: The loss over its training samples; its own `theta` is where the run started.
        theta: The parameters at its newest checkpoint.
        step: The step of that checkpoint; of a finished run the last one.
    """

    objective: Objective
    theta: Vector
    step: int


def restore(path: str | Path) -> Restored:
    """Returns what a run has learned, and its loss, to look at its spectrum or landscape.

    Args:
        path: The directory of a single run, as `run` or `principalflow train` writes it.

    Returns:
        `Restored`: the objective, the parameters and their step.

    Raises:
        ValueError: If it is a folder of several runs, or its data can't be had.
        RunError: If it is no run, or has no checkpoint that can be read.

    Example:
        >>> import tempfile
        >>> import principalflow as pf
        >>> options = pf.training.Options(data="iris", hidden=(4,), learning_rate=0.1, steps=20)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = pf.training.run(options, f"{folder}/run", progress=False, say=lambda sentence: None)
        ...     objective, theta, step = pf.training.restore(f"{folder}/run")
        >>> step, bool(objective.value(theta) < objective.value(objective.theta))
        (20, True)
    """
    first, *others = find(path)
    if first != Path(path):
        raise ValueError(
            f"path must be a single run, got the folder {path} of {1 + len(others)}, such as {first.name}."
        )
    options = Options.from_file(Path(path) / CONFIG)
    step, theta = parameters(Path(path))
    return Restored(problem(options, progress=None).objective, jnp.asarray(theta), step)


def parameters(path: Path) -> tuple[int, np.ndarray]:
    """Returns the step and the parameters of a run's newest checkpoint."""
    step, arrays = last_checkpoint(path)
    if THETA not in arrays:
        raise RunError(f"the checkpoint of step {step} in {path} is not one of a training.")
    return step, arrays[THETA]
