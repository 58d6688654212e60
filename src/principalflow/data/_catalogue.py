"""The data sets by name."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

import pandas

from principalflow import _checks
from principalflow.data import _cifar10, _mnist
from principalflow.data._csv_file import csv
from principalflow.data._dataset import Dataset, Request, user_path
from principalflow.data._files import Files
from principalflow.data._image_folder import image_folder
from principalflow.data._tables import bundled, sklearn_datasets


@dataclass(frozen=True)
class _Known:
    """What is known of a data set before it is loaded."""

    samples: int
    test_samples: int
    shape: tuple[int, ...]
    classes: int
    content: str
    load: Callable[[Request], Dataset]
    files: Files | None = None
    source: str = "bundled with scikit-learn"


_KNOWN = {
    "iris": _Known(120, 30, (4,), 3, "lengths and widths of flowers", partial(bundled, "iris")),
    "breast-cancer": _Known(456, 113, (30,), 2, "measures of cell nuclei", partial(bundled, "breast-cancer")),
    "digits": _Known(1438, 359, (8, 8, 1), 10, "handwritten digits", partial(bundled, "digits")),
    "mnist": _Known(
        60_000,
        10_000,
        (28, 28, 1),
        10,
        "handwritten digits",
        _mnist.mnist,
        _mnist.FILES,
        "download of 12 MB from storage.googleapis.com",
    ),
    "cifar10": _Known(
        50_000,
        10_000,
        (32, 32, 3),
        10,
        "photographs",
        _cifar10.cifar10,
        _cifar10.FILES,
        "download of 170 MB from cs.toronto.edu",
    ),
}


def load(
    name: str | PathLike[str],
    *,
    samples: int | None = None,
    test_samples: int | None = None,
    standardize: bool = True,
    one_hot: bool = False,
    progress: bool | None = None,
    label: str | None = None,
    size: int | None = None,
) -> Dataset:
    """Returns a data set by its name, or your own from a `.csv` file (see `csv`) or a folder (see `image_folder`).

    | name | samples, for testing | input | standardised by |
    | --- | --- | --- | --- |
    | iris | 120, 30 | (4,) | each feature's mean and standard deviation over the training samples |
    | breast-cancer | 456, 113 | (30,) | the same |
    | digits | 1438, 359 | (8, 8, 1) | mean and standard deviation of all training pixels |
    | mnist | 60000, 10000 | (28, 28, 1) | 0.13066 and 0.30811 |
    | cifar10 | 50000, 10000 | (32, 32, 3) | (.4914, .4822, .4465) and (.2470, .2435, .2616) by channel |
    | FILE.csv | four fifths, a fifth | (features,) | as iris |
    | FOLDER | | (224, 224, 3) | ImageNet's (.485, .456, .406) and (.229, .224, .225) by channel |

    Standardised is less the mean over the standard deviation, those of all training samples whichever are asked for; a
    feature that is constant among these is 0. Else pixels are in [0, 1] and features as they are.

    The samples are in a fixed order, shuffled, in which every beginning has the classes in proportion, and `samples=n`
    are the first n: the same everywhere, and those of a smaller n among them. CIFAR-10's are so file by file: the
    first 10,000 are those of data_batch_1, and need no other. Where a set has no test part of its own, a fifth of the
    samples, found in the same way, is it.

    The files of mnist and cifar10 are looked for in the folders `mnist` and `cifar10` of the environment variable
    PRINCIPALFLOW_DATA, then of the user's cache, and else downloaded into the latter; PRINCIPALFLOW_OFFLINE=1 forbids
    that.

    Args:
        name: One of `names()`, or the path of a `.csv` file or of a folder of images.
        samples: How many to train on; None for all.
        test_samples: How many to test on; None for all.
        standardize: Whether inputs are standardised.
        one_hot: Whether labels are float32 (N, classes).
        progress: Whether a download shows how far it is; None for where there is a terminal.
        label: Of a `.csv` file, the column of labels; None for the last.
        size: Of a folder, the images' height and width; None for 224.

    Returns:
        The `Dataset`.

    Raises:
        ValueError: For an unknown name, samples that aren't there, or a label or size that the data don't take.
        DataError: If files are missing and can't be downloaded, or are damaged.
        ImportError: If scikit-learn or Pillow is needed and missing.

    Example:
        >>> import principalflow as pf
        >>> pf.data.load("digits", samples=500)
        Dataset('digits': 500 samples and 359 for testing, (8, 8, 1), 10 classes)
    """
    path, request = user_path("name", name), Request(samples, test_samples, standardize, one_hot, progress)
    is_known, is_csv = isinstance(name, str) and name in _KNOWN, path.suffix.lower() == ".csv"
    is_folder = not is_known and not is_csv and os.path.isdir(path)
    if not (is_known or is_csv or is_folder):
        raise _unknown(name, "the path of a .csv file or of a folder of images")
    if label is not None and not is_csv:
        raise ValueError(f"label is for a .csv file, got {_checks.shown(label)} for {_checks.shown(name)}.")
    if size is not None and not is_folder:
        raise ValueError(f"size is for a folder of images, got {_checks.shown(size)} for {_checks.shown(name)}.")
    if is_known:
        known = _KNOWN[str(name)]
        request.train(range(known.samples))  # too many are refused before a download
        request.test(range(known.test_samples))
        return known.load(request)
    with _checks.renamed(path="name"):
        if is_csv:
            return csv(
                path,
                label=label,
                samples=samples,
                test_samples=test_samples,
                standardize=standardize,
                one_hot=one_hot,
            )
        size = 224 if size is None else size
        return image_folder(
            path,
            size=size,
            samples=samples,
            test_samples=test_samples,
            standardize=standardize,
            one_hot=one_hot,
            progress=progress,
        )


def names() -> tuple[str, ...]:
    """Returns the names that `load` knows.

    Example:
        >>> import principalflow as pf
        >>> pf.data.names()
        ('iris', 'breast-cancer', 'digits', 'mnist', 'cifar10')
    """
    return tuple(_KNOWN)


def describe() -> pandas.DataFrame:
    """Returns a table of the data sets that `load` knows: how many, of which shape, and where they come from.

    Returns:
        A pandas DataFrame.

    Example:
        >>> import principalflow as pf
        >>> pf.data.describe()["samples"].tolist()
        [120, 456, 1438, 60000, 50000]
    """
    return pandas.DataFrame(
        {
            "name": name,
            "content": known.content,
            "samples": known.samples,
            "test_samples": known.test_samples,
            "shape": " x ".join(map(str, known.shape)),
            "classes": known.classes,
            "source": known.source,
        }
        for name, known in _KNOWN.items()
    )


def fetch(name: str, *, progress: bool | None = None) -> list[Path]:
    """Makes sure that all files of a data set are there and whole; downloads what is missing into the user's cache.

    Args:
        name: One of `names()`.
        progress: Whether a download shows how far it is; None for where there is a terminal.

    Returns:
        The files; none for a set that comes with scikit-learn.

    Raises:
        ValueError: For an unknown name.
        DataError: If files can't be downloaded, or are damaged.
        ImportError: If the set comes with scikit-learn and that is missing.

    Example:
        >>> import principalflow as pf
        >>> pf.data.fetch("iris")
        []
    """
    if not isinstance(name, str) or name not in _KNOWN:
        raise _unknown(name)
    if progress is not None:
        _checks.flag("progress", progress)
    files = _KNOWN[name].files
    if files is None:
        sklearn_datasets(name)
        return []
    files.read(files.names, progress)  # which checks them
    return sorted(set(files.paths(files.names, progress).values()))


def _unknown(name: Any, *others: str) -> ValueError:
    valid = " or ".join([", ".join(map(repr, _KNOWN)), *others])
    given, guess = (
        (str(name), _checks.did_you_mean(str(name), _KNOWN)) if isinstance(name, (str, PathLike)) else (name, "")
    )
    return ValueError(f"name must be one of {valid}, got {_checks.shown(given)}.{guess}")
