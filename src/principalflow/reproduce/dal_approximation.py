"""DAL by exact Hessian products and by finite differences.

Figures dal_cifar_full_batch, dal_cifar_sgd, dal_approx_comp and dal_0_5_approx_comp.
"""

import numpy as np
from matplotlib.figure import Figure

from principalflow._lab import Claim, Table, Tables
from principalflow.reproduce import _dal_drawing, _dal_settings
from principalflow.reproduce._dal_queries import DAL, HALF, accuracy, is_full_batch, named, of, ratio, settings
from principalflow.reproduce._dal_settings import CHEAP, VGG, Config, dal, on_batches
from principalflow.reproduce._sweeps import Sweep
from principalflow.training import Options

_FINITE = "finite difference"


def claims(config: Config, tables: Tables) -> list[Claim]:
    return [claim for setting, rows in settings(tables["contenders"]) for claim in _claims(setting, rows)]


def draw(config: Config, tables: Tables) -> Figure:
    figure, parts = _dal_drawing.panels(tables["steps"], 3)
    for (loss, rate, ends), setting, steps in parts:
        names = [name for power in (DAL, HALF) for name in (power, f"{power}, {_FINITE}")]
        _dal_drawing.draw_losses(loss, steps, names)
        _dal_drawing.draw_curves(rate, steps, "learning_rate", names)
        _dal_drawing.draw_accuracies(ends, of(tables["contenders"], setting), names)
        rate.set_title("learning rate")
    return figure


def _claims(setting: str, rows: Table) -> list[Claim]:
    full = is_full_batch(rows)
    most, words = (0.005, "no test accuracy is lost") if full else (0.02, "little test accuracy is lost")
    claims, apart = [], {}
    for power in (DAL, HALF):
        exact, finite = named(rows, power), named(rows, f"{power}, {_FINITE}")
        lost = exact["test_accuracy"] - finite["test_accuracy"]
        losses = ratio(finite["last_loss"], exact["last_loss"])
        apart[power] = abs(np.log(losses))
        note = f"{accuracy(exact)} by products, {accuracy(finite)} by differences, over three seeds."
        claims += [
            Claim.at_most(f"{setting}, {power}: {words} by finite differences: how much", lost, most, note=note),
            Claim.below(f"{setting}, {power}: the last loss over that by exact products", losses, 1.25),
        ]
    return [
        *claims,
        Claim.below(
            f"{setting}: the difference is smaller at the higher power: how far the last losses are apart "
            "(the logarithm of their ratio), with DAL less with DAL-0.5",
            apart[DAL] - apart[HALF],
            0,
        ),
    ]


def _sweeps(options: Options) -> tuple[Sweep, Sweep]:
    return dal(options), dal(options, (1.0, 0.5), curvature="finite_difference")


SETTINGS = dict(
    quick=Config((*_sweeps(VGG["quick"]), *_sweeps(on_batches("quick", 64)))),
    cpu=Config((*_sweeps(CHEAP["cpu"]), *_sweeps(on_batches("cpu", 64)))),
    paper=Config((*_sweeps(VGG["paper"]), *_sweeps(on_batches("paper", 512)))),
)
run = _dal_settings.run
trainings = _dal_settings.trainings
STAND_INS = _dal_settings.stand_ins(SETTINGS)
