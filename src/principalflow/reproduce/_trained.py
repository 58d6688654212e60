"""Trainings that several experiments look at: each is made once, and kept as a run directory."""

import functools
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from principalflow import runs, training
from principalflow._checks import Numbers
from principalflow._lab import Table
from principalflow.descent import Descent, descend
from principalflow.flows import PRODUCT_COST
from principalflow.objective import Objective
from principalflow.record import Record
from principalflow.reproduce._sweeps import Sweep, directory
from principalflow.status import Status
from principalflow.training import Options

_IN_MEMORY = 4  # trainings that a process keeps at hand


class Trained(NamedTuple):
    """What came out of a training by full-batch descent.

    Attributes:
        training: Its options.
        objective: The loss.
        records: A row for each step, as `principalflow.Record` has them, as far as the numbers are finite.
        steps: The steps of the iterates that were kept.
        kept: These iterates.
    """

    training: Options
    objective: Objective
    records: Table
    steps: NDArray
    kept: NDArray

    @property
    def h(self) -> float:
        """The learning rate."""
        return rate(self.training)

    @property
    def label(self) -> str:
        """Its name in figures and claims."""
        return label(self.training)

    @property
    def cost(self) -> float:
        """What it cost, in gradients: steps, and the Hessian products of its eigenpairs."""
        return cost(self.records)

    def theta(self, step: int) -> NDArray:
        """Returns the iterate after so many steps; descent finds again what wasn't kept."""
        nearest, further = divmod(step, self.training.keep_every)
        if not further:
            return self.kept[nearest]
        return np.asarray(descend(self.objective, self.kept[nearest], self.h, further, keep="last").thetas[0])


@functools.lru_cache(_IN_MEMORY)
def trained(options: Options) -> Trained:
    """Returns what came out of a training, which is made, or continued, where it isn't there already."""
    objective = training.objective(options)  # while it is there, what the training compiles is there too
    with directory(Sweep(options)) as folder:
        records = runs.load(folder)
        if "eigenvalue_0" in records:  # the last steps of a run that diverges have none
            records = records[records["eigenvalue_0"].notna()]
        return Trained(options, objective, records, *runs.iterates(folder))


def label(options: Options) -> str:
    """Returns the name of a training in figures and claims."""
    return f"{options.model} on {options.data}, {options.loss}, h = {options.learning_rate:g}"


def rate(options: Options) -> float:
    """Returns the learning rate of a single training."""
    return cast(float, options.learning_rate)


def record_of(options: Options) -> Record:
    """Returns what a training records, for descent that goes on from it."""
    return Record(k=options.directions, tol=options.tolerance)


def recorded(objective: Objective, theta: Numbers, h: float, steps: int, record: Record, **options: Any) -> Descent:
    """Returns what `descend` does; an interruption ends the experiment, of which half is none."""
    path = descend(objective, theta, h, steps, record=record, progress=False, **options)
    if path.status is Status.INTERRUPTED:
        raise KeyboardInterrupt
    return path


def cost(records: Table) -> float:
    """Returns what recorded steps cost, in gradients: the steps, and the Hessian products of their eigenpairs."""
    return len(records) + PRODUCT_COST * float(records["products"].sum())
