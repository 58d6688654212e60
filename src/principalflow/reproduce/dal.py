"""DAL against a sweep of fixed rates (figure dal), and against Adam, momentum and optimisers without a rate."""

from dataclasses import replace

from matplotlib.figure import Figure

from principalflow.reproduce import _dal
from principalflow.reproduce._dal import MLP, RESNET, STAND_INS_ALL, VGG, Config, descent, lowest_loss, named, settings
from principalflow.reproduce._experiment import Claim, Experiment, Profile, Table, Tables
from principalflow.reproduce._sweeps import Sweep
from principalflow.training import Options

DAL, HALF = "DAL", "DAL-0.5"


def claims(config: Config, tables: Tables) -> list[Claim]:
    return [claim for setting, rows in settings(tables["contenders"]) for claim in _claims(setting, rows)]


def draw(config: Config, tables: Tables) -> Figure:
    parts = settings(tables["steps"])
    figure = Figure(figsize=(15, 4.2 * len(parts)), layout="constrained")
    for axes, (setting, steps) in zip(figure.subplots(len(parts), 3, squeeze=False), parts, strict=True):
        loss, others, ends = axes
        contenders = dict(settings(tables["contenders"]))[setting]
        names = list(contenders["contender"])
        rates = [name for name in names if name.startswith("h = ")]
        _dal.draw_curves(loss, steps, "loss", [*rates, DAL])
        _dal.draw_curves(others, steps, "loss", [name for name in names if name not in rates])
        _dal.draw_means(ends, contenders, "test_accuracy")
        low, high = steps["loss"].min(), steps.loc[steps["step"] == 0, "loss"].max()
        for ax, title in ((loss, "DAL and fixed rates"), (others, "DAL-p and others")):
            ax.set(title=f"{setting}: {title}", ylabel="loss", ylim=(low / 1.5, 4 * high))
            ax.legend(fontsize="x-small", ncols=2)
        ends.set(title="test accuracy, mean and spread over seeds")
    return figure


def _claims(setting: str, rows: Table) -> list[Claim]:
    dal, best = named(rows, DAL), lowest_loss(_dal.fixed_rates(rows))
    rates = _dal.fixed_rates(rows)
    lower = int((rates["last_loss"] < dal["last_loss"]).sum())
    told = "; ".join(
        f"{row['contender']} {row['last_loss']:.3g}, {_dal.accuracy(row)}, rise {row['largest_rise']:.2g}"
        for _, row in rows.iterrows()
    )
    return [
        Claim(f"{setting}: DAL needs no sweep: seeds in which it diverges", dal["diverged"], "==", 0),
        Claim(
            f"{setting}: it is stable: the largest rise of its loss in one step, relative to the loss, over that of "
            f"the rate with the lowest last loss, {best['contender']}",
            _dal.ratio(dal["largest_rise"], best["largest_rise"]),
            "<",
            1,
            note=f"{dal['largest_rise']:.2g} against {best['largest_rise']:.2g}, the largest of the seeds.",
        ),
        Claim(
            f"{setting}: its loss rises less often than at that rate: steps at which it does, over those",
            _dal.ratio(dal["rises"], best["rises"]),
            "<",
            1,
            note=f"{dal['rises']:.1f} against {best['rises']:.1f} on average.",
        ),
        Claim(
            f"{setting}: it trains as fast as a swept rate: how many of the {len(rates)} rates end at a lower loss",
            lower,
            "<=",
            1,
            note=f"Last losses, test accuracies, and largest rises: {told}.",
        ),
    ]


def peers(options: Options, momentum: tuple[float, ...]) -> tuple[Sweep, ...]:
    """Returns descent with momentum at these rates, Adam at its usual ones, and optimisers that choose their rates."""
    options = replace(options, record_every=0)
    return (
        descent(options, momentum, momentum=0.9),
        Sweep(replace(options, optimizer="adam", learning_rate=(0.001, 0.01))),
        Sweep(replace(options, optimizer="prodigy")),
        Sweep(replace(options, optimizer="dog")),
    )


def _config(profile: Profile, networks: tuple[tuple[Options, tuple[float, ...]], ...], *more: Options) -> Config:
    sweeps = [
        sweep
        for options, momentum in networks
        for sweep in (descent(options), _dal.dal(options), *peers(options, momentum))
    ]
    return Config((*sweeps, *(sweep for options in more for sweep in (descent(options), _dal.dal(options)))))


EXPERIMENT = Experiment(
    id="dal",
    title="DAL is stable without a sweep over rates",
    figure="Figure dal, section 6.2",
    paper_says=(
        "With the learning rate 2/‖Hĝ‖, which is computed at every step, training is stable compared with fixed rates, "
        "and no sweep is needed."
    ),
    we_add="Heavy-ball momentum at several rates, Adam, and Prodigy and DoG, which choose their rates themselves.",
    paper_setting="VGG and ResNet-18 on CIFAR-10, full batch; ResNet-50 on ImageNet.",
    profiles={
        "quick": _config("quick", ((MLP["quick"], (0.02, 0.05, 0.1)),), RESNET["quick"]),
        "cpu": _config("cpu", ((MLP["cpu"], (0.01, 0.02, 0.05)), (VGG["cpu"], (0.01, 0.02))), RESNET["cpu"]),
        "paper": _config("paper", ((VGG["paper"], (0.001, 0.005, 0.01)),), RESNET["paper"]),
    },
    run=_dal.run,
    claims=claims,
    draw=draw,
    trainings=_dal.trainings,
    stand_ins=STAND_INS_ALL,
)
