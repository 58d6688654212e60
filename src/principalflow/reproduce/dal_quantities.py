"""DAL's rate and update along training, and what its rate would be along training at fixed rates.

Figures l_r_scaling_quantities and connections_quantities.
"""

import numpy as np
from matplotlib.figure import Figure

from principalflow._lab import Claim, Table, Tables
from principalflow.reproduce import _dal_drawing, _dal_settings
from principalflow.reproduce._dal_queries import DAL, fixed_rates, lowest_loss, of, ratio, settings
from principalflow.reproduce._dal_settings import CHEAP, RESNET, VGG, Config, both
from principalflow.reproduce._statistics import rank_correlation
from principalflow.training import Options

_CAP = Options.max_learning_rate


def claims(config: Config, tables: Tables) -> list[Claim]:
    return [
        claim
        for setting, rows in settings(tables["contenders"])
        for claim in _claims(setting, of(tables["steps"], setting), lowest_loss(fixed_rates(rows)))
    ]


def draw(config: Config, tables: Tables) -> Figure:
    figure, parts = _dal_drawing.panels(tables["steps"], 3)
    for (rate, update, would_be), setting, steps in parts:
        names = [*dict.fromkeys(fixed_rates(steps)["contender"]), DAL]
        _dal_drawing.draw_curves(rate, steps, "learning_rate", names)
        _dal_drawing.draw_curves(update, steps, "update_norm", names)
        _dal_drawing.draw_curves(would_be, steps.assign(would_be=2 / steps["measured_curvature"]), "would_be", names)
        rate.set(title=f"{setting}: learning rate", ylabel="$h$")
        update.set(title="length of the update", ylabel=r"$h\,\|\nabla E\|$", ylim=_most(steps["update_norm"]))
        would_be.set(title="DAL's rate, measured along all of these", ylabel=r"$2/\|H\hat g\|$")
        would_be.axhline(_CAP, color="grey", linestyle=":", linewidth=0.8)
        rate.legend(fontsize="small")
    return figure


def _claims(setting: str, steps: Table, best: Table) -> list[Claim]:
    of_dal, at_best = (steps[steps["contender"] == name] for name in (DAL, best["contender"]))
    runs = [rows for _, rows in of_dal.groupby("seed")]
    rates = [_smooth(rows["learning_rate"]) for rows in runs]
    falls = max((rank_correlation(rows["step"], rows["update_norm"]) for rows in runs), key=lambda found: found.value)
    regrowth, other = (_regrowth(some) for some in (of_dal, at_best))
    middle = np.minimum(2 / at_best["measured_curvature"].dropna(), _CAP).median()
    return [
        Claim.above(
            f"{setting}: DAL's rate first falls: at the start over its least, in the worst seed",
            min(_start(rows["learning_rate"]) / rate.min() for rows, rate in zip(runs, rates, strict=True)),
            1.2,
            note="The least one is that of medians over a tenth of the steps, here and in the next claim.",
        ),
        Claim.above(
            f"{setting}: then it grows again: at the end over its least, in the worst seed",
            min(float(rate.iloc[-1] / rate.min()) for rate in rates),
            1.2,
        ),
        Claim.below(
            f"{setting}: the length of DAL's update falls along training: its rank correlation with the step, in the "
            "worst seed",
            falls.value,
            -0.5,
            note=f"{falls}. Steps follow each other, so the interval is too narrow.",
        ),
        Claim.below(
            f"{setting}: more steadily than at the rate with the lowest last loss, {best['contender']}: how many times "
            "longer than an earlier update one gets, over the same at that rate, each in the worst seed",
            ratio(regrowth, other),
            1,
            note=f"{regrowth:.3g} times against {other:.3g} times.",
        ),
        Claim.below(
            f"{setting}: its magnitude is sensible: along the runs at {best['contender']} the median of DAL's rate "
            "over that one is within a factor 10: the logarithm of base 10, without its sign",
            float(abs(np.log10(middle / best["rate"]))),
            1,
            note=f"It is {middle:.3g} there, with the cap of {_CAP:g}.",
        ),
    ]


def _start(rate: Table) -> float:
    return float(rate.head(max(len(rate) // 100, 3)).median())


def _smooth(rate: Table) -> Table:
    """Returns the medians over a tenth of the steps each."""
    return rate.rolling(max(len(rate) // 10, 1)).median().dropna()


def _regrowth(steps: Table) -> float:
    """Returns how many times longer than an earlier update one gets, in the worst seed."""
    return float((steps["update_norm"] / steps.groupby("seed")["update_norm"].cummin()).max())


def _most(column: Table) -> tuple[float, float]:
    finite = column[np.isfinite(column) & (column > 0)]
    return float(finite.quantile(0.001)) / 2, float(finite.quantile(0.98)) * 2


SETTINGS = dict(
    quick=Config(both(VGG["quick"])), cpu=Config(both(CHEAP["cpu"], VGG["cpu"])), paper=Config(both(RESNET["paper"]))
)
run = _dal_settings.run
trainings = _dal_settings.trainings
STAND_INS = _dal_settings.stand_ins(SETTINGS)
