"""A curved valley: where the principal flow follows descent, and what brings it back where it doesn't (fig. banana)."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from principalflow import functions, plot
from principalflow._lab import PROFILES, Claim, Tables
from principalflow.reproduce._flows import COLOURS, DESCENT, at_steps, errors, follow, points, stack

FLOWS = ("NGF", "IGR flow", "PF", "PF, principal branch", "PF with third-order term")
_FAR = 10.0  # beyond this a path is called diverged; descent stays within 2


@dataclass(frozen=True)
class Config:
    """The rates of the figure, and a start at which h times lambda_0 is as its captions say."""

    start: tuple[float, float] = (1.0, 0.7)
    rates: tuple[float, float, float] = (0.0006, 0.0017, 0.005)
    steps: int = 8


def run(config: Config) -> Tables:
    objective = functions.banana()
    paths = {h: follow(objective, config.start, h, config.steps, FLOWS) for h in config.rates}
    return {"paths": stack(paths, "h")}


def claims(config: Config, tables: Tables) -> list[Claim]:
    small, middle, large = (paths for _, paths in tables["paths"].groupby("h"))
    found = []
    for h, paths in zip(config.rates[:2], (small, middle), strict=True):
        first = {name: errors(paths, name)[0] for name in FLOWS}
        mean = {name: errors(paths, name).mean() for name in FLOWS}
        found += [
            Claim.below(
                f"h = {h}: after one step the PF's error over the IGR flow's", first["PF"] / first["IGR flow"], 1
            ),
            Claim.below(
                f"h = {h}: over {config.steps} steps the PF's mean error over the smaller of NGF's and IGR flow's",
                mean["PF"] / min(mean["NGF"], mean["IGR flow"]),
                1,
            ),
        ]
    mean = {name: errors(middle, name).mean() for name in FLOWS}
    return [
        *found,
        Claim.below(
            f"h = {config.rates[1]}: the same for the principal branch of the logarithm, which the paper uses",
            mean["PF, principal branch"] / min(mean["NGF"], mean["IGR flow"]),
            1,
            note="The paper reports that the PF follows descent over many steps here. With the textbook's branch it "
            "does not: as soon as the path leaves the real axis, the logarithm jumps by 2πi where 1 − h λ crosses the "
            "negative real axis, which is where this flow lives. The continuous branch moves the jump away.",
        ),
        Claim.below(
            f"h = {config.rates[1]}: what the continuous branch changes: its mean error over the principal branch's",
            mean["PF"] / mean["PF, principal branch"],
            0.5,
        ),
        Claim.above(
            f"h = {config.rates[2]}: the PF diverges, with either branch: the nearer of the two gets as far as",
            min(_furthest(large, "PF"), _furthest(large, "PF, principal branch")),
            _FAR,
        ),
        Claim.below(
            f"h = {config.rates[2]}: the third-order term restabilises it, and it stays within",
            _furthest(large, "PF with third-order term"),
            _FAR,
        ),
        Claim.below(f"h = {config.rates[2]}: so does descent, which stays within", _furthest(large, DESCENT), _FAR),
        Claim.below(
            f"h = {config.rates[2]}: with it the flow takes descent's course: its mean error over the NGF's",
            errors(large, "PF with third-order term").mean() / errors(large, "NGF").mean(),
            1,
            note="The paper sees descent's general course in it. From this start, with h λ₀ = 5.5, descent jumps about "
            "the valley and no flow is near it; the term keeps the flow from running away, and does no more.",
        ),
    ]


def draw(config: Config, tables: Tables) -> Figure:
    figure = Figure(figsize=(16, 9), layout="constrained")
    above, below = figure.subplots(2, 3)
    objective = functions.banana()
    sharpness = float(np.linalg.eigvalsh(objective.hessian(config.start))[-1])
    for path_axes, error_axes, (h, paths) in zip(above, below, tables["paths"].groupby("h"), strict=True):
        curves = {name: _near(points(paths, name)) for name in FLOWS}
        plot.trajectories(objective, curves, at_steps(paths, DESCENT).real, ax=path_axes, colours=COLOURS)
        path_axes.set_title(rf"$h$ = {h}: $h\lambda_0$ = {h * sharpness:.2f} at the start")
        path_axes.get_legend().remove()
        for name in FLOWS:
            error = errors(paths, name)
            error = np.where(error < _FAR, error, np.nan)
            error_axes.semilogy(np.arange(1, config.steps + 1), error, "o-", color=COLOURS[name], label=name)
        error_axes.set(xlabel="gradient descent step n", ylabel=r"$\|\theta_n - \theta(nh)\|$")
    handles, labels = above[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4)
    return figure


def explore(config: Config, tables: Tables) -> dict[str, Any]:
    """The complex paths at the middle rate, in three dimensions."""
    import plotly.graph_objects as go

    h = config.rates[1]
    paths = tables["paths"][tables["paths"]["h"] == h]
    figure = go.Figure()
    for name in (DESCENT, *FLOWS):
        theta = points(paths, name)
        figure.add_scatter3d(
            x=theta[:, 0].real,
            y=theta[:, 1].real,
            z=theta[:, 0].imag,
            mode="lines+markers" if name == DESCENT else "lines",
            name=name,
            line={"color": COLOURS[name], "width": 4},
            marker={"size": 4},
        )
    figure.update_layout(scene={"xaxis_title": "Re θ₀", "yaxis_title": "Re θ₁", "zaxis_title": "Im θ₀"})
    return {f"The paths at h = {h}, with the imaginary part of θ₀ as height.": figure}


def _furthest(paths: Any, name: str) -> float:
    theta = np.abs(points(paths, name)).max(axis=1)
    return float(theta.max())


def _near(theta: np.ndarray) -> np.ndarray:
    """Returns a path up to where it leaves the picture."""
    far = np.abs(theta).max(axis=1) > 3
    return theta[: int(np.argmax(far))] if far.any() else theta


SETTINGS = dict.fromkeys(PROFILES, Config())
