"""How much of a step's drift the modified flows explain along the training of networks (figure 31)."""

import numpy as np
import pandas
from matplotlib.figure import Figure

from principalflow._lab import Claim, Table, Tables
from principalflow.flows import compare
from principalflow.reproduce._edge import MLP, STAND_INS_MLP, SWEEP, Config, networks, share, unrecorded
from principalflow.reproduce._flows import COLOURS, named, stack
from principalflow.reproduce._trained import rate, trained
from principalflow.spectrum import sharpness
from principalflow.training import Options

NGF, IGR, THIRD = FLOWS = ("NGF", "IGR flow", "third-order flow")
# Of a flow's solver, relative to descent's step.
_TOLERANCE = 1e-4


def run(config: Config) -> Tables:
    return {"errors": stack({network.data: _errors(network) for network in networks(config)}, "data")}


def claims(config: Config, tables: Tables) -> list[Claim]:
    return [claim for data, rows in tables["errors"].groupby("data", sort=False) for claim in _claims(data, rows)]


def draw(config: Config, tables: Tables) -> Figure:
    figure = Figure(figsize=(15, 4.5 * len(config.networks)), layout="constrained")
    for axes, network in zip(figure.subplots(len(config.networks), 3, squeeze=False), config.networks, strict=True):
        error, relative, eigenvalue = axes
        data, h = network.data, rate(network)
        rows = tables["errors"][tables["errors"]["data"] == data]
        for name in FLOWS:
            of_flow = rows[rows["flow"] == name]
            error.semilogy(of_flow["step"], of_flow["error"], color=COLOURS[name], label=name)
            relative.semilogy(of_flow["step"], of_flow["relative_error"], color=COLOURS[name], label=name)
        looks = rows.drop_duplicates("step")
        eigenvalue.plot(looks["step"], looks["sharpness"], color="black", label=r"$\lambda_0$")
        for multiple, style in ((1, ":"), (2, "--")):
            eigenvalue.axhline(multiple / h, color="grey", linestyle=style, label=f"{multiple}/h")
        error.set(title=f"{data}, h = {h:g}: error of one step", ylabel=r"$\|\theta_t - \theta(h;\,\theta_{t-1})\|$")
        relative.set(title="the same over the length of the step", ylabel="relative error")
        eigenvalue.set(title="largest eigenvalue of the Hessian", ylabel=r"$\lambda_0$")
        for ax in axes:
            ax.set_xlabel("step of descent")
            ax.legend()
    return figure


def _errors(network: Options) -> Table:
    """Returns the error of each flow over one step from every so many iterates of descent."""
    run = trained(network)
    parts, flows = [], named(run.h, FLOWS)
    for step, theta, value in zip(run.steps, run.kept, sharpness(run.objective, run.kept), strict=True):
        part = compare(run.objective, theta, run.h, 1, flows, rtol=_TOLERANCE, kinds=["local"], progress=False)
        parts.append(part.assign(step=step, sharpness=value, h=run.h))
    return pandas.concat(parts, ignore_index=True)


def _claims(data: str, rows: Table) -> list[Claim]:
    errors = rows.pivot(index="step", columns="flow", values="error")
    relative = rows.pivot(index="step", columns="flow", values="relative_error")
    curvature = rows.groupby("step")["sharpness"].first() * rows["h"].iloc[0]
    before, sharpest = curvature < 2, curvature[curvature >= np.nanquantile(curvature, 0.75)].index
    ratio = (errors[IGR] / errors[NGF]).median()
    nearer = share(errors[IGR] < errors[NGF])
    lowest, highest, of_ngf = curvature[sharpest].min(), curvature.max(), relative[NGF][sharpest].median()
    return [
        Claim.below(f"{data}: the IGR flow's error over the NGF's, at the median", ratio, 1),
        Claim.above(f"{data}: the share of iterates at which the IGR flow is nearer to descent", nearer, 0.5),
        Claim.below(
            f"{data}: the third-order flow's error over the IGR flow's, at the median before the edge (hλ₀ < 2)",
            (errors[THIRD] / errors[IGR])[before].median(),
            1,
            note=_where_third_order_is_worse(errors, curvature),
        ),
        Claim.above(
            f"{data}: a gap remains: the third-order flow's error over the length of descent's step, at the median of "
            "the sharpest quarter of the iterates",
            relative[THIRD][sharpest].median(),
            0.01,
            note=f"“A large gap” is taken to be a hundredth of the step or more. There hλ₀ is {lowest:.2f} to "
            f"{highest:.2f}, and the NGF's error is {of_ngf:.2g} of the step.",
        ),
        Claim.above(
            f"{data}: the gap is large: the third-order flow's error over the NGF's, at the median of these iterates",
            (errors[THIRD] / errors[NGF])[sharpest].median(),
            0.5,
            note="Here it is large if more than half is left. Along u₀ of a quadratic, with z = hλ₀, the distance from "
            "the valley's floor is multiplied by 1 − z in a step of descent, and by exp(−z), exp(−z − z²/2) and "
            "exp(−z − z²/2 − z³/3) along the three flows. At z = 2 their errors are 1.14, 1.02 and 1.00: more orders "
            "bring a real flow to the floor sooner, but never past it, where descent is.",
        ),
    ]


def _where_third_order_is_worse(errors: Table, curvature: Table) -> str:
    worse, edge = errors[THIRD] > errors[IGR], curvature >= 2
    return (
        f"The third-order flow is worse than the IGR flow at {worse[~edge].sum()} of {(~edge).sum()} iterates before "
        f"the edge and at {worse[edge].sum()} of {edge.sum()} at it. Where hλ₀ > 1 the series of which both are the "
        "beginnings diverges, and nothing says that a longer beginning is better."
    )


SETTINGS = {
    "quick": Config((unrecorded(MLP["quick"], 16, steps=240),)),
    "cpu": Config(
        (
            unrecorded(MLP["cpu"], 20, precision="float64"),
            unrecorded(SWEEP["cpu"][0], 14, samples=500, precision="float64"),
        )
    ),
    "paper": Config(
        (
            unrecorded(MLP["paper"], 25, precision="float64"),
            unrecorded(SWEEP["paper"][0], 25, learning_rate=0.02, precision="float64"),
        )
    ),
}
STAND_INS = {
    "quick": f"{STAND_INS_MLP['quick']} CIFAR-10 is left out.",
    "cpu": f"{STAND_INS_MLP['cpu']} 500 images of CIFAR-10, and a VGG-11 of a sixteenth of the channels with group "
    "normalisation, with h = 0.04.",
}
