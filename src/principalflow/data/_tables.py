"""Data without a test part of its own: scikit-learn's bundled sets, and what tables have in common."""

from typing import Any

import numpy as np

from principalflow.data._dataset import Dataset, Request
from principalflow.data._order import split
from principalflow.data._scale import by_training_part


def bundled(name: str, request: Request) -> Dataset:
    """Returns scikit-learn's data set of this name."""
    function = f"load_{name.replace('-', '_')}"
    bunch = getattr(sklearn_datasets(name), function)()
    inputs, axis = (bunch.images[..., None] / 16, None) if name == "digits" else (bunch.data, 0)
    class_names = tuple(str(label) for label in bunch.target_names)
    return from_table(name, f"scikit-learn, datasets.{function}", class_names, inputs, bunch.target, request, axis)


def sklearn_datasets(name: str) -> Any:
    """Returns the module `sklearn.datasets`."""
    try:
        from sklearn import datasets
    except ImportError as error:
        raise ImportError(f"{name} comes with scikit-learn: pip install 'principalflow[reproduce]'.") from error
    return datasets


def from_table(
    name: str,
    source: str,
    class_names: tuple[str, ...] | None,
    inputs: np.ndarray,
    labels: np.ndarray,
    request: Request,
    axis: int | None = 0,
) -> Dataset:
    """Returns what is asked for of the samples, of which a fifth is for testing."""
    train, test = split(labels)
    # All training samples are scaled before some are taken: a subset has the same numbers as the whole.
    train_inputs, test_inputs = by_training_part(inputs[train], inputs[test], axis, request.standardize)
    return request.dataset(
        name,
        source,
        class_names,
        (request.train(train_inputs), request.train(labels[train])),
        (request.test(test_inputs), request.test(labels[test])),
    )
