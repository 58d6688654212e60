"""The principal flow on the simplest loss, in its three regimes (figure 4)."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from principalflow._lab import PROFILES, Claim, Tables
from principalflow.functions import quadratic
from principalflow.reproduce._flows import COLOURS, DESCENT, at_steps, follow, points, stack


@dataclass(frozen=True)
class Config:
    """The rates, one for each regime, on z²/2, where h λ is h itself."""

    rates: tuple[float, ...] = (0.8, 1.5, 2.1)
    start: float = 1.0
    steps: int = 8


def run(config: Config) -> Tables:
    objective = quadratic([[1.0]])
    paths = {h: follow(objective, [config.start], h, config.steps, ["PF"], saves=40) for h in config.rates}
    return {"paths": stack(paths, "h")}


def claims(config: Config, tables: Tables) -> list[Claim]:
    found = []
    for h, paths in tables["paths"].groupby("h"):
        z, times = points(paths, "PF")[:, 0], paths.loc[paths["flow"] == "PF", "time"].to_numpy()
        exact = config.start * np.exp(times / h * np.log(complex(1 - h)))
        sentence = f"At h = {h} the PF is (1 − h)^(t/h) z(0) throughout: its largest distance from that"
        found.append(Claim.below(sentence, float(np.abs(z - exact).max()), 1e-7))
    below, between, above = (points(paths, "PF")[:, 0] for _, paths in tables["paths"].groupby("h"))
    steps = config.steps
    return [
        *found,
        Claim.below(f"At h = {config.rates[0]} it stays real: its largest imaginary part", abs(below.imag).max(), 1e-7),
        *(
            Claim.at_least(
                f"At h = {h} it oscillates: turns of its real part's sign in {steps} steps", _turns(z), steps
            )
            for h, z in zip(config.rates[1:], (between, above), strict=True)
        ),
        Claim.below(f"At h = {config.rates[1]} it converges: its last distance from 0", abs(between[-1]), 0.1),
        Claim.above(f"At h = {config.rates[2]} it diverges: its last distance from 0", abs(above[-1]), config.start),
    ]


def draw(config: Config, tables: Tables) -> Figure:
    figure = Figure(figsize=(14, 4), layout="constrained")
    axes = figure.subplots(1, len(config.rates))
    for ax, (h, paths) in zip(axes, tables["paths"].groupby("h"), strict=True):
        z, steps = points(paths, "PF")[:, 0], paths.loc[paths["flow"] == "PF", "step"]
        ax.plot(steps, z.real, color=COLOURS["PF"], label="Re z of the PF")
        ax.plot(steps, z.imag, color=COLOURS["PF"], linestyle=":", label="Im z of the PF")
        descent = at_steps(paths, DESCENT)[:, 0].real
        ax.plot(np.arange(len(descent)), descent, "o", color="black", markersize=5, label=DESCENT)
        ax.axhline(0, color="black", linewidth=0.5)
        regime = "below 1" if h < 1 else "from 1 to 2" if h < 2 else "above 2"
        ax.set(title=rf"$h\lambda = {h}$: {regime}", xlabel="steps (t/h)", ylabel="z")
    axes[-1].legend()
    return figure


def explore(config: Config, tables: Tables) -> dict[str, Any]:
    """All three in the complex plane."""
    import plotly.graph_objects as go

    figure = go.Figure()
    for h, paths in tables["paths"].groupby("h"):
        z = points(paths, "PF")[:, 0]
        figure.add_scatter(x=z.real, y=z.imag, mode="lines", name=f"PF, h = {h}")
        descent = at_steps(paths, DESCENT)[:, 0]
        figure.add_scatter(x=descent.real, y=descent.imag, mode="markers", name=f"descent, h = {h}")
    figure.update_layout(xaxis_title="Re z", yaxis_title="Im z", yaxis_scaleanchor="x")
    return {"The flow in the complex plane: real below h = 1, a spiral inwards below 2, outwards above.": figure}


def _turns(z: np.ndarray) -> int:
    return int(np.sum(np.diff(np.sign(np.real(z))) != 0))


SETTINGS = dict.fromkeys(PROFILES, Config())
