"""Trainings that several experiments look at: each is made once, and kept by its settings."""

import contextlib
import dataclasses
import functools
import hashlib
import json
import os
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import pandas
from numpy.typing import NDArray

from principalflow.descent import descend
from principalflow.objective import Objective
from principalflow.record import Record
from principalflow.reproduce._cost import PRODUCT
from principalflow.reproduce._experiment import Table
from principalflow.reproduce._networks import classifier
from principalflow.reproduce._result import this_code

_FOLDER: ContextVar[Path | None] = ContextVar("folder", default=None)
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
        chunk: The most samples to evaluate at once; None for all.
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
    chunk: int | None = None
    seed: int = 0

    def objective(self) -> Objective:
        """Returns the loss; its `theta` is the start."""
        return classifier(
            self.data, self.samples, self.model, self.width, self.seed, self.chunk, self.loss, self.precision
        )


class Trained(NamedTuple):
    """What came out of a training.

    Attributes:
        training: Its settings.
        objective: The loss.
        records: A row for each step, as `principalflow.Record` has them.
        thetas: The iterates (steps + 1, D), fewer if it diverged.
        losses: The loss at each of them.
    """

    training: Training
    objective: Objective
    records: Table
    thetas: NDArray
    losses: NDArray

    @property
    def cost(self) -> float:
        """What it cost, in gradients: steps, and the Hessian products of its eigenpairs."""
        return len(self.losses) + PRODUCT * float(self.records["products"].sum())


@functools.lru_cache(_IN_MEMORY)
def trained(training: Training) -> Trained:
    """Returns the training's results, from the folder of this run if they are there; otherwise it is made, and kept."""
    folder, objective = _FOLDER.get(), training.objective()
    file = folder and folder / f"{this_code()['code']}-{_digest(training)}.npz"
    if file and file.exists():
        with np.load(file) as saved:
            arrays = dict(saved)
    else:
        path = descend(
            objective,
            objective.theta,
            training.h,
            training.steps,
            Record(k=training.directions, tol=training.tolerance),
            progress=False,
        )
        columns = {name: path.records[name].to_numpy() for name in path.records}
        columns = {name: column.astype(str) if column.dtype == object else column for name, column in columns.items()}
        arrays = {**columns, "thetas": np.asarray(path.thetas), "losses": np.asarray(path.losses)}
        if file:
            _save(file, arrays)
    thetas, losses = arrays.pop("thetas"), arrays.pop("losses")
    return Trained(training, objective, pandas.DataFrame(arrays), thetas, losses)


@contextlib.contextmanager
def trainings_in(folder: Path | None) -> Iterator[None]:
    """Keeps the trainings that are made meanwhile in a folder, and takes what is there; None for neither."""
    token = _FOLDER.set(folder)
    try:
        yield
    finally:
        _FOLDER.reset(token)


def _save(file: Path, arrays: dict[str, NDArray]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    for old in file.parent.glob("*.npz"):
        if not old.name.startswith(this_code()["code"]):  # no run takes it any more
            old.unlink(missing_ok=True)
    unfinished = file.with_name(f".{file.stem}.{os.getpid()}.npz")
    np.savez(unfinished, **arrays)  # pyright: ignore[reportArgumentType]
    os.replace(unfinished, file)


def _digest(training: Training) -> str:
    settings = json.dumps(dataclasses.asdict(training), sort_keys=True)
    return hashlib.sha256(settings.encode()).hexdigest()[:16]
