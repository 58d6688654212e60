"""How the experiments on DAL are drawn: curves, accuracies, and a colour for each contender."""

from collections.abc import Sequence
from itertools import cycle
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from principalflow._lab import Table
from principalflow.reproduce._dal_queries import DAL, HALF, settings
from principalflow.reproduce._sweeps import FIXED, WITH_MOMENTUM

_NAMES_INSIDE = 8  # of a legend; one with more would hide curves
# Colours by name; shades for the rates of some families, darker for higher ones; and those of all others.
_COLOURS = {DAL: "#D55E00", "DAL-0.875": "#E69F00", "DAL-0.75": "#0072B2", "DAL-0.625": "#56B4E9", HALF: "#009E73"}
_COLOURS |= {"Prodigy": "#8C510A", "DoG": "#999933"}
_SHADES = {FIXED: ("Greys", 0.95), WITH_MOMENTUM: ("Purples", 0.95), "adam": ("RdPu", 0.7)}
_OTHER_COLOURS = ("#8C510A", "#CC79A7", "#01665E", "#B2182B", "#4D9221", "#7B3294")


def panels(table: Table, columns: int) -> tuple[Figure, list[tuple[Any, str, Table]]]:
    """Returns a figure with a row of panels for each setting, and each row with the setting and its part of a table."""
    parts = settings(table)
    figure = Figure(figsize=(5.2 * columns, 4.3 * len(parts)), layout="constrained")
    axes = figure.subplots(len(parts), columns, squeeze=False)
    return figure, [(row, setting, rows) for row, (setting, rows) in zip(axes, parts, strict=True)]


def draw_curves(ax: Axes, steps: Table, column: str, contenders: Sequence[str] | None = None, log: bool = True) -> None:
    """Draws a column over the steps of one setting, a colour for each contender, the seeds after the first fainter."""
    shades = colours(steps)
    for (name, seed), rows in steps.groupby(["contender", "seed"], sort=False):
        if contenders is not None and name not in contenders:
            continue
        first, shown = seed == steps["seed"].min(), rows.dropna(subset=column)
        style = {"color": shades[name], "alpha": 1 if first else 0.25, "label": name if first else None}
        ax.plot(shown["step"], shown[column], **style)
    ax.set_xlabel("step")
    if log:
        ax.set_yscale("log")


def draw_losses(ax: Axes, steps: Table, contenders: Sequence[str] | None = None) -> None:
    """Draws the losses over the steps of one setting, which it names, as far up as they start and a little further."""
    draw_curves(ax, steps, "loss", contenders)
    start, losses = steps.loc[steps["step"] == 0, "loss"].max(), steps["loss"][steps["loss"] > 0]
    ax.set(title=f"{steps['setting'].iloc[0]}: loss", ylim=(losses.min() / 1.5, 1.2 * min(losses.max(), 3 * start)))
    many = len(ax.get_legend_handles_labels()[1]) > _NAMES_INSIDE
    below = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.14), "ncols": 3} if many else {"ncols": 2}
    ax.legend(fontsize="x-small", title="faint: other seeds", title_fontsize="x-small", **below)


def draw_accuracies(ax: Axes, contenders: Table, names: Sequence[str] | None = None) -> None:
    """Draws the test accuracies of one setting, mean and spread over the seeds; a cross where a seed diverged."""
    shades = colours(contenders)
    rows = contenders if names is None else contenders[contenders["contender"].isin(names)]
    for x, (_, row) in enumerate(rows.iterrows()):
        shade = shades[row["contender"]]
        if np.isnan(row["test_accuracy"]):
            ax.plot(x, 0.03, "x", color=shade, transform=ax.get_xaxis_transform())
        else:
            ax.errorbar(x, row["test_accuracy"], row["test_accuracy_spread"], fmt="o", color=shade, capsize=3)
    ax.set_xticks(range(len(rows)), list(rows["contender"]), rotation=40, ha="right", fontsize="small")
    ax.set_title("test accuracy over seeds (x: diverged)")


def colours(table: Table) -> dict[str, str]:
    """Returns a colour for each contender, the same one in every setting, where the sweeps are the same."""
    families, found = table.groupby("contender", sort=False)["family"].first(), dict(_COLOURS)
    for family, (shades, darkest) in _SHADES.items():
        same = families.index[families == family]
        levels = np.linspace(darkest, 0.4, len(same))[::-1]
        found |= zip(same, map(to_hex, matplotlib.colormaps[shades](levels)), strict=True)
    return found | dict(zip([name for name in families.index if name not in found], cycle(_OTHER_COLOURS)))
