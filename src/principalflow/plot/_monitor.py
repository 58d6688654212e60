"""The picture of what a monitor saw."""

from typing import TYPE_CHECKING, Any

import numpy as np

from principalflow.monitor import EARLY, Watch
from principalflow.plot._axes import COLOURS, check_columns, pyplot, typical

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LOSS, _EDGE, _STEPS, _SIZES = "loss", "curvature, 1 at the edge", "steps, above 1 the loss rose", "sizes"
_CURVES = {
    _LOSS: {"batch_loss": "of the batch", "loss": "of the monitor's data"},
    _EDGE: {"edge": r"$\lambda_0$ / threshold", "batch_edge": "batch sharpness / threshold"},
    _STEPS: {"realised_edge": "realised edge"},
    _SIZES: {"update_norm": "update", "batch_gradient_norm": "gradient", "surprise": "surprise"},
}
# Values of the first steps, where the metric of Adam and its relatives is that of few gradients, are left out of the
# picture of the curvature if they are that many times off those that follow.
_OFF = 10.0


def monitor(table: Any) -> "Figure":
    """Draws what a monitor saw: the loss, the curvature over its threshold, the steps' realised edge, and their sizes.

    Vertical lines are where a spike began, with its cause, and light ones where the curvature got above the threshold.
    A table has no more of events than their sentences: there a line is at the row in which the spike was reported.
    Dashed lines are where the optimiser's edge is; batch sharpness has one of its own for small batches, where that is
    another.

    Args:
        table: A monitor, or what its `table()` returned, with at least one row.

    Returns:
        The figure, of at most four axes: those of which nothing was measured are left out, but for the loss's.

    Raises:
        ValueError: For what is no monitor and no such table, or where nothing was measured.
        ImportError: Where matplotlib isn't installed.

    Example:
        >>> import jax.numpy as jnp
        >>> import principalflow as pf
        >>> watch = pf.Monitor(pf.functions.quadratic([[3.0]]), every=1)
        >>> rows = [watch.observe(step, jnp.array([0.5**step]), 0.5) for step in range(3)]
        >>> [ax.get_title() for ax in pf.plot.monitor(watch).axes]
        ['loss', 'curvature, 1 at the edge']
    """
    watch = table if isinstance(table, Watch) else None
    table = table if watch is None else watch.table()
    if hasattr(table, "columns") and not len(table):
        raise ValueError("table must have at least one row, but nothing was measured.")
    check_columns("table", table, ("step", "events"), "a monitor's table()")
    if not len(table["step"]):
        raise ValueError("table must have at least one row, but nothing was measured.")
    columns = _numbers(table)
    drawn = {title: _known(columns, names) for title, names in _CURVES.items()}
    titles = [title for title, known in drawn.items() if known or title == _LOSS]
    shape = (2, 2) if len(titles) == 4 else (len(titles), 1)
    figure = pyplot().figure(figsize=(12, 7), layout="constrained")
    panels = dict(zip(titles, figure.subplots(*shape, sharex=True, squeeze=False).ravel(), strict=True))
    for title, ax in panels.items():
        _draw(ax, title, columns, drawn[title])
    _mark(panels, table, watch)
    for ax in panels.values():
        if ax.get_legend_handles_labels()[0]:
            ax.legend()
    figure.supxlabel("step")
    return figure


def _numbers(table: Any) -> dict[str, np.ndarray]:
    """Returns the columns to draw, some of them ratios."""
    wanted = {"step", "threshold", "batch_sharpness", "batch_threshold"}.union(*_CURVES.values())
    columns = {name: np.asarray(table[name], float) for name in table if name in wanted}
    if "threshold" in columns:
        for name, of in (("batch_edge", "batch_sharpness"), ("small_batch_edge", "batch_threshold")):
            if of in columns:
                columns[name] = columns[of] / columns["threshold"]
    return columns


def _known(columns: dict[str, np.ndarray], names: dict[str, str]) -> dict[str, np.ndarray]:
    """Returns where each of the columns is finite, of those that are anywhere."""
    known = {name: np.isfinite(columns[name]) for name in names if name in columns}
    return {name: where for name, where in known.items() if where.any()}


