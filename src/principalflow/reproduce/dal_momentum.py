"""DAL with momentum (figures 23 and 54)."""

from matplotlib.figure import Figure

from principalflow._lab import Claim, Table, Tables
from principalflow.reproduce import _dal_drawing, _dal_settings
from principalflow.reproduce._dal_queries import (
    DAL,
    STEPS_NOT_COST,
    end_of_sweep,
    lowest_loss,
    named,
    of,
    ratio,
    settings,
)
from principalflow.reproduce._dal_settings import CHEAP, MOMENTUM, VGG, Config, dal, descent_with_momentum, on_batches
from principalflow.reproduce._sweeps import WITH_MOMENTUM, Sweep
from principalflow.training import Options

PRINTED, WHOLE = f"DAL, momentum {MOMENTUM}, factor 0.5", f"DAL, momentum {MOMENTUM}"


def claims(config: Config, tables: Tables) -> list[Claim]:
    parts = settings(tables["contenders"])
    gains = {setting: _gain(rows) for setting, rows in parts}
    (full, most), *_, (small, least) = gains.items()
    return [
        *(claim for setting, rows in parts for claim in _claims(setting, rows)),
        Claim.above(
            f"On smaller batches momentum gains less: how many times lower DAL's last loss is with momentum, {full}, "
            f"over the same, {small}",
            ratio(most, least),
            1,
            note=f"{most:.3g} times and {least:.3g} times.",
        ),
    ]


def draw(config: Config, tables: Tables) -> Figure:
    figure, parts = _dal_drawing.panels(tables["contenders"], 3)
    for (fixed, own, ends), setting, rows in parts:
        steps, rates = of(tables["steps"], setting), list(_rates(rows)["contender"])
        _dal_drawing.draw_losses(fixed, steps, [*rates, PRINTED])
        _dal_drawing.draw_losses(own, steps, [DAL, PRINTED, WHOLE])
        own.set_title("loss of DAL")
        _dal_drawing.draw_accuracies(ends, rows, [*rates, DAL, PRINTED, WHOLE])
    return figure


def _claims(setting: str, rows: Table) -> list[Claim]:
    plain, printed, whole = (named(rows, name) for name in (DAL, PRINTED, WHOLE))
    rates = _rates(rows)
    best = lowest_loss(rates)
    return [
        Claim.below(
            f"{setting}: DAL is faster with momentum: its last loss over that without",
            ratio(printed["last_loss"], plain["last_loss"]),
            1,
            note=f"{printed['last_loss']:.3g} against {plain['last_loss']:.3g}, with the factor 1/2 that the paper "
            f"prints there (erratum 10). With the factor 2 it is {whole['last_loss']:.3g}, and "
            f"{whole['diverged']:g} of three seeds diverged.",
        ),
        Claim.below(
            f"{setting}: it is as fast as the fixed rate with momentum with the lowest last loss, {best['contender']}: "
            "its last loss over that one's",
            ratio(printed["last_loss"], best["last_loss"]),
            1,
            note=f"{printed['last_loss']:.3g} against {best['last_loss']:.3g}, found by a sweep of {len(rates)} rates. "
            f"{STEPS_NOT_COST}{end_of_sweep(best, rates)}",
        ),
        Claim.below(
            f"{setting}: and more stable: the largest relative rise of its loss, from one record to the next, over "
            "that one's",
            ratio(printed["largest_rise"], best["largest_rise"]),
            1,
            note=f"{printed['largest_rise']:.2g} against {best['largest_rise']:.2g}. On a full batch each step is "
            "recorded, on others some.",
        ),
    ]


def _rates(rows: Table) -> Table:
    return rows[rows["family"] == WITH_MOMENTUM]


def _gain(rows: Table) -> float:
    return ratio(named(rows, DAL)["last_loss"], named(rows, PRINTED)["last_loss"])


def _sweeps(options: Options, rates: tuple[float, ...] | None = None) -> tuple[Sweep, ...]:
    return (
        dal(options),
        dal(options, (1.0,), momentum=MOMENTUM, factor=0.5),
        dal(options, (1.0,), momentum=MOMENTUM),
        descent_with_momentum(options, rates),
    )


SETTINGS = dict(
    quick=Config((*_sweeps(VGG["quick"]), *_sweeps(on_batches("quick", 64), (0.02, 0.05, 0.1, 0.2)))),
    cpu=Config((*_sweeps(CHEAP["cpu"]), *_sweeps(on_batches("cpu", 64, CHEAP), (0.01, 0.02, 0.05, 0.1)))),
    paper=Config(tuple(sweep for size in (8192, 1024) for sweep in _sweeps(on_batches("paper", size)))),
)
run = _dal_settings.run
trainings = _dal_settings.trainings
STAND_INS = _dal_settings.stand_ins(SETTINGS)
