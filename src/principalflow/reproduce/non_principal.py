"""The third-order non-principal term is small outside the edge, and larger at it (figure 25)."""

from dataclasses import dataclass

import numpy as np
import pandas
from matplotlib.figure import Figure

from principalflow._lab import Claim, Table, Tables
from principalflow.flows import CONTRACTION_COST, PrincipalThirdOrder
from principalflow.reproduce import _edge
from principalflow.reproduce._edge import RESNET, STAND_INS_RESNET, all_trained, cost_claim, costs
from principalflow.reproduce._flows import stack
from principalflow.reproduce._trained import Trained


@dataclass(frozen=True)
class Config(_edge.Config):
    """The term is computed once in `every` steps."""

    every: int = 2


def run(config: Config) -> Tables:
    runs = all_trained(config)
    tables = {run.label: _terms(run, config.every) for run in runs}
    more = (1 + CONTRACTION_COST) * sum(map(len, tables.values()))
    return {"steps": stack(tables, "network"), "cost": costs(runs, more, more)}


def claims(config: Config, tables: Tables) -> list[Claim]:
    found = []
    for name, rows in tables["steps"].groupby("network", sort=False):
        outside, at_edge = rows[rows["h_lambda"] < 1], rows[rows["h_lambda"] > 2]
        size = float(outside["relative"].median())
        found += [
            Claim.below(
                f"{name}: outside the edge (hλ₀ < 1, {len(outside)} looks) the term is small: its norm over the "
                "gradient's, median",
                size,
                0.1,
            ),
            Claim.above(
                f"{name}: at the edge (hλ₀ > 2, {len(at_edge)} looks) it is larger: the median there over that outside",
                float(at_edge["relative"].median()) / size,
                2,
                note=f"The largest there over the largest outside: "
                f"{at_edge['relative'].max() / outside['relative'].max():.3g}.",
            ),
        ]
    return [*found, cost_claim(tables["cost"])]


def draw(config: Config, tables: Tables) -> Figure:
    figure = Figure(figsize=(12, 4.5), layout="constrained")
    size, relative = figure.subplots(1, 2)
    for number, (name, rows) in enumerate(tables["steps"].groupby("network", sort=False)):
        colour, edge = f"C{number}", rows["h_lambda"] > 2
        for ax, column in ((size, "term"), (relative, "relative")):
            ax.semilogy(rows["step"], rows[column], color=colour, linewidth=0.8, label=name)
            ax.semilogy(rows["step"][edge], rows[column][edge], "o", color=colour, markersize=4)
            ax.set_xlabel("step of descent; dots: λ₀ > 2/h")
    size.set(title="norm of the non-principal term", ylabel=r"$\frac{h^2}{12}\|\nabla E^T (\nabla^3 E) \nabla E\|$")
    relative.set(title="the same over the norm of the gradient")
    figure.legend(*size.get_legend_handles_labels(), loc="outside upper center", ncols=len(size.get_lines()))
    return figure


def _terms(run: Trained, every: int) -> Table:
    flow, records = PrincipalThirdOrder(run.h), run.records.iloc[::every]
    terms = [float(np.linalg.norm(flow.non_principal(run.objective, run.theta(step)))) for step in records["step"]]
    return pandas.DataFrame(
        {
            "step": records["step"],
            "h_lambda": run.h * records["eigenvalue_0"],
            "term": terms,
            "relative": np.array(terms) / records["gradient_norm"],
        }
    )


SETTINGS = {profile: Config(sweep) for profile, sweep in RESNET.items()}
trainings = _edge.trainings
STAND_INS = STAND_INS_RESNET
