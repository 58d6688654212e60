"""Inputs in units of their spread."""

from collections.abc import Sequence

import numpy as np


def by_training_part(
    train: np.ndarray, test: np.ndarray, axis: int | None, standardize: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Returns both as float32, less the mean of the first over its standard deviation.

    Args:
        train: The samples whose mean and deviation count.
        test: The others.
        axis: 0 for each feature by itself, None for all together.
        standardize: Whether to do this at all.
    """
    if standardize:
        mean, deviation = train.mean(axis), train.std(axis)
        # Rounding gives a constant feature a deviation; divided by infinity it is zero.
        deviation = np.where(np.ptp(train, axis) > 0, deviation, np.inf)
        train, test = (train - mean) / deviation, (test - mean) / deviation
    return train.astype(np.float32), test.astype(np.float32)


def pixels(images: np.ndarray, mean: Sequence[float], deviation: Sequence[float], standardize: bool) -> np.ndarray:
    """Returns bytes (..., channels) as float32 in [0, 1], or less `mean` over `deviation` in each channel."""
    scaled = images.astype(np.float32)
    scaled /= 255
    if standardize:
        scaled -= np.asarray(mean, np.float32)
        scaled /= np.asarray(deviation, np.float32)
    return scaled
