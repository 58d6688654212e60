"""DAL with momentum (figures momentum_imagenet and momentum_imagenet_1024)."""

from matplotlib.figure import Figure

from principalflow.reproduce import _dal
from principalflow.reproduce._dal import (
    MLP,
    ON_BATCHES,
    STAND_INS_IMAGENET,
    VGG,
    Config,
    dal,
    descent,
    named,
    ratio,
    settings,
)
from principalflow.reproduce._experiment import Claim, Experiment, Table, Tables
from principalflow.reproduce._sweeps import Sweep
from principalflow.training import Options

MOMENTUM = 0.9
PLAIN, PRINTED, WHOLE = "DAL", f"DAL, momentum {MOMENTUM}, factor 0.5", f"DAL, momentum {MOMENTUM}"


def claims(config: Config, tables: Tables) -> list[Claim]:
    parts = settings(tables["contenders"])
    gains = {setting: _gain(rows) for setting, rows in parts}
    (full, most), *_, (small, least) = gains.items()
    return [
        *(claim for setting, rows in parts for claim in _claims(setting, rows)),
        Claim(
            f"On smaller batches momentum gains less: how many times lower DAL's last loss is with momentum, {full}, "
            f"over the same, {small}",
            ratio(most, least),
            ">",
            1,
            note=f"{most:.3g} times and {least:.3g} times.",
        ),
    ]


def draw(config: Config, tables: Tables) -> Figure:
    parts = settings(tables["steps"])
    figure = Figure(figsize=(15, 4.2 * len(parts)), layout="constrained")
    for axes, (setting, steps) in zip(figure.subplots(len(parts), 3, squeeze=False), parts, strict=True):
        fixed, own, ends = axes
        names = list(dict.fromkeys(steps["contender"]))
        rates = [name for name in names if name.startswith("momentum")]
        _dal.draw_curves(fixed, steps, "loss", [*rates, PRINTED])
        _dal.draw_curves(own, steps, "loss", [name for name in names if name not in rates])
        _dal.draw_means(ends, dict(settings(tables["contenders"]))[setting], "test_accuracy")
        low, high = steps["loss"].min(), steps.loc[steps["step"] == 0, "loss"].max()
        for ax in (fixed, own):
            ax.set(title=f"{setting}: loss", ylim=(max(low, 1e-9) / 1.5, 10 * high))
            ax.legend(fontsize="x-small")
        ends.set(title="test accuracy, mean and spread over seeds")
    return figure


def _claims(setting: str, rows: Table) -> list[Claim]:
    plain, printed, whole = (named(rows, name) for name in (PLAIN, PRINTED, WHOLE))
    rates = rows[rows["contender"].str.startswith("momentum")]
    best = rates.loc[rates["last_loss"].idxmin()]
    return [
        Claim(
            f"{setting}: DAL is faster with momentum: its last loss over that without",
            printed["last_loss"] / plain["last_loss"],
            "<",
            1,
            note=f"{printed['last_loss']:.3g} against {plain['last_loss']:.3g}, with the factor 1/2 that the paper "
            f"prints there (erratum 10). With the factor 2 it is {whole['last_loss']:.3g}, and "
            f"{int(whole['diverged'])} of three seeds diverged.",
        ),
        Claim(
            f"{setting}: it is more stable than a fixed rate with momentum: the largest relative rise of its loss over "
            f"that of the rate with the lowest last loss, {best['contender']}",
            ratio(printed["largest_rise"], best["largest_rise"]),
            "<",
            1,
            note=f"{printed['largest_rise']:.2g} against {best['largest_rise']:.2g}.",
        ),
        Claim(
            f"{setting}: and as fast: its last loss over that of this rate",
            printed["last_loss"] / best["last_loss"],
            "<",
            1,
            note=f"{printed['last_loss']:.3g} against {best['last_loss']:.3g}, found by a sweep of {len(rates)} rates.",
        ),
    ]


def _gain(rows: Table) -> float:
    return float(named(rows, PLAIN)["last_loss"] / named(rows, PRINTED)["last_loss"])


def _sweeps(options: Options, rates: tuple[float, ...], batch: int | None = None) -> tuple[Sweep, ...]:
    return (
        dal(options, batch=batch),
        dal(options, (1.0,), batch, momentum=MOMENTUM, factor=0.5),
        dal(options, (1.0,), batch, momentum=MOMENTUM),
        descent(options, rates, batch, momentum=MOMENTUM),
    )


EXPERIMENT = Experiment(
    id="dal-momentum",
    title="DAL with momentum",
    figure="Figures momentum_imagenet, section 7, and momentum_imagenet_1024, appendix D",
    paper_says=(
        "A rate from the drift in the update of momentum, v ← m v − h(θ) g, is faster than without momentum and more "
        "stable than a fixed rate with it; with smaller batches the gain is smaller."
    ),
    we_add="Both factors: 1/2, which the paper prints with momentum, and 2, DAL's without.",
    paper_setting="ResNet-50 on ImageNet, momentum 0.9, batches of 8,192 and 1,024.",
    profiles={
        "quick": Config(
            (
                *_sweeps(VGG["quick"], (0.02, 0.05, 0.1, 0.2)),
                *_sweeps(ON_BATCHES["quick"], (0.02, 0.05, 0.1), 64),
            )
        ),
        "cpu": Config(
            (*_sweeps(MLP["cpu"], (0.01, 0.02, 0.05, 0.1)), *_sweeps(MLP["cpu"], (0.01, 0.02, 0.05), 64)),
        ),
        "paper": Config(
            (
                *_sweeps(ON_BATCHES["paper"], (0.001, 0.005, 0.01, 0.05), 8192),
                *_sweeps(ON_BATCHES["paper"], (0.001, 0.005, 0.01, 0.05), 1024),
            )
        ),
    },
    run=_dal.run,
    claims=claims,
    draw=draw,
    trainings=_dal.trainings,
    stand_ins=STAND_INS_IMAGENET,
)
