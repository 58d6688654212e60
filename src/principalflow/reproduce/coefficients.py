"""How strongly each flow follows an eigendirection, over h times its curvature (figure 3, table 1)."""

from dataclasses import dataclass

import numpy as np
import pandas
from matplotlib.figure import Figure

from principalflow._lab import PROFILES, Claim, Tables
from principalflow.reproduce._flows import COLOURS, named

FLOWS = ("NGF", "IGR flow", "PF")


@dataclass(frozen=True)
class Config:
    """The range of h times lambda, and how finely it is sampled."""

    least: float = -2.0
    most: float = 5.0
    points: int = 1400


def run(config: Config) -> Tables:
    # Midpoints, so that the singularity at 1 is between two of them.
    edges = np.linspace(config.least, config.most, config.points + 1)
    z = (edges[1:] + edges[:-1]) / 2
    parts = []
    for name, flow in named(1.0, FLOWS).items():
        alpha = flow.alpha(z)
        parts.append(pandas.DataFrame({"flow": name, "z": z, "real": np.real(alpha), "imaginary": np.imag(alpha)}))
    return {"coefficients": pandas.concat(parts, ignore_index=True)}


def claims(config: Config, tables: Tables) -> list[Claim]:
    table = tables["coefficients"]
    z, real, imaginary = table.loc[table["flow"] == "PF", ["z", "real", "imaginary"]].to_numpy().T
    others = table.loc[table["flow"] == "IGR flow"]
    return [
        Claim.below(
            "Below h λ = 2 the real part of the PF's coefficient is negative: its largest value", real[z < 2].max(), 0
        ),
        Claim.above("Above 2 it is positive, and the flow climbs: its smallest value", real[z > 2].min(), 0),
        Claim.equal("Below 1 the coefficient is real: the largest imaginary part", np.abs(imaginary[z < 1]).max(), 0),
        Claim.below(
            "From 1 on the imaginary part is π/(h λ), which starts at π and decays: the largest difference",
            np.abs(imaginary[z > 1] - np.pi / z[z > 1]).max(),
            1e-12,
        ),
        Claim.below(
            "The IGR flow's coefficient is never positive where the curvature is: its largest value",
            others.loc[others["z"] > 0, "real"].max(),
            0,
        ),
    ]


def draw(config: Config, tables: Tables) -> Figure:
    figure = Figure(figsize=(11, 4), layout="constrained")
    real, imaginary = figure.subplots(1, 2)
    for name, rows in tables["coefficients"].groupby("flow", sort=False):
        real.plot(rows["z"], rows["real"], color=COLOURS[name], label=name)
        imaginary.plot(rows["z"], rows["imaginary"], color=COLOURS[name], label=name)
    real.axhline(0, color="black", linewidth=0.5)
    for ax, part in ((real, "real"), (imaginary, "imaginary")):
        for threshold in (1, 2):
            ax.axvline(threshold, color="grey", linestyle=":", linewidth=1)
        ax.set_xlabel(r"$h\lambda$")
        ax.set_title(rf"{part} part of $\alpha(h\lambda)$")
        ax.legend()
    return figure


SETTINGS = dict.fromkeys(PROFILES, Config())
