"""The loss around what DAL-p and descent learned.

Figures DAL_p_64_landscape, DAL_p_64_eigen, DAL_p_full_batch_landscape, DAL_p_full_batch_eigen and
DAL_p_imagenet_landscape.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
import pandas
from matplotlib.figure import Figure

from principalflow import landscape, plot
from principalflow._lab import Claim, Table, Tables
from principalflow.descent import descend
from principalflow.landscape import Landscape, Plane
from principalflow.objective import Objective, Vector
from principalflow.reproduce import _dal_drawing, _dal_settings
from principalflow.reproduce._dal_queries import (
    DAL,
    accuracy,
    best_test,
    fixed_rates,
    is_full_batch,
    of,
    ratio,
    settings,
)
from principalflow.reproduce._dal_settings import CHEAP, VGG, both, on_batches
from principalflow.reproduce._sweeps import Sweep, ends, objective_of

RANDOM, SOLUTIONS, PATH = "of random directions", "through three solutions", "along the path of descent"
_ON_PATH = 30  # iterates of a path, at least


@dataclass(frozen=True)
class Config(_dal_settings.Config):
    """For each batch size a sweep of descent and one of DAL-p.

    Landscapes are those around what the rate and the power with the best test accuracies learned.

    Attributes:
        reaches: How far the planes go, relative to the filters.
        points: Of a side of a grid.
    """

    reaches: tuple[float, ...] = (1.0, 0.25)
    points: int = 41


def run(config: Config) -> Tables:
    tables, sweeps = _dal_settings.run(config), _dal_settings.trainings(config)
    pairs = zip(sweeps[::2], sweeps[1::2], settings(tables["contenders"]), strict=True)
    found = [part for fixed, adapted, (_, rows) in pairs for part in _landscapes(config, fixed, adapted, rows)]
    return tables | {
        name: pandas.concat([part[name] for part in found if name in part], ignore_index=True)
        for name in ("grids", "points")
    }


def claims(config: Config, tables: Tables) -> list[Claim]:
    return [
        claim for setting, rows in settings(tables["contenders"]) for claim in _claims(config, setting, rows, tables)
    ]


def draw(config: Config, tables: Tables) -> Figure:
    parts, columns = settings(tables["contenders"]), 2 * len(config.reaches) + 2
    figure = Figure(figsize=(4 * columns, 4.4 * len(parts)), layout="constrained")
    for i, (setting, _) in enumerate(parts):
        place = iter(range(i * columns + 1, (i + 1) * columns + 1))
        for reach in config.reaches:
            around, highest = _around(tables, setting, reach)
            for name, found in around:
                ax: Any = figure.add_subplot(len(parts), columns, next(place), projection="3d")
                plot.landscape(found, surface=True, ax=ax)
                ax.set_zlim(0, highest)
                ax.set_title(f"{setting}\n{name}, reach {reach:g}, cut at {highest:.2g}", fontsize="small")
        names = list(dict.fromkeys(_of(tables["grids"], setting, RANDOM)["contender"]))
        led, curvature = (figure.add_subplot(len(parts), columns, (i + 1) * columns - back) for back in (1, 0))
        kind = PATH if len(_of(tables["points"], setting, PATH)) else SOLUTIONS
        points = _of(tables["points"], setting, kind)
        if len(points):
            plot.landscape(_landscape(_of(tables["grids"], setting, kind), points), ax=led)
            share = f"{100 * points['explained'].iloc[0]:.0f}% of the squared distances"
            led.set_title(f"the plane {kind}: {share}", fontsize="small")
        for point in points.itertuples() if kind == SOLUTIONS else ():
            led.annotate(point.name, (point.x, point.y), xytext=(4, 4), textcoords="offset points")
        _dal_drawing.draw_curves(curvature, of(tables["steps"], setting), "sharpness", names)
        curvature.set_title(r"$\lambda_0$ along training", fontsize="small")
        curvature.legend(fontsize="small")
    return figure


def explore(config: Config, tables: Tables) -> dict[str, Any]:
    import plotly.graph_objects as go
    from plotly.subplots import make_subplots

    plots, reach = {}, config.reaches[-1]
    for setting, _ in settings(tables["contenders"]):
        around, highest = _around(tables, setting, reach)
        surfaces = make_subplots(
            1, len(around), specs=[[{"type": "scene"}] * len(around)], subplot_titles=[n for n, _ in around]
        )
        for column, (_, found) in enumerate(around, 1):
            x, y = found.axes
            surfaces.add_trace(
                go.Surface(x=x, y=y, z=found.losses.T, cmin=0, cmax=highest, showscale=column == 1), 1, column
            )
        surfaces.update_scenes(
            xaxis={"title": "first"}, yaxis={"title": "second"}, zaxis={"range": [0, highest], "title": "loss"}
        )
        caption = f"the loss around what was learned, along two random directions, up to {reach:g} of the filters' size"
        plots[f"{setting}: {caption}; cut at {highest:.2g}"] = surfaces
        for kind, points in of(tables["points"], setting).groupby("kind", sort=False):
            found = _landscape(_of(tables["grids"], setting, kind), points)
            x, y = found.axes
            contour = go.Contour(
                x=x, y=y, z=np.log10(found.losses).T, colorscale="Greys", colorbar={"title": "log₁₀ loss"}
            )
            dots = go.Scatter(
                x=points["x"],
                y=points["y"],
                text=points["name"],
                mode="lines+markers" if kind == PATH else "markers+text",
            )
            dots.update(textposition="top center", marker={"color": "#D55E00"}, line={"color": "#D55E00"})
            plots[f"{setting}: the plane {kind}"] = go.Figure([contour, dots])
    return plots


def _claims(config: Config, setting: str, rows: Table, tables: Tables) -> list[Claim]:
    best, ours = _best(rows)
    grids = _of(tables["grids"], setting, RANDOM)
    seconds = grids["seconds"].median()
    claims = []
    for reach in config.reaches:
        rises = {
            name: [_rise(grid) for _, grid in some.groupby("seed")]
            for name, some in grids[grids["reach"] == reach].groupby("contender")
        }
        of_ours, of_best = (np.array(rises.get(row["contender"], [np.nan])) for row in (ours, best))
        claims.append(
            Claim.below(
                f"{setting}: {ours['contender']} learns a flatter landscape than {best['contender']}: the mean rise of "
                f"the loss within {reach:g} of the filters' size over that one's, means over the seeds",
                ratio(of_ours.mean(), of_best.mean()),
                1,
                note=f"{of_ours.mean():.3g} ({of_ours.min():.3g} to {of_ours.max():.3g} over the seeds) against "
                f"{of_best.mean():.3g} ({of_best.min():.3g} to {of_best.max():.3g}). A grid of {config.points} x "
                f"{config.points} points took {seconds:.2g} s at the median.",
            )
        )
    steps = of(tables["steps"], setting)
    level = best["last_loss"]
    there = [_sharpness_at(rows, level) for _, rows in steps[steps["contender"] == ours["contender"]].groupby("seed")]
    apart = ours["test_accuracy"] - best["test_accuracy"]
    full, note = is_full_batch(rows), f"{accuracy(ours)} against {accuracy(best)}."
    return [
        *claims,
        Claim.below(
            f"{setting}: and λ₀ is smaller: at the end, over that one's",
            ratio(ours["sharpness"], best["sharpness"]),
            1,
            note=f"{ours['sharpness']:.3g} at a loss of {ours['last_loss']:.2g} against {best['sharpness']:.3g} at one "
            f"of {level:.2g}, means over the seeds.",
        ),
        Claim.below(
            f"{setting}: also at the same loss: λ₀ where its loss gets as low as that one's last, over that one's",
            ratio(float(np.mean(there)), best["sharpness"]),
            1,
            note=f"{np.mean(there):.3g} on average." if np.isfinite(there).all() else "A seed never has so low a loss.",
        ),
        Claim.at_least(f"{setting}: its test accuracy is higher: by how much", apart, 0, note=note)
        if full
        else Claim.below(f"{setting}: at a similar test accuracy: how far apart they are", abs(apart), 0.02, note=note),
    ]


def _sharpness_at(rows: Table, level: float) -> float:
    """Returns λ₀ where the loss first gets that low, between two records in proportion; NaN if it never does."""
    records = rows[rows["sharpness"].notna() & (rows["loss"] > 0)]
    there = np.flatnonzero(records["loss"] <= level)
    if not len(there):
        return np.nan
    around = records.iloc[[there[0], max(there[0] - 1, 0)]]  # the first that is, and the last that isn't
    return float(np.interp(np.log(level), np.log(around["loss"]), around["sharpness"]))


def _rise(grid: Table) -> float:
    """Returns the mean rise of the loss from the middle over the disc in a grid; infinite if it isn't finite."""
    distance = np.hypot(grid["x"], grid["y"])
    rise = grid["loss"][distance <= grid["reach"]].mean(skipna=False) - grid["loss"].iloc[distance.argmin()]
    return float(rise) if np.isfinite(rise) else np.inf


