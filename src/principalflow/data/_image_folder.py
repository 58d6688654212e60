"""Your own images, in folders as ImageNet's are."""

import os
import warnings
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from principalflow import _checks
from principalflow._progress import progress as progress_bar
from principalflow.data._dataset import Dataset, Request, user_path
from principalflow.data._order import order, split
from principalflow.data._scale import pixels

_SUFFIXES = {".jpg", ".jpeg", ".png"}
_LARGEST_SIDE = 65_535  # of a JPEG
_MOST_PIXELS = 8192**2  # of one file: 256 MiB once decoded, from some 20 KB if they are all alike
_MEAN, _DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet


def image_folder(
    path: str | PathLike[str],
    *,
    size: int = 224,
    samples: int | None = None,
    test_samples: int | None = None,
    standardize: bool = True,
    one_hot: bool = False,
    max_gib: float = 8,
    progress: bool | None = None,
) -> Dataset:
    """Returns the images in the folders `path/CLASS`, or `path/train/CLASS` and for testing `path/val/CLASS`.

    The files `*.jpg`, `*.jpeg` and `*.png` count; the classes are in the order of their names. Of each image the
    square in its centre, 224/256 of the shorter side, is brought to `size`; grey ones become RGB. Without
    `val` a fifth is for testing; that, and subsets, are as with `load`. A file of more than 8192 x 8192 pixels is
    refused before it is decoded.

    Args:
        path: The folder.
        size: The images' height and width.
        samples: How many to train on; None for all.
        test_samples: How many to test on; None for all.
        standardize: Whether pixels are given less ImageNet's mean over its standard deviation, in each channel.
        one_hot: Whether labels are float32 (N, classes).
        max_gib: How large all images may be in memory, in GiB; checked before any is decoded.
        progress: Whether it shows how far it is; None for where there is a terminal.

    Returns:
        The `Dataset`; inputs have the shape (N, size, size, 3).

    Raises:
        ValueError: For a folder that is not like that, a file that can't be decoded or is too large, more memory than
            `max_gib`, or samples that aren't there.
        ImportError: If Pillow is missing.

    Example:
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> from PIL import Image
        >>> import principalflow as pf
        >>> with TemporaryDirectory() as folder:
        ...     for name in ("cat", "dog"):
        ...         Path(folder, name).mkdir()
        ...         for i in range(5):
        ...             Image.new("RGB", (80, 60)).save(Path(folder, name, f"{i}.png"))
        ...     pets = pf.data.image_folder(folder, size=32)
        >>> pets.class_names, pets.inputs.shape, pets.test_inputs.shape
        (('cat', 'dog'), (8, 32, 32, 3), (2, 32, 32, 3))
    """
    request = Request(samples, test_samples, standardize, one_hot, progress)
    size, max_gib = _checks.whole("size", size, 1, _LARGEST_SIDE), _checks.positive("max_gib", max_gib)
    path = user_path("path", path)
    class_names, files, labels, trained = _chosen(path, request)
    _check_memory(len(files), size, max_gib)
    inputs = _decoded(files, size, request)
    train, test = (inputs[:trained], labels[:trained]), (inputs[trained:], labels[trained:])
    return request.dataset(path.resolve().name, str(path), class_names, train, test)


def _chosen(path: Path, request: Request) -> tuple[tuple[str, ...], list[Path], np.ndarray, int]:
    """The classes, the files and labels asked for, and how many of these come first to train on."""
    in_parts = os.path.isdir(path / "train")
    class_names, files, labels = _listed(path / "train" if in_parts else path)
    if in_parts and (path / "val").is_dir():
        test_names, test_files, test_labels = _listed(path / "val")
        if test_names != class_names:
            odd = ", ".join(sorted({*class_names} ^ {*test_names})[:5])
            raise ValueError(f"train and val in {path} must have the same classes, but only one of them has {odd}.")
        train, test = order(labels), len(labels) + order(test_labels)
        files, labels = files + test_files, np.concatenate([labels, test_labels])
    else:
        train, test = split(labels)
    train, test = request.train(train), request.test(test)
    chosen = np.concatenate([train, test])
    return class_names, [files[i] for i in chosen], labels[chosen], len(train)


def _listed(folder: Path) -> tuple[tuple[str, ...], list[Path], np.ndarray]:
    layout = "images must be in folders named after their classes, such as CLASS/1.jpg"
    if not os.path.isdir(folder):
        raise ValueError(f"path must be a folder, got {str(folder)!r}.")
    folders = sorted(each for each in folder.iterdir() if each.is_dir() and not each.name.startswith("."))
    if len(folders) < 2:
        raise ValueError(f"{folder}: {layout}, with two classes at least, got {len(folders)}.")
    files, labels = [], []
    for label, each in enumerate(folders):
        images = sorted(file for file in each.iterdir() if file.suffix.lower() in _SUFFIXES and file.name[0] != ".")
        if not images:
            raise ValueError(f"{each}: {layout}, got a folder without images.")
        files += images
        labels += [label] * len(images)
    return tuple(each.name for each in folders), files, np.array(labels)


def _check_memory(count: int, size: int, max_gib: float) -> None:
    one = size**2 * 3 * 4 / 2**30
    if count * one > max_gib:
        raise ValueError(
            f"max_gib must be at least {count * one:.2f} for {count} images of {size} x {size}, got {max_gib:g}. "
            f"Ask for fewer: samples and test_samples of {int(max_gib / one)} together fit, or for a smaller size."
        )


def _decoded(files: list[Path], size: int, request: Request) -> np.ndarray:
    Image = _pillow()
    images = np.empty((len(files), size, size, 3), np.float32)
    with progress_bar(len(files), request.progress) as advance:
        for i, file in enumerate(files):
            try:
                _checks.regular_file("it", file)
                square = _square(Image, file, size)
            except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
                raise ValueError(f"{file} can't be decoded: {error}. Mend it or move it away.") from error
            images[i] = pixels(np.asarray(square), _MEAN, _DEVIATION, request.standardize)
            advance(i + 1, "images decoded")
    return images


def _square(Image: Any, file: Path, size: int) -> Any:
    """The centre in RGB; the image's size is compared with our own bound, whatever Pillow's is in this process."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        with Image.open(file, formats=("JPEG", "PNG")) as image:
            width, height = image.size
            if width * height > _MOST_PIXELS:
                raise ValueError(f"it must have at most {_MOST_PIXELS} pixels, got {width} x {height}")
            return _centre(image if image.mode == "RGB" else image.convert("RGB"), size)


def _centre(image: Any, size: int) -> Any:
    side = min(image.size) * 224 / 256
    left, top = ((length - side) / 2 for length in image.size)
    return image.resize((size, size), resample=2, box=(left, top, left + side, top + side))  # bilinear


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError("images are decoded with Pillow: pip install 'principalflow[reproduce]'.") from error
    return Image
