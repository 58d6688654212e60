"""Images in memory, with a test part of their own."""

from collections.abc import Sequence

import numpy as np

from principalflow.data._dataset import Dataset, Labelled, Request
from principalflow.data._order import order
from principalflow.data._scale import pixels


def from_images(
    name: str,
    source: str,
    class_names: tuple[str, ...],
    train: Sequence[Labelled],
    test: Labelled,
    mean: Sequence[float],
    deviation: Sequence[float],
    request: Request,
) -> Dataset:
    """Returns what is asked for of images in bytes with their labels; the training part is in one file or more."""

    def scaled(images: np.ndarray) -> np.ndarray:
        return pixels(images, mean, deviation, request.standardize)

    images, labels = (np.concatenate(parts) for parts in zip(*map(_ordered, train), strict=True))
    test_images, test_labels = _ordered(test)
    return request.dataset(
        name,
        source,
        class_names,
        (scaled(request.train(images)), request.train(labels)),
        (scaled(request.test(test_images)), request.test(test_labels)),
    )


def _ordered(part: Labelled) -> Labelled:
    images, labels = part
    indices = order(labels)
    return images[indices], labels[indices]
