"""Recorded descent from where a training has come to, and the sharpness along any path."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from principalflow._checks import NonFiniteError, Numbers
from principalflow.descent import Descent, descend
from principalflow.objective import Objective, Vector
from principalflow.record import Record
from principalflow.spectrum import top_eigenpairs
from principalflow.training import Options


def recorded(
    training: Options, objective: Objective, theta: Numbers, h: float, steps: int, every: int = 1, **options: Any
) -> Descent:
    """Returns descent from `theta`, with the records that a training has; `options` are further ones of `descend`."""
    record = Record(every=every, k=training.directions, tol=training.tolerance)
    path = descend(objective, theta, h, steps, record=record, progress=False, **options)
    if path.status == "interrupted":  # half an experiment is none
        raise KeyboardInterrupt
    return path


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
