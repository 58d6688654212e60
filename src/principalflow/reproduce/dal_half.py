"""DAL-0.5 against a sweep of fixed rates: training speed and test accuracy (figure l_r_scaling_sqrt)."""

from matplotlib.figure import Figure

from principalflow.reproduce import _dal
from principalflow.reproduce._dal import (
    MLP,
    RESNET,
    STAND_INS_ALL,
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

DAL, HALF = "DAL", "DAL-0.5"


def claims(config: Config, tables: Tables) -> list[Claim]:
    return [claim for setting, rows in settings(tables["contenders"]) for claim in _claims(setting, rows)]


def draw(config: Config, tables: Tables) -> Figure:
    parts = settings(tables["steps"])
    figure = Figure(figsize=(15, 4.2 * len(parts)), layout="constrained")
    for axes, (setting, steps) in zip(figure.subplots(len(parts), 3, squeeze=False), parts, strict=True):
        loss, test, ends = axes
        contenders = dict(settings(tables["contenders"]))[setting]
        names = [*fixed_rates(contenders)["contender"], DAL, HALF]
        _dal.draw_curves(loss, steps, "loss", names)
        _dal.draw_curves(test, steps, "test_accuracy", names, log=False)
        _dal.draw_means(ends, contenders, "test_accuracy", names)
        low, high = steps["loss"].min(), steps.loc[steps["step"] == 0, "loss"].max()
        loss.set(title=f"{setting}: loss", ylim=(low / 1.5, 4 * high))
        test.set(title="test accuracy")
        ends.set(title="test accuracy at the end, mean and spread over seeds")
        loss.legend(fontsize="small")
    return figure


def _claims(setting: str, rows: Table) -> list[Claim]:
    dal, half, lowest, best = (
        named(rows, DAL),
        named(rows, HALF),
        lowest_loss(fixed_rates(rows)),
        best_test(fixed_rates(rows)),
    )
    return [
        Claim(
            f"{setting}: DAL-0.5 tests as well as the best of the sweep or better: mean test accuracy less that of "
            f"{best['contender']}",
            half["test_accuracy"] - best["test_accuracy"],
            ">=",
            0,
            note=f"{accuracy(half)} against {accuracy(best)}, over three seeds. The best one was chosen by its test "
            "accuracy, which favours it.",
        ),
        Claim(
            f"{setting}: it trains faster than the sweep: its last loss over the lowest of fixed rates, "
            f"{lowest['contender']}",
            half["last_loss"] / lowest["last_loss"],
            "<",
            1,
        ),
        Claim(f"{setting}: and than DAL: its last loss over DAL's", half["last_loss"] / dal["last_loss"], "<", 1),
        Claim(
            f"{setting}: at times with more instability: the largest relative rise of its loss over DAL's",
            half["largest_rise"] / dal["largest_rise"],
            ">",
            1,
            note=f"{half['largest_rise']:.2g} against {dal['largest_rise']:.2g}; the loss rises at {half['rises']:.1f} "
            f"and {dal['rises']:.1f} steps on average.",
        ),
    ]


EXPERIMENT = Experiment(
    id="dal-half",
    title="DAL-0.5 trains faster than a sweep, and tests as well",
    figure="Figure l_r_scaling_sqrt, section 6.3",
    paper_says=(
        "With the rate 2/‖Hĝ‖^0.5 training is faster than with DAL, at times with more instability, and test "
        "accuracies are as good as with fixed rates or better: it can replace a sweep."
    ),
    paper_setting="VGG and ResNet-18 on CIFAR-10, full batch; ResNet-50 on ImageNet.",
    profiles={
        "quick": Config(
            (descent(VGG["quick"]), dal(VGG["quick"]), descent(RESNET["quick"]), dal(RESNET["quick"])),
        ),
        "cpu": Config(
            tuple(
                sweep
                for options in (MLP["cpu"], VGG["cpu"], RESNET["cpu"])
                for sweep in (descent(options), dal(options))
            )
        ),
        "paper": Config(
            (descent(VGG["paper"]), dal(VGG["paper"]), descent(RESNET["paper"]), dal(RESNET["paper"])),
        ),
    },
    run=_dal.run,
    claims=claims,
    draw=draw,
    trainings=_dal.trainings,
    stand_ins=STAND_INS_ALL,
)