def _landscapes(config: Config, fixed: Sweep, adapted: Sweep, rows: Table) -> Iterator[Tables]:
    """Yields the grids around what was learned, and those through several solutions and along a path."""
    objective, learned = objective_of(fixed), ends(fixed) | ends(adapted)
    setting, (rate, power) = rows["setting"].iloc[0], _best(rows)
    pair = rate["contender"], power["contender"]
    for (name, seed), theta in learned.items():
        if name not in pair:
            continue
        plane = landscape.random(objective, theta, seed=seed)
        for reach in config.reaches:
            began = time.perf_counter()
            found = landscape.evaluate(objective, plane, reach=reach, points=config.points)
            place = {"seconds": time.perf_counter() - began, "contender": name, "seed": seed, "reach": reach}
            yield {"grids": _grid(found).assign(setting=setting, kind=RANDOM, **place)}
    first = min((seed for _, seed in learned), default=0)
    solutions = {name: theta for (name, seed), theta in learned.items() if seed == first and name in (*pair, DAL)}
    paths: dict[str, Any] = {SOLUTIONS: solutions} if len(solutions) > 2 else {}
    if fixed.options.batch_size is None and not rate["diverged"]:
        paths[PATH] = _path(objective, fixed.options.steps, rate["rate"])
    for kind, thetas in paths.items():
        plane = landscape.through(list(thetas.values()))
        points = pandas.DataFrame(plane.points, columns=["x", "y"]).assign(name=list(thetas), explained=plane.explained)
        found = landscape.evaluate(objective, plane, points=config.points)
        yield {
            name: table.assign(setting=setting, kind=kind)
            for name, table in (("grids", _grid(found)), ("points", points))
        }


