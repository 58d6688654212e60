"""A data set, and what of it is asked for."""

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Float32, Int64

from principalflow import _checks

Inputs = Float32[np.ndarray, "N *shape"]
Labels = Int64[np.ndarray, " N"] | Float32[np.ndarray, "N *classes"]
Labelled = tuple[np.ndarray, np.ndarray]
_LONGEST_PATH = 4096  # on Linux; others allow less
Ordered = TypeVar("Ordered", np.ndarray, range)


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Samples with their labels, for training and for testing.

    Attributes:
        name: Its name.
        inputs: Float32: images as (N, height, width, channels), tables as (N, features).
        labels: The classes as int64 (N,), as float32 (N, classes) with `one_hot`, or float32 targets (N,).
        test_inputs: The same for testing; None if there are none.
        test_labels: The same for testing; None if there are none.
        class_names: What the classes are called; None for regression.
        source: Where it came from.
    """

    name: str
    inputs: Inputs
    labels: Labels
    test_inputs: Inputs | None
    test_labels: Labels | None
    class_names: tuple[str, ...] | None
    source: str

    @property
    def classes(self) -> int | None:
        """How many classes there are; None for regression."""
        return None if self.class_names is None else len(self.class_names)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one sample."""
        return self.inputs.shape[1:]

    def __repr__(self) -> str:
        tests = 0 if self.test_inputs is None else len(self.test_inputs)
        kind = "regression" if self.classes is None else f"{self.classes} classes"
        return f"Dataset({self.name!r}: {len(self.inputs)} samples and {tests} for testing, {self.input_shape}, {kind})"


@dataclass(frozen=True)
class Request:
    """Which part of a data set is asked for, and in what form."""

    samples: int | None = None
    test_samples: int | None = None
    standardize: bool = True
    one_hot: bool = False
    progress: bool | None = None

    def __post_init__(self):
        for name in ("standardize", "one_hot"):
            _checks.flag(name, getattr(self, name))
        if self.progress is not None:
            _checks.flag("progress", self.progress)
        if self.samples is not None:
            _checks.whole("samples", self.samples, least=1)
        if self.test_samples is not None:
            _checks.whole("test_samples", self.test_samples, least=0)

    def train(self, ordered: Ordered) -> Ordered:
        """Returns the first of these, as many as to train on."""
        return _first("samples", ordered, self.samples)

    def test(self, ordered: Ordered) -> Ordered:
        """Returns the first of these, as many as to test on."""
        return _first("test_samples", ordered, self.test_samples)

    def dataset(
        self, name: str, source: str, class_names: tuple[str, ...] | None, train: Labelled, test: Labelled
    ) -> Dataset:
        """Returns the data set of these inputs and labels, of which only the labels' form is still to be made."""
        tests = (test[0], self._labels(test[1], class_names)) if len(test[0]) else (None, None)
        return Dataset(name, train[0], self._labels(train[1], class_names), *tests, class_names, source)

    def _labels(self, labels: np.ndarray, class_names: tuple[str, ...] | None) -> np.ndarray:
        if class_names is None:
            if self.one_hot:
                raise ValueError("one_hot must be False for regression: float labels have no classes.")
            return labels.astype(np.float32)
        if not self.one_hot:
            return labels.astype(np.int64)
        shape = len(labels), len(class_names)
        what = f"labels of {shape[0]} samples in {shape[1]} classes"
        _checks.fits("one_hot", 4 * math.prod(shape), what, on_host=True)
        encoded = np.zeros(shape, np.float32)
        encoded[np.arange(len(labels)), labels] = 1
        return encoded


def user_path(name: str, value: Any) -> Path:
    """Returns the path of a file or folder, in which ~ is the user's home."""
    path = os.path.expanduser(_checks.path(name, value))
    if len(path) > _LONGEST_PATH:
        raise ValueError(f"{name} must be a path of at most {_LONGEST_PATH} characters, got {_checks.shown(path)}.")
    return Path(path)


def _first(argument: str, ordered: Ordered, count: int | None) -> Ordered:
    if count is not None and count > len(ordered):
        raise ValueError(
            f"{argument} must be at most {len(ordered)}, which is all there are, got {_checks.shown(count)}."
        )
    return ordered[:count]
