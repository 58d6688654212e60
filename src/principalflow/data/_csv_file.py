"""Your own table."""

from array import array
from collections.abc import Iterator
from csv import Error, reader
from os import PathLike
from pathlib import Path
from typing import TextIO

import numpy as np

from principalflow import _checks
from principalflow.data._dataset import Dataset, Request, user_path
from principalflow.data._tables import from_table

_MISSING = {"", "?", "na", "n/a", "nan", "null"}
_LARGEST = float(np.finfo(np.float32).max)
_LEAST_ROWS = 5  # of which a fifth, one, is for testing
_LONGEST_LINE = 2**24  # characters
# Numbers take about as many bytes as their text, and are held three times: as read, divided, and as float32.
_COPIES = 3
_LISTED, _SEARCHED = 20, 1000  # of a table's columns, in an error


def csv(
    path: str | PathLike[str],
    *,
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
        path: The file, in UTF-8, with lines of at most 16,777,216 characters.
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
            for what is no file or no text; or for samples that aren't there.
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
    path = user_path("path", path)
    _checks.regular_file("path", path)
    if lacking := _checks.lacks(_COPIES * path.stat().st_size, on_host=True):
        raise ValueError(f"path must be a table that fits in memory; {path} needs {lacking}.")
    features, texts = _read(path, label, _delimiter(delimiter))
    class_names, labels = _labels(path, texts)
    return from_table(path.stem, str(path), class_names, features, labels, request)


def _read(path: Path, label: str | None, delimiter: str) -> tuple[np.ndarray, list[str]]:
    features, labels = array("d"), []
    # Bytes that are no UTF-8 become surrogates, which `_lines` finds: the decoder doesn't know the line.
    with path.open(newline="", encoding="utf-8-sig", errors="surrogateescape") as file:
        rows = reader(_lines(path, file), delimiter=delimiter)
        try:
            header = [name.strip() for name in next(rows, [])]
            column = _label_column(path, header, label)
            for row in filter(None, rows):
                cells = _checked(f"{path}, line {rows.line_num}", header, row, column)
                labels.append(cells.pop(column))
                features.extend(map(float, cells))
        except Error as error:
            raise ValueError(f"{path}, line {rows.line_num}: it can't be read as cells: {error}.") from error
    if len(labels) < _LEAST_ROWS:
        raise ValueError(f"{path} must have at least {_LEAST_ROWS} rows below its header, got {len(labels)}.")
    return np.array(features).reshape(len(labels), -1), labels


def _lines(path: Path, file: TextIO) -> Iterator[str]:
    """Yields the lines; one without an end isn't read to its end."""
    number = 0
    while line := file.readline(_LONGEST_LINE + 1):
        number += 1
        if len(line) > _LONGEST_LINE:
            raise ValueError(f"{path}, line {number}: a line must be of at most {_LONGEST_LINE} characters, got more.")
        if not line.isascii() and (odd := next((c for c in line if "\ud800" <= c <= "\udfff"), "")):
            found = f"byte {ord(odd) & 0xFF:#x} at character {line.index(odd) + 1}"
            raise ValueError(f"{path}, line {number}: it must be a table in UTF-8 text, got {found}.")
        if "\0" in line:
            found = f"a NUL at character {line.index(chr(0)) + 1}"
            raise ValueError(f"{path}, line {number}: it must be a table in UTF-8 text, got {found}.")
        yield line


def _delimiter(delimiter: str) -> str:
    if not isinstance(delimiter, str) or len(delimiter) != 1 or delimiter in '\r\n"\0':
        raise ValueError(f"delimiter must be a single character such as ',', got {_checks.shown(delimiter)}.")
    return delimiter


def _label_column(path: Path, header: list[str], label: str | None) -> int:
    given = _checks.shown(header)
    if len(header) < 2:
        raise ValueError(f"{path}, line 1: two columns are needed at least, got {given}. Is the delimiter right?")
    if "" in header or len(set(header)) < len(header) or all(map(_is_number, header)):
        raise ValueError(f"{path}, line 1: the columns' names are needed, all different, got {given}.")
    if label is None:
        return len(header) - 1
    if not isinstance(label, str) or label not in header:
        listed = ", ".join(map(repr, header[:_LISTED])) + (", ..." if len(header) > _LISTED else "")
        guess = _checks.did_you_mean(label, header[:_SEARCHED]) if isinstance(label, str) else ""
        raise ValueError(f"label must be a column of {path}: {listed}, got {_checks.shown(label)}.{guess}")
    return header.index(label)


def _checked(place: str, header: list[str], row: list[str], label: int) -> list[str]:
    if len(row) != len(header):
        raise ValueError(f"{place}: {len(header)} columns are needed as in line 1, got {len(row)}.")
    cells = [cell.strip() for cell in row]
    for i, cell in enumerate(cells):
        if fault := _fault(cell, is_label=i == label):
            raise ValueError(f"{place}, column {header[i]!r}: {fault}, got {_checks.shown(cell)}.")
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
    return "_" not in text  # Python reads 1_5 as 15