def _path(objective: Objective, steps: int, rate: float) -> dict[str, Vector]:
    """Returns some iterates of descent by their steps, the last one among them."""
    every = next(n for n in range(max(steps // _ON_PATH, 1), 0, -1) if steps % n == 0)
    path = descend(objective, objective.theta, rate, steps, keep=every)
    return dict(zip(map(str, path.steps), path.thetas, strict=True))


def _grid(found: Landscape) -> Table:
    x, y = np.meshgrid(*found.axes, indexing="ij")
    return pandas.DataFrame({"x": x.ravel(), "y": y.ravel(), "loss": found.losses.ravel().astype(float)})


def _landscape(grid: Table, points: Table | None = None) -> Landscape:
    """Returns what `principalflow.plot.landscape` draws, from saved tables."""
    x, y = np.unique(grid["x"]), np.unique(grid["y"])
    through = np.zeros((0, 2)) if points is None else points[["x", "y"]].to_numpy()
    plane = Plane(jnp.zeros(0), jnp.zeros((0, 2)), through, 1.0)
    return Landscape(plane, (x, y), grid["loss"].to_numpy().reshape(len(x), len(y)))


def _of(table: Table, setting: str, kind: str) -> Table:
    return table[(table["setting"] == setting) & (table["kind"] == kind)]


def _around(tables: Tables, setting: str, reach: float) -> tuple[list[tuple[str, Landscape]], float]:
    """Returns the landscapes of the first seed by name, cut off at a height that both share, and that height."""
    grids = _of(tables["grids"], setting, RANDOM)
    grids = grids[(grids["seed"] == grids["seed"].min()) & (grids["reach"] == reach)]
    finite = grids["loss"][np.isfinite(grids["loss"])]
    highest = float(finite.quantile(0.9))
    parts = [(name, _landscape(grid)) for name, grid in grids.groupby("contender", sort=False)]
    return [(name, found._replace(losses=np.fmin(found.losses, highest))) for name, found in parts], highest


def _best(rows: Table) -> tuple[Table, Table]:
    """Returns the fixed rate and the DAL-p, p below 1, with the best test accuracies."""
    return best_test(fixed_rates(rows)), best_test(rows[rows["power"] < 1])


SETTINGS = dict(
    quick=Config(both(on_batches("quick", 64), VGG["quick"])),
    cpu=Config(both(on_batches("cpu", 64), CHEAP["cpu"]), points=17),
    paper=Config(both(on_batches("paper", 64), VGG["paper"])),
)
trainings = _dal_settings.trainings
STAND_INS = _dal_settings.stand_ins(SETTINGS)
