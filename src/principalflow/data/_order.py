"""The fixed order of a data set's samples, of which every subset is the beginning."""

import numpy as np


def order(labels: np.ndarray) -> np.ndarray:
    """Returns an order that depends on the labels alone; each beginning of it has the classes in proportion.

    Float labels, which are no classes, are shuffled only.
    """
    # The stream of RandomState is frozen, that of default_rng may change with NumPy.
    shuffled = np.random.RandomState(0).permutation(len(labels))
    if labels.dtype.kind == "f":
        return shuffled
    labels, quantiles = labels[shuffled], np.empty(len(labels))
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        quantiles[members] = (np.arange(len(members)) + 0.5) / len(members)
    return shuffled[np.argsort(quantiles, kind="stable")]


def split(labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the samples to train on, in order, and the fifth to test on; every class has some of the first."""
    ordered = order(labels)
    fifth = len(labels) // 5
    train, test = ordered[fifth:], ordered[:fifth]
    if labels.dtype.kind == "f":
        return train, test
    # Of a class with one sample or two, the fifth may have all.
    only = np.isin(labels[test], labels[train], invert=True)
    return np.concatenate([test[only], train]), test[~only]