def _draw(ax: "Axes", title: str, columns: dict[str, np.ndarray], known: dict[str, np.ndarray]) -> None:
    ax.set_title(title)
    steps, colours = columns["step"], dict(zip(_CURVES[title], COLOURS, strict=False))
    for name, where in known.items():
        few = "." if where.sum() == 1 else None
        style: dict[str, Any] = dict(color=colours[name], linewidth=1, marker=few, label=_CURVES[title][name])
        ax.plot(steps[where], columns[name][where], **style)
    values = [columns[name][where] for name, where in known.items()]
    if title == _STEPS:
        ax.axhline(1, color="black", linestyle="--", linewidth=1)
        ax.set_ylim(-0.5, 3)
        return
    if title == _EDGE:
        values.append(_levels(ax, columns, colours["batch_edge"]))
    elif "surprise" in known:
        style: dict[str, Any] = dict(color=colours["surprise"], linestyle="--", linewidth=1)
        ax.axhline(1, **style, label="surprise of 1: as their average")
    if values:
        _scale(ax, np.concatenate(values))
    if title == _EDGE:
        _limit(ax, np.concatenate([steps[where] for where in known.values()]), values)


def _levels(ax: "Axes", columns: dict[str, np.ndarray], colour: str) -> np.ndarray:
    """Draws where the edge is, of batches both large and small, and returns these levels."""
    small = columns.get("small_batch_edge", np.array([]))
    known = np.isfinite(small)
    differs = known.any() and not np.allclose(small[known], 1)
    label = "edge, of large batches" if differs else "edge"
    ax.axhline(1, color="black", linestyle="--", linewidth=1, label=label)
    if not differs:
        return np.ones(1)
    ax.plot(columns["step"][known], small[known], "--", color=colour, linewidth=1, label="edge, of small batches")
    return np.append(small[known], 1)


def _limit(ax: "Axes", steps: np.ndarray, values: list[np.ndarray]) -> None:
    """Leaves values of the first steps out that are far from all others; `values` end with the levels of the edge."""
    curves, levels = np.concatenate(values[:-1]), values[-1]
    early = steps < EARLY
    if early.all() or not early.any():
        return
    rest = np.append(curves[~early], levels)
    low, high = rest.min(), rest.max()
    if curves[early].max() > _OFF * high or (low > 0 and curves[early].min() < low / _OFF):
        ax.set_ylim(low / 1.5 if low > 0 else 1.5 * low, 1.5 * high)


def _scale(ax: "Axes", values: np.ndarray) -> None:
    """Makes the axis logarithmic, where all is positive, or else but for what is small."""
    if np.all(values > 0):
        ax.set_yscale("log")
    else:
        ax.set_yscale("symlog", linthresh=typical(values))


def _mark(panels: dict[str, "Axes"], table: Any, watch: Watch | None) -> None:
    """Draws where spikes began, with their causes above the loss, and where the curvature got above the threshold."""
    if watch is None:
        reported = zip(table["step"], table["events"], strict=True)
        spikes = [(step, "spike") for step, events in reported if "spike" in str(events)]
        crossings = []
    else:
        spikes = [(event.step, f"{event.kind}: {event.cause}") for event in watch.events if event.cause]
        crossings = [event.step for event in watch.events if event.kind == "above"]
    for title, ax in panels.items():
        for i, step in enumerate(crossings):
            label = "got above the edge" if title == _EDGE and i == 0 else None
            ax.axvline(step, color=COLOURS[3], linestyle=":", linewidth=0.8, alpha=0.6, label=label)
        for step, label in spikes:
            ax.axvline(step, color="grey", linewidth=0.8)
            if title == _LOSS:
                place: dict[str, Any] = dict(
                    xycoords=ax.get_xaxis_transform(), textcoords="offset points", xytext=(-2, -3)
                )
                ax.annotate(label, (step, 1), **place, rotation=90, ha="right", va="top", fontsize=8, color="grey")
