"""DAL with a square loss (figure 45)."""

from dataclasses import replace

import numpy as np
from matplotlib.figure import Figure

from principalflow._lab import Claim, Table, Tables
from principalflow.reproduce import _dal_drawing, _dal_settings
from principalflow.reproduce._dal_queries import (
    DAL,
    HALF,
    STEPS_NOT_COST,
    accuracy,
    best_test,
    end_of_sweep,
    fixed_rates,
    lowest_loss,
    named,
    of,
    settings,
)
from principalflow.reproduce._dal_settings import CHEAP, VGG, Config, dal, descent
from principalflow.reproduce._sweeps import Sweep
from principalflow.training import Options


def claims(config: Config, tables: Tables) -> list[Claim]:
    return [
        claim
        for setting, rows in settings(tables["contenders"])
        for claim in _claims(setting, of(tables["steps"], setting), rows)
    ]


def draw(config: Config, tables: Tables) -> Figure:
    figure, parts = _dal_drawing.panels(tables["steps"], 3)
    for (loss, test, ends), setting, steps in parts:
        _dal_drawing.draw_losses(loss, steps)
        _dal_drawing.draw_curves(test, steps, "test_accuracy", log=False)
        _dal_drawing.draw_accuracies(ends, of(tables["contenders"], setting))
        test.set_title("test accuracy")
    return figure


def _claims(setting: str, steps: Table, rows: Table) -> list[Claim]:
    rates = fixed_rates(rows)
    lowest, best = lowest_loss(rates), best_test(rates)
    levels = steps[steps["contender"] == lowest["contender"]].groupby("seed")["loss"].last()  # none if all diverged
    claims = []
    for name in (DAL, HALF):
        row, seeds = named(rows, name), steps[steps["contender"] == name].groupby("seed")
        needed = [_steps_to(some, levels.get(seed, np.nan)) / steps["step"].max() for seed, some in seeds]
        claims += [
            Claim.below(
                f"{setting}: {name} is quicker than the sweep: the share of the steps in which it gets to the last "
                f"loss of the best rate, {lowest['contender']}, in the worst seed",
                np.inf if row["diverged"] else max(needed),
                1,
                note=f"Last losses: {row['last_loss']:.3g} against {lowest['last_loss']:.3g}. {STEPS_NOT_COST}"
                f"{end_of_sweep(lowest, rates)}",
            ),
            Claim.at_least(
                f"{setting}: {name}'s mean test accuracy less that of the best rate, {best['contender']}",
                row["test_accuracy"] - best["test_accuracy"],
                -0.01,
                note=f"{accuracy(row)} against {accuracy(best)}. Within a point counts as as good.",
            ),
        ]
    return claims


def _steps_to(steps: Table, level: float) -> float:
    there = steps[steps["loss"] <= level]
    return float(there["step"].iloc[0]) if len(there) else np.inf


def _sweeps(options: Options, rates: tuple[float, ...]) -> tuple[Sweep, Sweep]:
    options = replace(options, loss="mean-square")
    return descent(options, rates), dal(options, (1.0, 0.5))


SETTINGS = dict(
    quick=Config(_sweeps(VGG["quick"], (0.01, 0.02, 0.05, 0.1))),
    cpu=Config(_sweeps(CHEAP["cpu"], (0.005, 0.01, 0.02, 0.05))),
    paper=Config(_sweeps(VGG["paper"], (0.01, 0.02, 0.05, 0.1, 0.2))),
)
run = _dal_settings.run
trainings = _dal_settings.trainings
STAND_INS = _dal_settings.stand_ins(SETTINGS)
