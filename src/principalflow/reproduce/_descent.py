"""Descent through networks without records, and the sharpness on the way."""

from collections import deque
from collections.abc import Iterable, Iterator

import numpy as np

from principalflow._checks import NonFiniteError
from principalflow.descent import descend
from principalflow.objective import Objective, Vector
from principalflow.reproduce._trained import Training
from principalflow.spectrum import top_eigenpairs


def iterates(objective: Objective, training: Training) -> Iterator[tuple[int, Vector]]:
    """Yields the iterates that a training keeps with their steps, the start first, as long as they are finite."""
    theta = objective.theta
    yield 0, theta
    for step in range(training.keep, training.steps + 1, training.keep):
        # In pieces, so that a long run of a large network fits in memory.
        path = descend(objective, theta, training.h, training.keep)
        if path.status == "diverged":
            return
        theta = path.thetas[-1]
        yield step, theta


def end(objective: Objective, training: Training) -> Vector:
    """Returns where a training ends, the last iterate that it keeps."""
    ((_, theta),) = deque(iterates(objective, training), maxlen=1)
    return theta


def sharpness(objective: Objective, thetas: Iterable[Vector]) -> np.ndarray:
    """Returns the Hessian's largest eigenvalue at each of these, each found from the one before; NaN where it isn't."""
    eigenpairs, values = None, []
    for theta in thetas:
        try:
            eigenpairs = top_eigenpairs(objective, theta, 1, guess=eigenpairs, tol=1e-2)
        except NonFiniteError:
            values.append(np.nan)
        else:
            values.append(float(eigenpairs.values[0]) if eigenpairs.converged else np.nan)
    return np.array(values)
