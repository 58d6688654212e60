"""Rank statistics of what experiments measure."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import mannwhitneyu, rankdata

from principalflow._lab import Table

_RESAMPLES = 1000


class Correlation(NamedTuple):
    """Spearman's rank correlation, and the ends of its 95% confidence interval."""

    value: float
    low: float
    high: float
    pairs: int

    def __str__(self) -> str:
        return f"{self.value:.2f} ({self.low:.2f} to {self.high:.2f}, of {self.pairs})"


def rank_correlation(x: Table, y: Table) -> Correlation:
    """Returns the rank correlation, with an interval by the bootstrap: the pairs drawn again, a thousand times.

    Pairs in which a number isn't finite are left out. Where one side is constant all three numbers are NaN.
    """
    pairs = np.stack([np.asarray(x, float), np.asarray(y, float)])
    pairs = pairs[:, np.isfinite(pairs).all(0)]
    count = pairs.shape[1]
    if count < 3:
        return Correlation(np.nan, np.nan, np.nan, count)
    drawn = np.random.default_rng(0).integers(count, size=(_RESAMPLES, count))
    again = _correlations(*pairs[:, drawn])
    low, high = np.nanquantile(again, [0.025, 0.975]) if np.isfinite(again).any() else (np.nan, np.nan)
    return Correlation(float(_correlations(*pairs[:, None])[0]), float(low), float(high), count)


def _correlations(x: NDArray, y: NDArray) -> NDArray:
    x, y = (ranks - ranks.mean(1, keepdims=True) for ranks in (rankdata(x, axis=1), rankdata(y, axis=1)))
    with np.errstate(invalid="ignore"):
        return (x * y).sum(1) / np.sqrt((x**2).sum(1) * (y**2).sum(1))


def area_under_curve(scores: Iterable[float], happened: Iterable[bool]) -> float:
    """Returns how well scores tell what happens: the area under the ROC curve, 1/2 for chance, NaN for one class.

    It is the share of the pairs, one that happens and one that doesn't, in which the first has the higher score.
    """
    scores, happened = np.asarray(list(scores)), np.asarray(list(happened))
    if happened.all() or not happened.any():
        return np.nan
    here, there = scores[happened], scores[~happened]
    return float(mannwhitneyu(here, there).statistic / (len(here) * len(there)))
