"""Trainings that several experiments look at: each is made once, and kept by its settings."""

import functools
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas
from numpy.typing import NDArray

from principalflow import data as datasets
from principalflow import models
from principalflow._checks import NonFiniteError
from principalflow.descent import descend
from principalflow.flows import PRODUCT_COST
from principalflow.objective import Objective, Vector
from principalflow.record import Record
from principalflow.reproduce._experiment import Table
from principalflow.reproduce._kept import place

_IN_MEMORY = 4  # trainings that a process keeps at hand


@dataclass(frozen=True)
class Training:
    """Full-batch descent of a network on data, recorded with its largest eigenpairs.

    Attributes:
        data: The data set's name.
        samples: How many of its samples.
        model: The network's name, with elu units; of "mlp" are the paper's three hidden layers of 100.
        width: Multiplies the units or channels.
        h: The learning rate.
        steps: How many steps.
        loss: "cross-entropy" or "mean-square".
        directions: How many eigenpairs are recorded.
        tolerance: Their residual, relative to the largest eigenvalue.
        precision: Of the network's numbers.
        options: Further options of the network by name, as `principalflow.models.build` takes them.
        chunk: The most samples to evaluate at once; None for all.
        keep: Every so manieth iterate is kept; descent finds those between again.
        seed: For the starting weights.
    """

    data: str
    samples: int
    model: str
    width: float
    h: float
    steps: int
    loss: Literal["cross-entropy", "mean-square"] = "cross-entropy"
    directions: int = 1
    tolerance: float = 1e-2
    precision: Literal["single", "double"] = "double"
    options: tuple[tuple[str, str], ...] = ()
    chunk: int | None = None
    keep: int = 1
    seed: int = 0

    @property
    def label(self) -> str:
        """Its name in figures and claims."""
        return f"{self.model} on {self.data}, {self.loss}, h = {self.h:g}"

    def make(self) -> None:
        """Makes it, where it isn't there already."""
        trained(self)

    def objective(self) -> Objective:
        """Returns the loss; its `theta` is the start."""
        dataset = datasets.load(self.data, self.samples, test_samples=0)
        dtype = np.float32 if self.precision == "single" else np.float64
        shape, classes = dataset.input_shape, dataset.classes or 1
        options: Any = dict(self.options)
        key = jax.random.key(self.seed)
        network = models.build(self.model, shape, classes, key, width=self.width, dtype=dtype, **options)
        samples = dataset.inputs.astype(dtype), dataset.labels
        return Objective(models.loss(self.loss), network, samples, self.chunk)


class Trained(NamedTuple):
    """What came out of a training.

    Attributes:
        training: Its settings.
        objective: The loss.
        records: A row for each step, as `principalflow.Record` has them.
        kept: Every so manieth iterate, the start first.
    """

    training: Training
    objective: Objective
    records: Table
    kept: NDArray

    @property
    def cost(self) -> float:
        """What it cost, in gradients: steps, and the Hessian products of its eigenpairs."""
        return cost(self.records)

    def theta(self, step: int) -> NDArray:
        """Returns the iterate after so many steps."""
        nearest, further = divmod(step, self.training.keep)
        if not further:
            return self.kept[nearest]
        return np.asarray(descend(self.objective, self.kept[nearest], self.training.h, further).thetas[-1])


@functools.lru_cache(_IN_MEMORY)
def trained(training: Training) -> Trained:
    """Returns the training's results, from the folder of this run if they are there; otherwise it is made, and kept."""
    objective, file = training.objective(), place(training, ".npz")
    if file and file.exists():
        with np.load(file) as saved:
            arrays = dict(saved)
    else:
        records, kept = descended(training, objective, objective.theta)
        columns = {name: column.to_numpy() for name, column in records.items()}
        arrays = {name: values.astype(str) if values.dtype == object else values for name, values in columns.items()}
        arrays["kept"] = kept
        if file:
            _save(file, arrays)
    kept = arrays.pop("kept")
    return Trained(training, objective, pandas.DataFrame(arrays), kept)


def cost(records: Table) -> float:
    """Returns what recorded steps cost, in gradients: the steps, and the Hessian products of their eigenpairs."""
    return len(records) + PRODUCT_COST * float(records["products"].sum())


def descended(training: Training, objective: Objective, theta: Vector | NDArray) -> tuple[Table, NDArray]:
    """Returns the records of all steps from `theta`, and the iterates to keep; fewer if descent diverges.

    `descend` would compile its steps, which takes minutes for a large network, and keep all iterates.
    """
    take = Record(k=training.directions, tol=training.tolerance).start(objective)
    theta, rows, kept = jnp.asarray(theta), [], []
    for step in range(training.steps + 1):
        try:
            rows.append({"step": step, **take(theta, training.h)})
        except NonFiniteError:
            if not rows:
                raise
            break
        if step % training.keep == 0:
            kept.append(np.asarray(theta))
        theta = theta - training.h * take.gradient
    return pandas.DataFrame(rows), np.stack(kept)


def _save(file: Path, arrays: dict[str, NDArray]) -> None:
    unfinished = file.with_name(f".{file.stem}.{os.getpid()}.npz")
    np.savez(unfinished, **arrays)  # pyright: ignore[reportArgumentType]
    os.replace(unfinished, file)
