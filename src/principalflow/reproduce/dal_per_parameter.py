"""A rate for each parameter (figures vgg_lr_scaling_per_parameter and imagenet_lr_scaling_per_parameter)."""

from matplotlib.figure import Figure

from principalflow.reproduce import _dal
from principalflow.reproduce._dal import MLP, VGG, Config, accuracy, dal, on_batches, ratio, settings
from principalflow.reproduce._experiment import Claim, Table, Tables
from principalflow.reproduce._sweeps import Sweep
from principalflow.training import Options

_FACTORS = (2.0, 0.01)  # the paper's, and one with which most rates are below the cap


def claims(config: Config, tables: Tables) -> list[Claim]:
    return [
        claim
        for setting, rows in settings(tables["contenders"])
        for claim in _claims(setting, _dal.of(tables["steps"], setting), rows)
    ]


def draw(config: Config, tables: Tables) -> Figure:
    parts = settings(tables["steps"])
    figure = Figure(figsize=(15, 4.4 * len(parts)), layout="constrained")
    for axes, (setting, steps) in zip(figure.subplots(len(parts), 3, squeeze=False), parts, strict=True):
        loss, rate, ends = axes
        _dal.draw_losses(loss, steps)
        _dal.draw_curves(rate, steps, "learning_rate")
        _dal.draw_accuracies(ends, _dal.of(tables["contenders"], setting))
        loss.set_title(f"{setting}: loss")
        rate.set_title("mean rate over the parameters; dotted: the cap")
        rate.axhline(Options.max_learning_rate, color="grey", linestyle=":", linewidth=0.8)
    return figure


def _claims(setting: str, steps: Table, rows: Table) -> list[Claim]:
    first = steps.loc[steps["step"] == 0, "loss"].mean()
    rates = steps.groupby("contender")["learning_rate"].median()
    return [
        Claim(
            f"{setting}: {row['contender']}: it trains: the last loss over the first",
            ratio(row["last_loss"], first),
            "<",
            0.5,
            note=f"{int(row['diverged'])} of three seeds diverged. Test accuracy: {accuracy(row)}. The mean rate over "
            f"the parameters is {rates[row['contender']]:.2g} at the median; with all at the cap it would be "
            f"{Options.max_learning_rate:g}.",
        )
        for _, row in rows.iterrows()
    ]


def _sweeps(options: Options) -> tuple[Sweep, ...]:
    return tuple(dal(options, (1.0, 0.5), per_parameter=True, factor=factor) for factor in _FACTORS)


EXPERIMENT = _dal.experiment(
    id="dal-per-parameter",
    title="A rate for each parameter",
    figure="Figures vgg_lr_scaling_per_parameter and imagenet_lr_scaling_per_parameter, appendix D",
    paper_says="With the rate 2/|(Hg)ᵢ|^p for parameter i networks train as well: preliminary results.",
    we_add=(
        "(Hg)ᵢ vanishes with the gradient, so that these rates grow without bound, and with the paper's factor of 2 "
        "nearly all are at the cap of 5. Besides, a factor of 0.01, with which most are below it."
    ),
    paper_setting="VGG on CIFAR-10, ResNet-50 on ImageNet with batches of 8,192.",
    quick=Config((*_sweeps(VGG["quick"]), *_sweeps(on_batches("quick", 64)))),
    cpu=Config((*_sweeps(MLP["cpu"]), *_sweeps(on_batches("cpu", 64, MLP)))),
    paper=Config((*_sweeps(VGG["paper"]), *_sweeps(on_batches("paper", 8192)))),
    claims=claims,
    draw=draw,
)
