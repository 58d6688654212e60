"""Labelled columns."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np


def table(rows: Iterable[Mapping[str, Any]]) -> Any:
    """Returns rows of one shape as a pandas DataFrame, or as a dict of columns where pandas isn't installed."""
    rows = list(rows)
    columns = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    try:
        import pandas
    except ImportError:
        return columns
    return pandas.DataFrame(columns)
