"""Your own table."""

from array import array
from csv import Error, reader
from os import PathLike
from pathlib import Path

import numpy as np

from principalflow._checks import did_you_mean
from principalflow.data._dataset import Dataset, Request
from principalflow.data._tables import from_table

_MISSING = {"", "?", "na", "n/a", "nan", "null"}
_LARGEST = float(np.finfo(np.float32).max)
_LEAST_ROWS = 5  # of which a fifth, one, is for testing


def csv(
    path: str | PathLike[str],
    label: str | None = None,
    samples: int | None = None,
    test_samples: int | None = None,
    standardize: bool = True,
    one_hot: bool = False,
    delimiter: str = ",",
) -> Dataset:
    r"""Returns the data set in a table with a header row: one column of labels, all others numbers.

    Labels that are whole numbers or text are classes, in sorted order; labels with a decimal point are the targets of
    a regression, and stay as they are. The fifth for testing, subsets and standardisation are those of `load`.

    Args:
        path: The file, in UTF-8.
        label: The name of the label's column; None for the last.
        samples: How many to train on; None for all.
        test_samples: How many to test on; None for all.
        standardize: Whether each feature is given less its mean over its standard deviation.
        one_hot: Whether labels are float32 (N, classes).
        delimiter: What stands between two columns.

    Returns:
        The `Dataset`.

    Raises:
        ValueError: For a missing value, text among the features, too few rows or classes, each with line and column;
            or for samples that aren't there.
        FileNotFoundError: If there is no such file.

    Example:
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> import principalflow as pf
        >>> with TemporaryDirectory() as folder:
        ...     file = Path(folder, "flowers.csv")
        ...     _ = file.write_text("width,kind\n1.0,a\n2.0,b\n3.0,a\n4.0,b\n5.0,a\n")
        ...     flowers = pf.data.csv(file, label="kind")
        >>> flowers.class_names, flowers.inputs.shape, flowers.test_inputs.shape
        (('a', 'b'), (4, 1), (1, 1))
    """
    request = Request(samples, test_samples, standardize, one_hot)
    path = Path(path).expanduser()
    features, texts = _read(path, label, delimiter)
    class_names, labels = _labels(path, texts)
    return from_table(path.stem, str(path), class_names, features, labels, request)


def _read(path: Path, label: str | None, delimiter: str) -> tuple[np.ndarray, list[str]]:
    features, labels = array("d"), []
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = reader(file, delimiter=delimiter)
            header = [name.strip() for name in next(rows, [])]
            column = _label_column(path, header, label)
            for row in filter(None, rows):
                cells = _checked(f"{path}, line {rows.line_num}", header, row, column)
                labels.append(cells.pop(column))
                features.extend(map(float, cells))
    except (UnicodeDecodeError, Error) as error:
        raise ValueError(f"{path} must be a table in UTF-8 text: {error}.") from error
    if len(labels) < _LEAST_ROWS:
        raise ValueError(f"{path} must have at least {_LEAST_ROWS} rows below its header, got {len(labels)}.")
    return np.array(features).reshape(len(labels), -1), labels


def _label_column(path: Path, header: list[str], label: str | None) -> int:
    if len(header) < 2:
        raise ValueError(f"{path}, line 1: two columns are needed at least, got {header}. Is the delimiter right?")
    if "" in header or len(set(header)) < len(header) or all(map(_is_number, header)):
        raise ValueError(f"{path}, line 1: the columns' names are needed, all different, got {header}.")
    if label is None:
        return len(header) - 1
    if label not in header:
        listed = ", ".join(map(repr, header))
        raise ValueError(f"label must be a column of {path}: {listed}, got {label!r}.{did_you_mean(label, header)}")
    return header.index(label)


def _checked(place: str, header: list[str], row: list[str], label: int) -> list[str]:
    if len(row) != len(header):
        raise ValueError(f"{place}: {len(header)} columns are needed as in line 1, got {len(row)}.")
    cells = [cell.strip() for cell in row]
    for i, cell in enumerate(cells):
        if fault := _fault(cell, is_label=i == label):
            raise ValueError(f"{place}, column {header[i]!r}: {fault}, got {cell!r}.")
    return cells


def _fault(cell: str, is_label: bool) -> str:
    if cell.lower() in _MISSING:
        return "a value is missing"
    if not _is_number(cell):
        return "" if is_label else "a feature must be a number"
    return "" if abs(float(cell)) <= _LARGEST else "numbers must be finite in float32"


def _labels(path: Path, texts: list[str]) -> tuple[tuple[str, ...] | None, np.ndarray]:
    """The classes' names, and for each row its class or, without classes, its target."""
    try:
        values = [int(text) for text in texts]
    except ValueError:
        if all(map(_is_number, texts)):
            return None, np.array(texts, float)
        values = texts
    classes, labels = np.unique(values, return_inverse=True)
    if not 2 <= len(classes) <= len(texts) / 2:
        raise ValueError(
            f"{path}: the labels must have two classes at least and twice as many rows, got {len(classes)} classes in "
            f"{len(texts)} rows. For regression write whole numbers with a decimal point."
        )
    return tuple(str(name) for name in classes), labels


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
