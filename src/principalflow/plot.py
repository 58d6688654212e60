"""Pictures (matplotlib): trajectories over the loss's contours, and error curves."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import ArrayLike

from principalflow import _checks
from principalflow.objective import Objective

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito's colours, which stay apart for colour-blind readers; black is kept for descent.
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#F0E442")
_MARKERS = "osDv^<>"
_GRID = 200


def trajectories(
    objective: Objective,
    paths: Mapping[str, ArrayLike],
    descent: ArrayLike | None = None,
    ax: "Axes | None" = None,
) -> "Axes":
    """Draws paths of two parameters over the contours of the loss, as in the paper's figure 1.

    Args:
        objective: A loss of two parameters.
        paths: Labels and (n, 2) arrays, such as `solution.thetas`; of complex ones the real part is drawn.
        descent: The iterates of descent (n, 2), drawn as dots joined by straight lines.
        ax: The axes to draw into; new ones if left out.

    Returns:
        The axes.

    Raises:
        ValueError: For an objective or a path that isn't two-dimensional, or nothing to draw.
        ImportError: Where matplotlib isn't installed.

    Example:
        >>> import principalflow as pf
        >>> banana = pf.functions.banana()
        >>> path = pf.descend(banana, banana.theta, h=0.0012, steps=5)
        >>> solution = pf.integrate(pf.flows.NegativeGradient(), banana, banana.theta, time=0.006, saves=20)
        >>> ax = pf.plot.trajectories(banana, {"NGF": solution.thetas}, path.thetas)
        >>> ax.figure.savefig("banana.png")  # doctest: +SKIP
    """
    curves = {name: _plane(f"paths[{name!r}]", path) for name, path in paths.items()}
    dots = None if descent is None else _plane("descent", descent)
    everything = [*curves.values(), *([] if dots is None else [dots])]
    if objective.theta.size != 2 or not everything:
        raise ValueError(f"objective must have 2 parameters, and paths something to draw; got {objective.theta.size}.")
    ax = _axes(ax)
    _contours(ax, objective, np.concatenate(everything))
    for index, (name, curve) in enumerate(curves.items()):
        colour = _COLOURS[index % len(_COLOURS)]
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
        ValueError: For an unknown kind, or a table without it.
        ImportError: Where matplotlib isn't installed.

    Example:
        >>> import principalflow as pf
        >>> banana = pf.functions.banana()
        >>> table = pf.compare(banana, banana.theta, h=0.0006, steps=3, flows=[pf.flows.NegativeGradient()])
        >>> pf.plot.errors(table).get_yscale()
        'log'
    """
    _checks.one_of("kind", kind, ("local", "global"))
    column = "relative_error" if relative else "error"
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


def _plane(name: str, path: ArrayLike) -> np.ndarray:
    array = np.real(np.asarray(path))
    if array.ndim != 2 or array.shape[1] != 2 or not len(array):
        raise ValueError(f"{name} must have shape (n, 2) with n of at least 1, got {array.shape}.")
    return array


def _contours(ax: "Axes", objective: Objective, points: np.ndarray) -> None:
    low, high = points.min(axis=0), points.max(axis=0)
    margin = 0.15 * np.maximum(high - low, 1e-3 * (1 + np.abs(high)))
    x, y = (np.linspace(a, b, _GRID) for a, b in zip(low - margin, high + margin, strict=True))
    grid = jnp.stack(jnp.meshgrid(x, y), axis=-1)
    loss = np.asarray(jax.vmap(jax.vmap(objective.value))(grid))
    # Levels at even quantiles: lines everywhere, in steep places and in flat ones.
    levels = np.unique(np.quantile(loss, np.linspace(0.02, 0.98, 14)))
    ax.contourf(x, y, loss, levels=levels, cmap="Greys", alpha=0.35, extend="both")
    ax.contour(x, y, loss, levels=levels, colors="grey", linewidths=0.5)


def _axes(ax: "Axes | None") -> "Axes":
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("principalflow.plot needs matplotlib: pip install 'principalflow[reproduce]'.") from error
    return plt.subplots(layout="constrained")[1]
