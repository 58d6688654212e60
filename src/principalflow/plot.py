"""Pictures (matplotlib): trajectories over the loss's contours, error curves, landscapes, and recorded runs."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import ArrayLike

from principalflow import _checks
from principalflow.descent import Descent
from principalflow.landscape import Landscape
from principalflow.objective import Objective, as_objective

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["errors", "landscape", "monitor", "stability", "trajectories", "typical"]

# Okabe and Ito's colours, which stay apart for colour-blind readers; black is kept for descent.
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#F0E442")
_MARKERS = "osDv^<>"
_GRID = 200
_SOLUTIONS = 3  # more points than that are a path
# What is drawn of a record, besides its eigenvalues.
_RECORDED = ("step", "learning_rate", "loss", "coefficient_0_real", "next_projection_0", "drift_estimate")
_RECORDED += ("relative_progress", "loss_change")


def trajectories(
    objective: Objective,
    paths: Mapping[str, ArrayLike],
    descent: ArrayLike | None = None,
    *,
    ax: "Axes | None" = None,
    colours: Mapping[str, str] | None = None,
) -> "Axes":
    """Draws paths of two parameters over the contours of the loss, as in the paper's figure 1.

    Args:
        objective: A loss of two parameters.
        paths: Labels and (n, 2) arrays, such as `solution.thetas`; of complex ones the real part is drawn.
        descent: The iterates of descent (n, 2), drawn as dots joined by straight lines.
        ax: The axes to draw into; new ones if left out.
        colours: Colours by label; labels without one take the next of ours.

    Returns:
        The axes.

    Raises:
        ValueError: For an objective or a path that isn't two-dimensional and finite, or nothing to draw.
        ImportError: Where matplotlib isn't installed.

    Example:
        >>> import principalflow as pf
        >>> banana = pf.functions.banana()
        >>> path = pf.descend(banana, banana.theta, h=0.0012, steps=5)
        >>> solution = pf.integrate(pf.flows.NegativeGradient(), banana, banana.theta, time=0.006, saves=20)
        >>> ax = pf.plot.trajectories(banana, {"NGF": solution.thetas}, path.thetas)
        >>> ax.figure.savefig("banana.png")  # doctest: +SKIP
    """
    _check_mapping("paths", paths)
    curves = {name: _plane(f"paths[{name!r}]", path) for name, path in paths.items()}
    dots = None if descent is None else _plane("descent", descent)
    everything = [*curves.values(), *([] if dots is None else [dots])]
    size = as_objective(objective).theta.size
    if size != 2 or not everything:
        raise ValueError(f"objective must have 2 parameters, and paths something to draw; got {size}.")
    _check_colours(colours)
    ax = _axes(ax)
    _contours(ax, objective, np.concatenate(everything))
    for index, (name, curve) in enumerate(curves.items()):
        colour = (colours or {}).get(name, _COLOURS[index % len(_COLOURS)])
        ax.plot(*curve.T, color=colour, linewidth=2, label=name)
        ax.plot(*curve[-1], color=colour, marker="s", markersize=5)
    if dots is not None:
        ax.plot(*dots.T, "o--", color="black", linewidth=0.8, markersize=4, label="gradient descent")
    ax.plot(*everything[0][0], "*", color="black", markersize=12, label="start")
    ax.set_xlabel(r"$\theta_0$")
    ax.set_ylabel(r"$\theta_1$")
    ax.legend()
    return ax


def errors(
    table: Any,
    *,
    kind: Literal["local", "global"] = "global",
    relative: bool = False,
    ax: "Axes | None" = None,
) -> "Axes":
    """Draws each flow's error against descent over the steps, on a logarithmic axis.

    Args:
        table: What `principalflow.compare` returned.
        kind: `"global"` for flows that started once, `"local"` for flows restarted at each iterate.
        relative: Whether to divide by the length of descent's step.
        ax: The axes to draw into; new ones if left out.

    Returns:
        The axes.

    Raises:
        ValueError: For an unknown kind, a table without it, or one that `compare` didn't make.
        ImportError: Where matplotlib isn't installed.

    Example:
        >>> import principalflow as pf
        >>> banana = pf.functions.banana()
        >>> table = pf.compare(banana, banana.theta, h=0.0006, steps=3, flows=[pf.flows.NegativeGradient()])
        >>> pf.plot.errors(table).get_yscale()
        'log'
    """
    _checks.one_of("kind", kind, ("local", "global"))
    column = "relative_error" if _checks.flag("relative", relative) else "error"
    _check_columns("table", table, ("flow", "step", "kind", column), "principalflow.compare")
    chosen = np.asarray(table["kind"]) == kind
    names, steps, values = (np.asarray(table[c])[chosen] for c in ("flow", "step", column))
    if not len(names):
        raise ValueError(f"table must have rows of kind {kind!r}; it has none.")
    ax = _axes(ax)
    for index, name in enumerate(dict.fromkeys(names)):
        style = {"color": _COLOURS[index % len(_COLOURS)], "marker": _MARKERS[index % len(_MARKERS)]}
        ax.semilogy(steps[names == name], values[names == name], **style, markersize=5, label=name)
    what = r"$\|\theta_n - \theta(nh)\|$" if kind == "global" else r"$\|\theta_n - \theta(h;\,\theta_{n-1})\|$"
    ax.set_ylabel(f"{what} / step length" if relative else what)
    ax.set_xlabel("gradient descent step n")
    ax.legend()
    return ax


def landscape(found: Landscape, *, surface: bool = False, ax: "Axes | None" = None) -> "Axes":
    """Draws the loss over a line, or over a plane as contours or as a surface.

    The points that the plane was led through are drawn as dots, joined in their order where there are more than three;
    not on a surface.

    Args:
        found: What `principalflow.landscape.evaluate` returned.
        surface: Whether to draw a plane as a surface in three dimensions.
        ax: The axes to draw into, for a surface such as `figure.add_subplot(projection="3d")`; new ones if left out.

    Returns:
        The axes.

    Raises:
        ValueError: For what is no landscape, a surface over a line, or a landscape without a finite loss.
        ImportError: Where matplotlib isn't installed.

    Example:
        >>> import principalflow as pf
        >>> bowl = pf.functions.quadratic([[2.0, 0.0], [0.0, 8.0]])
        >>> ax = pf.plot.landscape(pf.landscape.evaluate(bowl, pf.landscape.random(bowl), points=5))
        >>> ax.get_xlabel()
        'first direction'
    """
    if not isinstance(found, Landscape):
        raise ValueError(f"found must be what principalflow.landscape.evaluate returned, got {_checks.shown(found)}.")
    if _checks.flag("surface", surface) and len(found.axes) < 2:
        raise ValueError("surface must be False for a landscape over a line.")
    if np.shape(found.losses) != tuple(map(len, found.axes)):
        raise ValueError(f"found must have a loss for each of its points, got losses of {np.shape(found.losses)}.")
    losses = np.where(np.isfinite(found.losses), found.losses, np.nan)
    if np.isnan(losses).all():
        raise ValueError("found must have a finite loss somewhere, it has none.")
    ax = _axes(ax, "3d" if surface else None)
    if surface:
        drawn: Any = ax  # matplotlib's annotations don't know the methods of axes in three dimensions
        drawn.plot_surface(*np.meshgrid(*found.axes, indexing="ij"), losses, cmap="viridis", linewidth=0)
        drawn.set_zlabel("$E$")
    else:
        points, style = found.plane.points, "o" if len(found.plane.points) <= _SOLUTIONS else "o-"
        if len(found.axes) == 1:
            ax.plot(found.axes[0], losses, color="black")
            ax.plot(points[:, 0], np.interp(points[:, 0], found.axes[0], losses), style, color=_COLOURS[3])
            ax.set_ylabel("$E$")
        else:
            first, second = found.axes
            _levels(ax, first, second, losses.T)
            ax.plot(*points.T, style, color=_COLOURS[3], markersize=4, linewidth=0.8)
    ax.set_xlabel("first direction")
    if len(found.axes) == 2:
        ax.set_ylabel("second direction")
    return ax


def stability(records: Any) -> "Figure":
    r"""Draws a recorded run: loss, eigenvalues, stability coefficients, predictions, drift and relative progress.

    Steps whose next step raised the loss are shaded (paper, figures of sections 4.1, 5 and 6.1).

    Args:
        records: A path that `descend` recorded, or its `records`; or a monitor's table.

    Returns:
        The figure, of six axes.

    Raises:
        ValueError: For a path without records, or what are none.
        ImportError: Where matplotlib isn't installed.

    Example:
        >>> import principalflow as pf
        >>> path = pf.descend(pf.functions.banana(), [1.3, 1.5], h=0.001, steps=5, record=pf.Record())
        >>> len(pf.plot.stability(path).axes)
        6
    """
    records = records.records if isinstance(records, Descent) else records
    if records is None:
        raise ValueError("records must be recorded: pass record=principalflow.Record(...) to descend.")
    _check_columns("records", records, _RECORDED, "a principalflow.Record")
    if not len(records["step"]):
        raise ValueError("records must have at least one row, got none.")
    measured = np.isfinite(np.asarray(records["learning_rate"], float))  # a monitor's other rows are of steps alone
    columns = {name: np.asarray(records[name])[measured] for name in records}
    steps, h = columns["step"], columns["learning_rate"]
    k = sum(name.startswith("eigenvalue_") for name in columns)
    figure = _pyplot().figure(figsize=(15, 8), layout="constrained")
    loss, eigenvalues, coefficients, prediction, drift, progress = figure.subplots(2, 3).ravel()

    loss.semilogy(steps, columns["loss"], color="black")
    loss.set_title(r"loss $E$; shaded where the next step raises it")

    for i in range(k):
        style = {"color": _COLOURS[i % len(_COLOURS)], "linewidth": 1}
        eigenvalues.plot(steps, columns[f"eigenvalue_{i}"], **style, label=rf"$\lambda_{i}$")
        coefficients.plot(steps, columns[f"coefficient_{i}_real"], **style, label=rf"Re $sc_{i}$")
    own = columns.get("threshold", 2 / h)
    if np.allclose(own, 2 / h, equal_nan=True):
        eigenvalues.plot(steps, 2 / h, color="black", linestyle="--", linewidth=1, label="$2/h$")
        eigenvalues.plot(steps, 1 / h, color="black", linestyle=":", linewidth=1, label="$1/h$")
        eigenvalues.set_title("largest eigenvalues of the Hessian")
    else:
        eigenvalues.plot(steps, own, color="black", linestyle="--", linewidth=1, label="threshold")
        eigenvalues.set_title("largest eigenvalues, in the optimiser's metric")
    coefficients.axhline(0, color="black", linewidth=0.5)
    coefficients.set_yscale("symlog", linthresh=typical(columns["coefficient_0_real"]))
    coefficients.set_title("stability coefficients, real part")

    measured = columns["next_projection_0"]
    for index, (flow, label) in enumerate((("ngf", "NGF"), ("igr", "IGR flow"), ("pf", "principal flow"))):
        style = {"color": _COLOURS[index], "marker": _MARKERS[index], "linestyle": "", "markersize": 3}
        prediction.plot(measured, columns[f"next_projection_0_{flow}"], **style, label=label)
    prediction.axline((0, 0), slope=1, color="black", linewidth=0.8, label="exact")
    prediction.set_xscale("symlog", linthresh=typical(measured))
    prediction.set_yscale("symlog", linthresh=typical(measured))
    prediction.set_title(r"$\nabla E^T u_0$ after a step, predicted and measured")
    prediction.set_xlabel("measured")
    prediction.set_ylabel("predicted")

    drift.semilogy(steps, columns["drift_estimate"], color=_COLOURS[0], label=r"estimate $\frac{h^2}{2}\|Hg\|$")
    if "drift" in columns:
        drift.semilogy(steps, columns["drift"], color=_COLOURS[3], linestyle="--", label="measured")
    drift.set_title("drift of one step")

    progress.plot(steps, columns["relative_progress"], color="black")
    progress.axhline(0, color="black", linestyle="--", linewidth=1)
    progress.set_title("relative progress ratio, 0 at the edge")

    width = np.min(np.diff(steps)) if len(steps) > 1 else 1
    rises = [(step - width / 2, width) for step in steps[columns["loss_change"] > 0]]
    for ax in (loss, eigenvalues, coefficients, drift, progress):
        ax.broken_barh(rises, (0, 1), transform=ax.get_xaxis_transform(), color="grey", alpha=0.2, linewidth=0)
        ax.set_xlabel("gradient descent step")
    for ax in (coefficients, prediction, drift):
        ax.legend()
    eigenvalues.legend(loc="lower right")
    return figure


def typical(values: np.ndarray) -> float:
    """The power of ten at the median size, below which an axis is straight: few large values then hide no others."""
    sizes = np.abs(values[np.isfinite(values) & (values != 0)])
    return 10.0 ** np.ceil(np.log10(np.median(sizes))) if sizes.size else 1.0


def _check_mapping(name: str, value: Any) -> None:
    if not isinstance(value, Mapping):
        raise ValueError(f"{name} must be a mapping from labels, got {_checks.shown(value)}.")


def _check_colours(colours: Any) -> None:
    _pyplot()
    from matplotlib.colors import is_color_like

    _check_mapping("colours", {} if colours is None else colours)
    for label, colour in (colours or {}).items():
        if not is_color_like(colour):
            raise ValueError(f"colours[{label!r}] must be a colour of matplotlib, got {_checks.shown(colour)}.")


def _check_columns(name: str, value: Any, columns: tuple[str, ...], maker: str) -> None:
    is_table = isinstance(value, Mapping) or hasattr(value, "columns")
    missing = [column for column in columns if not is_table or column not in value]
    if missing:
        raise ValueError(f"{name} must be the table of {maker}; it has no column {missing[0]!r}.")


def _plane(name: str, path: ArrayLike) -> np.ndarray:
    array = np.real(np.asarray(_checks.inexact(name, path)))
    if array.ndim != 2 or array.shape[1] != 2 or not len(array):
        raise ValueError(f"{name} must have shape (n, 2) with n of at least 1, got {array.shape}.")
    _checks.finite(name, jnp.asarray(array))
    return array


def _contours(ax: "Axes", objective: Objective, points: np.ndarray) -> None:
    low, high = points.min(axis=0), points.max(axis=0)
    margin = 0.15 * np.maximum(high - low, 1e-3 * (1 + np.abs(high)))
    x, y = (np.linspace(a, b, _GRID) for a, b in zip(low - margin, high + margin, strict=True))
    grid = jnp.stack(jnp.meshgrid(x, y), axis=-1)
    _levels(ax, x, y, np.asarray(jax.vmap(jax.vmap(objective.value))(grid)))


def _levels(ax: "Axes", x: np.ndarray, y: np.ndarray, loss: np.ndarray) -> None:
    """Draws contours at even quantiles: lines everywhere, in steep places and in flat ones."""
    levels = np.unique(np.nanquantile(loss, np.linspace(0.02, 0.98, 14)))
    if len(levels) < 2:  # the same loss everywhere has no contours
        return
    ax.contourf(x, y, loss, levels=levels, cmap="Greys", alpha=0.35, extend="both")
    ax.contour(x, y, loss, levels=levels, colors="grey", linewidths=0.5)


def monitor(table: Any) -> "Figure":
    """Draws what a monitor saw: the loss, the curvature over its threshold, the steps' realised edge, and their sizes.

    Vertical lines are spikes; dashed ones are where the optimiser's edge is.

    Args:
        table: What `Monitor.table()` returned, with at least one row.

    Returns:
        The figure, of four axes; a curve that wasn't measured is left out.

    Raises:
        ValueError: For what is no such table, or one without rows.
        ImportError: Where matplotlib isn't installed.

    Example:
        >>> import jax.numpy as jnp
        >>> import principalflow as pf
        >>> watch = pf.Monitor(pf.functions.quadratic([[3.0]]), every=1)
        >>> rows = [watch.observe(step, jnp.array([0.5**step]), 0.5) for step in range(3)]
        >>> len(pf.plot.monitor(watch.table()).axes)
        4
    """
    _check_columns("table", table, ("step", "events"), "a monitor's table()")
    if not len(table["step"]):
        raise ValueError("table must have at least one row, got none.")
    columns = {name: np.asarray(table[name]) for name in table}
    figure = _pyplot().figure(figsize=(12, 7), layout="constrained")
    loss, edge, realised, sizes = figure.subplots(2, 2, sharex=True).ravel()
    curves = {
        loss: {"batch_loss": "of the batch", "loss": "of the monitor's data"},
        edge: {"edge": r"$\lambda_0$ / threshold"},
        realised: {"realised_edge": "realised edge"},
        sizes: {"update_norm": "update", "batch_gradient_norm": "gradient", "surprise": "surprise"},
    }
    if "batch_sharpness" in columns and "threshold" in columns:
        columns["batch_edge"] = columns["batch_sharpness"] / columns["threshold"]
        curves[edge]["batch_edge"] = "batch sharpness / threshold"
    for ax, names in curves.items():
        for index, (name, label) in enumerate(names.items()):
            values = np.asarray(columns.get(name, np.full(len(table), np.nan)), float)
            known = np.isfinite(values)
            if known.any():
                ax.plot(columns["step"][known], values[known], color=_COLOURS[index], linewidth=1, label=label)
        if ax.lines:
            ax.legend()
    spikes = [step for step, events in zip(columns["step"], columns["events"], strict=True) if "spike" in events]
    titles = "loss", "curvature, 1 at the edge", "steps, above 1 the loss rose", "sizes"
    for ax, title in zip(curves, titles, strict=True):
        ax.set_title(title)
        for step in spikes:
            ax.axvline(step, color="grey", linewidth=0.8)
    for ax in (edge, realised):
        ax.axhline(1, color="black", linestyle="--", linewidth=1)
    for ax in (loss, sizes):
        ax.set_yscale("log")
    realised.set_ylim(-0.5, 3)
    figure.supxlabel("step")
    return figure


def _axes(ax: "Axes | None", projection: str | None = None) -> "Axes":
    if ax is None:
        return _pyplot().subplots(layout="constrained", subplot_kw={"projection": projection})[1]
    if not hasattr(ax, "plot"):
        raise ValueError(f"ax must be axes of matplotlib, got {_checks.shown(ax)}.")
    return ax


def _pyplot() -> Any:
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("principalflow.plot needs matplotlib: pip install 'principalflow[reproduce]'.") from error
    return plt
