"""DAL's rate and update along training, and what its rate would be along training at fixed rates.

Figures l_r_scaling_quantities and connections_quantities.
"""

import numpy as np
from matplotlib.figure import Figure

from principalflow.reproduce import _dal
from principalflow.reproduce._dal import MLP, RESNET, STAND_INS_VGG, VGG, Config, dal, descent, lowest_loss, settings
from principalflow.reproduce._experiment import Claim, Experiment, Table, Tables
from principalflow.reproduce._sweeps import rank_correlation
from principalflow.training import Options

DAL = "DAL"


def claims(config: Config, tables: Tables) -> list[Claim]:
    return [
        claim
        for setting, steps in settings(tables["steps"])
        for claim in _claims(
            setting, steps, lowest_loss(_dal.fixed_rates(dict(settings(tables["contenders"]))[setting]))
        )
    ]


def draw(config: Config, tables: Tables) -> Figure:
    parts = settings(tables["steps"])
    figure = Figure(figsize=(16, 4.2 * len(parts)), layout="constrained")
    for axes, (setting, steps) in zip(figure.subplots(len(parts), 3, squeeze=False), parts, strict=True):
        rate, update, would_be = axes
        names = [*dict.fromkeys(_dal.fixed_rates(steps)["contender"]), DAL]
        _dal.draw_curves(rate, steps, "learning_rate", names)
        _dal.draw_curves(update, steps, "update_norm", names)
        rates = steps.assign(would_be=2 / steps["curvature"])
        _dal.draw_curves(would_be, rates, "would_be", names)
        rate.set(title=f"{setting}: learning rate", ylabel="$h$")
        update.set(title="length of the update", ylabel=r"$h\,\|\nabla E\|$", ylim=_within(steps["update_norm"]))
        would_be.set(title="DAL's rate, measured along all of these", ylabel=r"$2/\|H\hat g\|$")
        would_be.axhline(Options.max_learning_rate, color="grey", linestyle=":", linewidth=0.8)
        rate.legend(fontsize="small")
    return figure


def _claims(setting: str, steps: Table, best: Table) -> list[Claim]:
    runs = [rows for _, rows in steps[steps["contender"] == DAL].groupby("seed")]
    falls = [_start(rows) / rows["learning_rate"].iloc[_tenth(rows) :].min() for rows in runs]
    grows = [rows["learning_rate"].tail(_tenth(rows)).median() / rows["learning_rate"].min() for rows in runs]
    at_best = steps[steps["contender"] == best["contender"]]
    correlations = {
        name: [rank_correlation(rows["step"], rows["update_norm"]) for _, rows in some.groupby("seed")]
        for name, some in ((DAL, steps[steps["contender"] == DAL]), (best["contender"], at_best))
    }
    worst, other = (max(correlations[name]) for name in (DAL, best["contender"]))
    would_be = np.minimum(2 / at_best["curvature"], Options.max_learning_rate).median()
    return [
        Claim(
            f"{setting}: DAL's rate first falls: at the first tenth of steps over its least since, in the worst seed",
            min(falls),
            ">",
            1,
        ),
        Claim(
            f"{setting}: then it grows again: at the last tenth of the steps over its least, in the worst seed",
            min(grows),
            ">",
            1.5,
        ),
        Claim(
            f"{setting}: the length of DAL's update falls along training: its rank correlation with the step, in the "
            "worst seed",
            worst.value,
            "<",
            -0.5,
            note=f"{worst}. Steps follow each other, so the interval is too narrow.",
        ),
        Claim(
            f"{setting}: more steadily than at the rate with the lowest last loss, {best['contender']}: that "
            "correlation less that one's, each in the worst seed",
            worst.value - other.value,
            "<",
            0,
            note=f"{worst} against {other}.",
        ),
        Claim(
            f"{setting}: its magnitude is sensible: along the run at {best['contender']} the median of DAL's rate "
            "over that one is within a factor 10: the logarithm of base 10, without its sign",
            float(abs(np.log10(would_be / best["rate"]))),
            "<",
            1,
            note=f"It is {would_be:.3g} there, with the cap of {Options.max_learning_rate:g}.",
        ),
    ]


def _start(rows: Table) -> float:
    return float(rows["learning_rate"].head(_tenth(rows)).median())


def _tenth(rows: Table) -> int:
    return max(len(rows) // 10, 1)


def _within(column: Table) -> tuple[float, float]:
    finite = column[np.isfinite(column) & (column > 0)]
    return float(finite.quantile(0.001)) / 2, float(finite.quantile(0.98)) * 2


EXPERIMENT = Experiment(
    id="dal-quantities",
    title="DAL's rate falls and then grows; its updates become shorter",
    figure="Figures l_r_scaling_quantities, section 6.2, and connections_quantities, appendix D",
    paper_says=(
        "DAL's rate decreases at first and increases slowly where the drift is low. At large fixed rates the length of "
        "the update can grow at the edge of stability; with DAL it falls steadily. Measured along training at fixed "
        "rates, 2/‖Hĝ‖ has reasonable magnitudes."
    ),
    paper_setting="ResNet-18 on CIFAR-10, full batch.",
    profiles={
        "quick": Config((descent(VGG["quick"]), dal(VGG["quick"]))),
        "cpu": Config(
            (descent(VGG["cpu"]), dal(VGG["cpu"]), descent(MLP["cpu"]), dal(MLP["cpu"])),
        ),
        "paper": Config((descent(RESNET["paper"]), dal(RESNET["paper"]))),
    },
    run=_dal.run,
    claims=claims,
    draw=draw,
    trainings=_dal.trainings,
    stand_ins=STAND_INS_VGG,
)
