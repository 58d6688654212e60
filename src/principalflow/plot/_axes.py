"""What all pictures share: colours, axes, and checks of what they are given."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from principalflow import _checks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito's colours, which stay apart for colour-blind readers; black is kept for descent.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#F0E442")
MARKERS = "osDv^<>"


def typical(values: np.ndarray) -> float:
    """The power of ten at the median size, below which an axis is straight: few large values then hide no others."""
    sizes = np.abs(values[np.isfinite(values) & (values != 0)])
    return 10.0 ** np.ceil(np.log10(np.median(sizes))) if sizes.size else 1.0


def check_columns(name: str, value: Any, columns: tuple[str, ...], maker: str) -> None:
    is_table = isinstance(value, Mapping) or hasattr(value, "columns")
    missing = [column for column in columns if not is_table or column not in value]
    if missing:
        raise ValueError(f"{name} must be the table of {maker}; it has no column {missing[0]!r}.")


def axes(ax: "Axes | None", projection: str | None = None) -> "Axes":
    if ax is None:
        return pyplot().subplots(layout="constrained", subplot_kw={"projection": projection})[1]
    if not hasattr(ax, "plot"):
        raise ValueError(f"ax must be axes of matplotlib, got {_checks.shown(ax)}.")
    return ax


def pyplot() -> Any:
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("principalflow.plot needs matplotlib: pip install 'principalflow[reproduce]'.") from error
    return plt
