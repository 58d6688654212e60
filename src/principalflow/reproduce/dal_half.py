"""DAL-0.5 against a sweep of fixed rates: training speed and test accuracy (figure 20)."""

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
    ratio,
    settings,
)
from principalflow.reproduce._dal_settings import CHEAP, RESNET, VGG, Config, both


def claims(config: Config, tables: Tables) -> list[Claim]:
    return [claim for setting, rows in settings(tables["contenders"]) for claim in _claims(setting, rows)]


def draw(config: Config, tables: Tables) -> Figure:
    figure, parts = _dal_drawing.panels(tables["contenders"], 3)
    for (loss, test, ends), setting, rows in parts:
        steps, names = (of(tables["steps"], setting), [*fixed_rates(rows)["contender"], DAL, HALF])
        _dal_drawing.draw_losses(loss, steps, names)
        _dal_drawing.draw_curves(test, steps, "test_accuracy", names, log=False)
        _dal_drawing.draw_accuracies(ends, rows, names)
        test.set_title("test accuracy")
    return figure


def _claims(setting: str, rows: Table) -> list[Claim]:
    rates = fixed_rates(rows)
    dal, half, lowest, best = (named(rows, DAL), named(rows, HALF), lowest_loss(rates), best_test(rates))
    return [
        Claim.at_least(
            f"{setting}: DAL-0.5 tests as well as the best of the sweep or better: mean test accuracy less that of "
            f"{best['contender']}",
            half["test_accuracy"] - best["test_accuracy"],
            0,
            note=f"{accuracy(half)} against {accuracy(best)}, over three seeds. The best one was chosen by its test "
            f"accuracy, which favours it.{end_of_sweep(best, rates)}",
        ),
        Claim.below(
            f"{setting}: it trains faster than the sweep: its last loss over the lowest of fixed rates, "
            f"{lowest['contender']}",
            ratio(half["last_loss"], lowest["last_loss"]),
            1,
            note=f"{STEPS_NOT_COST}{end_of_sweep(lowest, rates)}",
        ),
        Claim.below(
            f"{setting}: and than DAL: its last loss over DAL's", ratio(half["last_loss"], dal["last_loss"]), 1
        ),
        Claim.above(
            f"{setting}: at times with more instability: the largest relative rise of its loss over DAL's",
            ratio(half["largest_rise"], dal["largest_rise"]),
            1,
            note=f"{half['largest_rise']:.2g} against {dal['largest_rise']:.2g}; the loss rises at {half['rises']:.1f} "
            f"and {dal['rises']:.1f} steps on average.",
        ),
    ]


SETTINGS = dict(
    quick=Config(both(VGG["quick"], RESNET["quick"])),
    cpu=Config(both(CHEAP["cpu"], VGG["cpu"], RESNET["cpu"])),
    paper=Config(both(VGG["paper"], RESNET["paper"])),
)
run = _dal_settings.run
trainings = _dal_settings.trainings
STAND_INS = _dal_settings.stand_ins(SETTINGS)
