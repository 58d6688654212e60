"""Descent that records, for an experiment, and the sharpness along any path."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from principalflow._checks import NonFiniteError, Numbers
from principalflow.descent import Descent, Recorder, descend
from principalflow.objective import Objective, Vector
from principalflow.spectrum import top_eigenpairs


def recorded(objective: Objective, theta: Numbers, h: float, steps: int, record: Recorder, **options: Any) -> Descent:
    """Returns what `descend` does; an interruption ends the experiment, of which half is none."""
    path = descend(objective, theta, h, steps, record=record, progress=False, **options)
    if path.status == "interrupted":
        raise KeyboardInterrupt
    return path


@dataclass(frozen=True)
class Sharpness:
    """Records the Hessian's largest eigenvalue alone, each found from the one before; NaN where it isn't found."""

    every: int = 1

    def start(self, objective: Objective) -> Callable[[Vector, float], dict[str, float]]:
        """Returns what takes one record after another."""
        eigenpairs = None

        def take(theta: Vector, h: float) -> dict[str, float]:
            nonlocal eigenpairs
            try:
                eigenpairs = top_eigenpairs(objective, theta, 1, guess=eigenpairs, tol=1e-2)
            except NonFiniteError:
                return {"sharpness": np.nan}
            return {"sharpness": float(eigenpairs.values[0]) if eigenpairs.converged else np.nan}

        return take


def sharpness(objective: Objective, thetas: Iterable[Vector]) -> np.ndarray:
    """Returns the Hessian's largest eigenvalue at each of these, as `Sharpness` records it."""
    take = Sharpness().start(objective)
    return np.array([take(theta, np.nan)["sharpness"] for theta in thetas])
