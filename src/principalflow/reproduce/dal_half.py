"""DAL-0.5 against a sweep of fixed rates: training speed and test accuracy (figure l_r_scaling_sqrt)."""

from matplotlib.figure import Figure

from principalflow.reproduce import _dal_drawing, _dal_queries, _dal_settings
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
    ratio,
    settings,
)
from principalflow.reproduce._dal_settings import CHEAP, RESNET, VGG, Config, both
from principalflow.reproduce._experiment import Claim, Table, Tables


def claims(config: Config, tables: Tables) -> list[Claim]:
    return [claim for setting, rows in settings(tables["contenders"]) for claim in _claims(setting, rows)]


def draw(config: Config, tables: Tables) -> Figure:
    figure, parts = _dal_drawing.panels(tables["contenders"], 3)
    for (loss, test, ends), setting, rows in parts:
        steps, names = _dal_queries.of(tables["steps"], setting), [*fixed_rates(rows)["contender"], DAL, HALF]
        _dal_drawing.draw_losses(loss, steps, names)
        _dal_drawing.draw_curves(test, steps, "test_accuracy", names, log=False)
        _dal_drawing.draw_accuracies(ends, rows, names)
        test.set_title("test accuracy")
    return figure


def _claims(setting: str, rows: Table) -> list[Claim]:
    rates = fixed_rates(rows)
    dal, half, lowest, best = named(rows, DAL), named(rows, HALF), lowest_loss(rates), best_test(rates)
    return [
        Claim(
            f"{setting}: DAL-0.5 tests as well as the best of the sweep or better: mean test accuracy less that of "
            f"{best['contender']}",
            half["test_accuracy"] - best["test_accuracy"],
            ">=",
            0,
            note=f"{accuracy(half)} against {accuracy(best)}, over three seeds. The best one was chosen by its test "
            f"accuracy, which favours it.{end_of_sweep(best, rates)}",
        ),
        Claim(
            f"{setting}: it trains faster than the sweep: its last loss over the lowest of fixed rates, "
            f"{lowest['contender']}",
            ratio(half["last_loss"], lowest["last_loss"]),
            "<",
            1,
            note=f"{STEPS_NOT_COST}{end_of_sweep(lowest, rates)}",
        ),
        Claim(f"{setting}: and than DAL: its last loss over DAL's", ratio(half["last_loss"], dal["last_loss"]), "<", 1),
        Claim(
            f"{setting}: at times with more instability: the largest relative rise of its loss over DAL's",
            ratio(half["largest_rise"], dal["largest_rise"]),
            ">",
            1,
            note=f"{half['largest_rise']:.2g} against {dal['largest_rise']:.2g}; the loss rises at {half['rises']:.1f} "
            f"and {dal['rises']:.1f} steps on average.",
        ),
    ]


EXPERIMENT = _dal_settings.experiment(
    id="dal-half",
    title="DAL-0.5 trains faster than a sweep, and tests as well",
    figure="Figure l_r_scaling_sqrt, section 6.3",
    paper_says=(
        "With the rate 2/‖Hĝ‖^0.5 training is faster than with DAL, at times with more instability, and test "
        "accuracies are as good as with fixed rates or better: it can replace a sweep."
    ),
    paper_setting="VGG and ResNet-18 on CIFAR-10, full batch; ResNet-50 on ImageNet.",
    quick=Config(both(VGG["quick"], RESNET["quick"])),
    cpu=Config(both(CHEAP["cpu"], VGG["cpu"], RESNET["cpu"])),
    paper=Config(both(VGG["paper"], RESNET["paper"])),
    claims=claims,
    draw=draw,
)
