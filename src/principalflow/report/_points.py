"""The points of a line, few enough to draw and short enough to send."""

import math

import numpy as np


def points(steps: np.ndarray, values: np.ndarray, buckets: int) -> dict[str, list[float | None]]:
    """Returns a line's `x` and `y`; None where the value isn't finite, which breaks the line."""
    chosen = thin(values, buckets)
    return {"x": _rounded(steps[chosen], 15), "y": _rounded(values[chosen], 6)}


def thin(values: np.ndarray, buckets: int) -> np.ndarray:
    """Returns the indices to draw: both ends, and each bucket's smallest and largest value and first gap."""
    count = len(values)
    if count <= 2 * buckets:
        return np.arange(count)
    bucket = np.arange(count) * buckets // count
    finite, gaps = np.flatnonzero(np.isfinite(values)), np.flatnonzero(~np.isfinite(values))
    rising = finite[np.lexsort((values[finite], bucket[finite]))]  # within each bucket
    firsts = [order[np.unique(bucket[order], return_index=True)[1]] for order in (rising, rising[::-1], gaps)]
    return np.unique(np.concatenate([[0, count - 1], *firsts]))


def _rounded(values: np.ndarray, digits: int) -> list[float | None]:
    return [_shortest(float(f"{value:.{digits}g}")) if math.isfinite(value) else None for value in values.tolist()]


def _shortest(value: float) -> float:
    """Returns whole numbers as such: 40, not 40.0."""
    return int(value) if value.is_integer() and abs(value) < 1e15 else value
