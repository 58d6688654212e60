"""DAL with a square loss (figure least_square_loss_dal)."""

from dataclasses import replace

import numpy as np
from matplotlib.figure import Figure

from principalflow.reproduce import _dal
from principalflow.reproduce._dal import (
    MLP,
    STAND_INS_MLP,
    VGG,
    Config,
    accuracy,
    best_test,
    dal,
    descent,
    fixed_rates,
    lowest_loss,
    named,
    settings,
)
from principalflow.reproduce._experiment import Claim, Experiment, Table, Tables
from principalflow.reproduce._sweeps import Sweep
from principalflow.training import Options

_DALS = ("DAL", "DAL-0.5")


def claims(config: Config, tables: Tables) -> list[Claim]:
    contenders = dict(settings(tables["contenders"]))
    return [
        claim for setting, steps in settings(tables["steps"]) for claim in _claims(setting, steps, contenders[setting])
    ]


def draw(config: Config, tables: Tables) -> Figure:
    parts = settings(tables["steps"])
    figure = Figure(figsize=(15, 4.2 * len(parts)), layout="constrained")
    for axes, (setting, steps) in zip(figure.subplots(len(parts), 3, squeeze=False), parts, strict=True):
        loss, test, ends = axes
        _dal.draw_curves(loss, steps, "loss")
        _dal.draw_curves(test, steps, "test_accuracy", log=False)
        _dal.draw_means(ends, dict(settings(tables["contenders"]))[setting], "test_accuracy")
        high = steps.loc[steps["step"] == 0, "loss"].max()
        loss.set(title=f"{setting}: loss", ylim=(steps["loss"].min() / 1.5, 4 * high))
        test.set(title="test accuracy")
        ends.set(title="test accuracy at the end, mean and spread over seeds")
        loss.legend(fontsize="small")
    return figure


def _claims(setting: str, steps: Table, rows: Table) -> list[Claim]:
    lowest, best = lowest_loss(fixed_rates(rows)), best_test(fixed_rates(rows))
    claims = []
    for name in _DALS:
        row, of = named(rows, name), steps[steps["contender"] == name]
        needed = [_steps_to(some, lowest["last_loss"]) / some["step"].max() for _, some in of.groupby("seed")]
        claims += [
            Claim(
                f"{setting}: {name} is quicker than the sweep: the share of the steps in which it gets to the last "
                f"loss of the best rate, {lowest['contender']}, in the worst seed",
                max(needed),
                "<",
                1,
                note=f"Last losses: {row['last_loss']:.3g} against {lowest['last_loss']:.3g}.",
            ),
            Claim(
                f"{setting}: {name}'s mean test accuracy less that of the best rate, {best['contender']}",
                row["test_accuracy"] - best["test_accuracy"],
                ">=",
                -0.01,
                note=f"{accuracy(row)} against {accuracy(best)}. Within a point counts as as good.",
            ),
        ]
    return claims


def _steps_to(steps: Table, level: float) -> float:
    there = steps[steps["loss"] <= level]
    return float(there["step"].iloc[0]) if len(there) and not steps["diverged"].any() else np.inf


def _sweeps(options: Options, rates: tuple[float, ...]) -> tuple[Sweep, Sweep]:
    options = replace(options, loss="mean-square")
    return descent(options, rates), dal(options, (1.0, 0.5))


EXPERIMENT = Experiment(
    id="dal-mse",
    title="DAL with a square loss",
    figure="Figure least_square_loss_dal, appendix D",
    paper_says="With a square loss, too, DAL and DAL-0.5 train quicker than a sweep of fixed rates.",
    paper_setting="VGG on CIFAR-10, full batch.",
    profiles={
        "quick": Config(_sweeps(VGG["quick"], (0.05, 0.1, 0.2, 0.4))),
        "cpu": Config(_sweeps(MLP["cpu"], (0.02, 0.05, 0.1, 0.2))),
        "paper": Config(_sweeps(VGG["paper"], (0.01, 0.02, 0.05, 0.1, 0.2))),
    },
    run=_dal.run,
    claims=claims,
    draw=draw,
    trainings=_dal.trainings,
    stand_ins=STAND_INS_MLP,
)
