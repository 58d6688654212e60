"""DAL and DAL-0.5 across batch sizes.

Figures imagenet_lr_scaling_across_batch_sizes and imagenet_lr_sqrt_scaling_across_batch_sizes.
"""

from matplotlib.figure import Figure

from principalflow.reproduce import _dal
from principalflow.reproduce._dal import (
    MLP,
    ON_BATCHES,
    STAND_INS_IMAGENET,
    VGG,
    Config,
    accuracy,
    best_test,
    dal,
    descent,
    lowest_loss,
    named,
    ratio,
    settings,
)
from principalflow.reproduce._experiment import Claim, Experiment, Table, Tables
from principalflow.reproduce._sweeps import Sweep
from principalflow.training import Options

_DALS = ("DAL", "DAL-0.5")


def claims(config: Config, tables: Tables) -> list[Claim]:
    parts = settings(tables["contenders"])  # the smallest batches first
    return [claim for name in _DALS for claim in _claims(name, parts)]


def draw(config: Config, tables: Tables) -> Figure:
    parts = settings(tables["steps"])
    figure = Figure(figsize=(5 * len(parts), 8), layout="constrained")
    for (loss, ends), (setting, steps) in zip(figure.subplots(2, len(parts), squeeze=False).T, parts, strict=True):
        contenders = dict(settings(tables["contenders"]))[setting]
        names = [*_dal.fixed_rates(contenders)["contender"], *_DALS]
        _dal.draw_curves(loss, steps, "loss", names)
        _dal.draw_means(ends, contenders, "test_accuracy", names)
        high = steps.loc[steps["step"] == 0, "loss"].max()
        loss.set(title=f"{setting}: loss", ylim=(max(steps["loss"].min(), 1e-9) / 1.5, 4 * high))
        ends.set(title="test accuracy, mean and spread over seeds")
        loss.legend(fontsize="x-small")
    return figure


def _claims(name: str, parts: list[tuple[str, Table]]) -> list[Claim]:
    (small, first), *_, (large, last) = [(setting, _gains(name, rows)) for setting, rows in parts]
    told = "; ".join(
        f"{setting} {accuracy(named(rows, name))}, best rate {accuracy(best_test(_dal.fixed_rates(rows)))}"
        for setting, rows in parts
    )
    return [
        Claim(
            f"{name}: its gain grows with the batch: how much more test accuracy than the best rate it has, {large}, "
            f"less the same, {small}",
            last[0] - first[0],
            ">",
            0,
            note=f"{told}.",
        ),
        Claim(
            f"{name}: the same of the training loss: how many times lower it ends than the best rate's, {large}, over "
            f"the same, {small}",
            ratio(last[1], first[1]),
            ">",
            1,
            note=f"{last[1]:.3g} times and {first[1]:.3g} times.",
        ),
    ]


def _gains(name: str, rows: Table) -> tuple[float, float]:
    """Returns what DAL gains over the best fixed rate: in test accuracy, and as a factor of the loss."""
    row = named(rows, name)
    return row["test_accuracy"] - best_test(_dal.fixed_rates(rows))["test_accuracy"], lowest_loss(
        _dal.fixed_rates(rows)
    )["last_loss"] / row["last_loss"]


def _sweeps(options: Options, batch: int | None = None) -> tuple[Sweep, Sweep]:
    return descent(options, batch=batch), dal(options, batch=batch)


EXPERIMENT = Experiment(
    id="dal-batch-sizes",
    title="DAL across batch sizes",
    figure="Figures imagenet_lr_scaling_across_batch_sizes and imagenet_lr_sqrt_scaling_across_batch_sizes, appendix D",
    paper_says="DAL and DAL-0.5 gain more over fixed rates the larger the batches are.",
    paper_setting="ResNet-50 on ImageNet.",
    profiles={
        "quick": Config(
            (*_sweeps(ON_BATCHES["quick"], 64), *_sweeps(ON_BATCHES["quick"], 256), *_sweeps(VGG["quick"]))
        ),
        "cpu": Config((*_sweeps(MLP["cpu"], 64), *_sweeps(MLP["cpu"], 512), *_sweeps(MLP["cpu"]))),
        "paper": Config(
            tuple(sweep for batch in (64, 1024, 8192) for sweep in _sweeps(ON_BATCHES["paper"], batch)),
        ),
    },
    run=_dal.run,
    claims=claims,
    draw=draw,
    trainings=_dal.trainings,
    stand_ins=STAND_INS_IMAGENET,
)
