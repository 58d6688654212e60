"""Pictures of paths and of the loss around them: trajectories over contours, error curves, landscapes."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import ArrayLike

from principalflow import _checks
from principalflow.landscape import Landscape
from principalflow.objective import Objective, as_objective
from principalflow.plot._axes import COLOURS, MARKERS, axes, check_columns, pyplot

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_GRID = 200
_SOLUTIONS = 3  # more points than that are a path


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
    ax = axes(ax)
    _contours(ax, objective, np.concatenate(everything))
    for index, (name, curve) in enumerate(curves.items()):
        colour = (colours or {}).get(name, COLOURS[index % len(COLOURS)])
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
    check_columns("table", table, ("flow", "step", "kind", column), "principalflow.compare")
    chosen = np.asarray(table["kind"]) == kind
    names, steps, values = (np.asarray(table[c])[chosen] for c in ("flow", "step", column))
    if not len(names):
        raise ValueError(f"table must have rows of kind {kind!r}; it has none.")
    ax = axes(ax)
    for index, name in enumerate(dict.fromkeys(names)):
        style = {"color": COLOURS[index % len(COLOURS)], "marker": MARKERS[index % len(MARKERS)]}
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
    ax = axes(ax, "3d" if surface else None)
    if surface:
        drawn: Any = ax  # matplotlib's annotations don't know the methods of axes in three dimensions
        drawn.plot_surface(*np.meshgrid(*found.axes, indexing="ij"), losses, cmap="viridis", linewidth=0)
        drawn.set_zlabel("$E$")
    else:
        points, style = found.plane.points, "o" if len(found.plane.points) <= _SOLUTIONS else "o-"
        if len(found.axes) == 1:
            ax.plot(found.axes[0], losses, color="black")
            ax.plot(points[:, 0], np.interp(points[:, 0], found.axes[0], losses), style, color=COLOURS[3])
            ax.set_ylabel("$E$")
        else:
            first, second = found.axes
            _levels(ax, first, second, losses.T)
            ax.plot(*points.T, style, color=COLOURS[3], markersize=4, linewidth=0.8)
    ax.set_xlabel("first direction")
    if len(found.axes) == 2:
        ax.set_ylabel("second direction")
    return ax


def _check_mapping(name: str, value: Any) -> None:
    if not isinstance(value, Mapping):
        raise ValueError(f"{name} must be a mapping from labels, got {_checks.shown(value)}.")


def _check_colours(colours: Any) -> None:
    pyplot()
    from matplotlib.colors import is_color_like

    _check_mapping("colours", {} if colours is None else colours)
    for label, colour in (colours or {}).items():
        if not is_color_like(colour):
            raise ValueError(f"colours[{label!r}] must be a colour of matplotlib, got {_checks.shown(colour)}.")


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
