"""DAL and DAL-0.5 across batch sizes.

Figures imagenet_lr_scaling_across_batch_sizes and imagenet_lr_sqrt_scaling_across_batch_sizes.
"""

from collections.abc import Iterable
from itertools import pairwise

import numpy as np
from matplotlib.figure import Figure

from principalflow._lab import Claim, Table, Tables
from principalflow.reproduce import _dal_drawing, _dal_settings
from principalflow.reproduce._dal_queries import (
    DAL,
    HALF,
    accuracy,
    best_test,
    fixed_rates,
    lowest_loss,
    named,
    of,
    ratio,
    settings,
)
from principalflow.reproduce._dal_settings import CHEAP, VGG, Config, both, on_batches


def claims(config: Config, tables: Tables) -> list[Claim]:
    parts = settings(tables["contenders"])  # the smallest batches first
    return [claim for name in (DAL, HALF) for claim in _claims(name, parts)]


def draw(config: Config, tables: Tables) -> Figure:
    parts = settings(tables["contenders"])
    figure = Figure(figsize=(5.5 * len(parts), 8.5), layout="constrained")
    for (loss, ends), (setting, rows) in zip(figure.subplots(2, len(parts), squeeze=False).T, parts, strict=True):
        names = [*fixed_rates(rows)["contender"], DAL, HALF]
        _dal_drawing.draw_losses(loss, of(tables["steps"], setting), names)
        _dal_drawing.draw_accuracies(ends, rows, names)
    return figure


def _claims(name: str, parts: list[tuple[str, Table]]) -> list[Claim]:
    accuracies = [named(rows, name)["test_accuracy"] - _best(rows)["test_accuracy"] for _, rows in parts]
    losses = [ratio(lowest_loss(fixed_rates(rows))["last_loss"], named(rows, name)["last_loss"]) for _, rows in parts]
    told = "; ".join(
        f"{setting} {accuracy(named(rows, name))}, best rate {accuracy(_best(rows))}" for setting, rows in parts
    )
    return [
        Claim.above(
            f"{name}: its gain grows with the batch: how much more test accuracy it has than the best rate: the least "
            "increase from one size to the next",
            _least(large - small for small, large in pairwise(accuracies)),
            0,
            note=f"{told}.",
        ),
        Claim.above(
            f"{name}: the same of the training loss: how many times lower it ends than the best rate's: the least "
            "factor from one size to the next",
            _least(ratio(large, small) for small, large in pairwise(losses)),
            1,
            note=f"{', '.join(f'{gain:.3g}' for gain in losses)} times, the smallest batches first (nan: it diverged).",
        ),
    ]


def _best(rows: Table) -> Table:
    return best_test(fixed_rates(rows))


def _least(numbers: Iterable[float]) -> float:
    return float(np.min(list(numbers)))


SETTINGS = dict(
    quick=Config(both(on_batches("quick", 64), on_batches("quick", 256), VGG["quick"])),
    cpu=Config(both(on_batches("cpu", 64, CHEAP), on_batches("cpu", 512, CHEAP), CHEAP["cpu"])),
    paper=Config(both(*(on_batches("paper", size) for size in (64, 1024, 8192)))),
)
run = _dal_settings.run
trainings = _dal_settings.trainings
STAND_INS = _dal_settings.stand_ins(SETTINGS)
