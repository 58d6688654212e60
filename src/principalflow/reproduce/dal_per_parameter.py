"""A rate for each parameter (figures vgg_lr_scaling_per_parameter and imagenet_lr_scaling_per_parameter)."""

from matplotlib.figure import Figure

from principalflow.reproduce import _dal
from principalflow.reproduce._dal import MLP, ON_BATCHES, STAND_INS_MLP, VGG, Config, accuracy, dal, settings
from principalflow.reproduce._experiment import Claim, Experiment, Table, Tables
from principalflow.reproduce._sweeps import Sweep
from principalflow.training import Options

_POWERS = (1.0, 0.5)
_CAPS = (5.0, 0.1)  # the paper's, and one like a fixed rate


def claims(config: Config, tables: Tables) -> list[Claim]:
    return [claim for setting, steps in settings(tables["steps"]) for claim in _claims(setting, steps, tables)]


def draw(config: Config, tables: Tables) -> Figure:
    parts = settings(tables["steps"])
    figure = Figure(figsize=(15, 4.2 * len(parts)), layout="constrained")
    for axes, (setting, steps) in zip(figure.subplots(len(parts), 3, squeeze=False), parts, strict=True):
        loss, rate, ends = axes
        _dal.draw_curves(loss, steps, "loss")
        _dal.draw_curves(rate, steps, "learning_rate")
        _dal.draw_means(ends, dict(settings(tables["contenders"]))[setting], "test_accuracy")
        high = steps.loc[steps["step"] == 0, "loss"].max()
        loss.set(title=f"{setting}: loss", ylim=(max(steps["loss"].min(), 1e-9) / 1.5, 20 * high))
        rate.set(title="mean rate over the parameters")
        ends.set(title="test accuracy, mean and spread over seeds")
        loss.legend(fontsize="x-small")
    return figure


def _claims(setting: str, steps: Table, tables: Tables) -> list[Claim]:
    first = steps.loc[steps["step"] == 0, "loss"].mean()
    rows = dict(settings(tables["contenders"]))[setting]
    return [
        Claim(
            f"{setting}: {row['contender']}: it trains: the last loss over the first",
            row["last_loss"] / first,
            "<",
            0.5,
            note=f"{int(row['diverged'])} of three seeds diverged. Test accuracy {accuracy(row)}.",
        )
        for _, row in rows.iterrows()
    ]


def _sweeps(options: Options, batch: int | None = None) -> tuple[Sweep, ...]:
    return tuple(dal(options, _POWERS, batch, per_parameter=True, max_learning_rate=cap) for cap in _CAPS)


EXPERIMENT = Experiment(
    id="dal-per-parameter",
    title="A rate for each parameter",
    figure="Figures vgg_lr_scaling_per_parameter and imagenet_lr_scaling_per_parameter, appendix D",
    paper_says="With the rate 2/|(Hg)ᵢ|^p for parameter i networks train as well: preliminary results.",
    we_add=(
        "(Hg)ᵢ vanishes with the gradient, so that these rates grow without bound and the cap decides. Besides the "
        "paper's cap of 5, one of 0.1, as one would choose a fixed rate."
    ),
    paper_setting="VGG on CIFAR-10, ResNet-50 on ImageNet with batches of 8,192.",
    profiles={
        "quick": Config((*_sweeps(VGG["quick"]), *_sweeps(ON_BATCHES["quick"], 64))),
        "cpu": Config((*_sweeps(MLP["cpu"]), *_sweeps(MLP["cpu"], 64))),
        "paper": Config((*_sweeps(VGG["paper"]), *_sweeps(ON_BATCHES["paper"], 8192))),
    },
    run=_dal.run,
    claims=claims,
    draw=draw,
    trainings=_dal.trainings,
    stand_ins=STAND_INS_MLP,
)
