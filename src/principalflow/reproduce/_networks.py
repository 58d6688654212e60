"""Networks on data sets, descent through them, and their sharpness on the way."""

from collections.abc import Iterable, Iterator
from typing import Any

import jax
import numpy as np

from principalflow import data as datasets
from principalflow import models
from principalflow.descent import descend
from principalflow.objective import Objective, Vector
from principalflow.spectrum import top_eigenpairs


def classifier(
    data: str,
    samples: int,
    model: str,
    width: float,
    seed: int,
    chunk: int | None = None,
    loss: str = "cross-entropy",
    precision: str = "double",
    **options: Any,
) -> Objective:
    """Returns the loss of a network with elu units, as the paper's, over a data set.

    Args:
        data: The data set's name.
        samples: How many of its samples.
        model: The network's name; of "mlp" are the paper's three hidden layers of 100.
        width: Multiplies the units or channels.
        seed: For the starting weights.
        chunk: The most samples to evaluate at once; None for all.
        loss: The loss's name.
        precision: "single" or "double".
        options: Further options of the network, as `principalflow.models.build` takes them.

    Returns:
        The objective; its `theta` is the start.
    """
    dataset = datasets.load(data, samples, test_samples=0)
    key, dtype = jax.random.key(seed), np.float32 if precision == "single" else np.float64
    network = models.build(model, dataset.input_shape, dataset.classes or 1, key, width=width, dtype=dtype, **options)
    return Objective(models.loss(loss), network, (dataset.inputs.astype(dtype), dataset.labels), chunk)


def iterates(objective: Objective, h: float, steps: int, every: int) -> Iterator[tuple[int, Vector]]:
    """Yields every so many steps of descent with its parameters, the start first, as long as it is finite."""
    theta = objective.theta
    yield 0, theta
    for step in range(every, steps + 1, every):
        path = descend(objective, theta, h, every)  # in pieces, so that a long run of a large network fits in memory
        if path.diverged:
            return
        theta = path.thetas[-1]
        yield step, theta


def sharpness(objective: Objective, thetas: Iterable[Vector]) -> np.ndarray:
    """Returns the Hessian's largest eigenvalue at each of these, each found from the one before; NaN where it isn't."""
    eigenpairs, values = None, []
    for theta in thetas:
        eigenpairs = top_eigenpairs(objective, theta, 1, guess=eigenpairs, tol=1e-2)
        values.append(float(eigenpairs.values[0]) if eigenpairs.converged else np.nan)
    return np.array(values)
