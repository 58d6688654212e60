"""DAL by exact Hessian products and by finite differences.

Figures dal_cifar_full_batch, dal_cifar_sgd, dal_approx_comp and dal_0_5_approx_comp.
"""

import numpy as np
from matplotlib.figure import Figure

from principalflow.reproduce import _dal
from principalflow.reproduce._dal import (
    MLP,
    ON_BATCHES,
    STAND_INS_MLP,
    VGG,
    Config,
    accuracy,
    dal,
    named,
    ratio,
    settings,
)
from principalflow.reproduce._experiment import Claim, Experiment, Table, Tables
from principalflow.reproduce._sweeps import Sweep
from principalflow.training import Options

_POWERS = {"DAL": 1.0, "DAL-0.5": 0.5}
_FINITE = "finite difference"


def claims(config: Config, tables: Tables) -> list[Claim]:
    return [claim for setting, rows in settings(tables["contenders"]) for claim in _claims(setting, rows)]


def draw(config: Config, tables: Tables) -> Figure:
    parts = settings(tables["steps"])
    figure = Figure(figsize=(15, 4.2 * len(parts)), layout="constrained")
    for axes, (setting, steps) in zip(figure.subplots(len(parts), 3, squeeze=False), parts, strict=True):
        loss, rate, ends = axes
        names = [name for power in _POWERS for name in (power, f"{power}, {_FINITE}")]
        _dal.draw_curves(loss, steps, "loss", names)
        _dal.draw_curves(rate, steps, "learning_rate", names)
        _dal.draw_means(ends, dict(settings(tables["contenders"]))[setting], "test_accuracy", names)
        loss.set(title=f"{setting}: loss")
        rate.set(title="learning rate")
        ends.set(title="test accuracy, mean and spread over seeds")
        loss.legend(fontsize="small")
    return figure


def _claims(setting: str, rows: Table) -> list[Claim]:
    full = setting.endswith("full batch")
    most, words = (0.005, "no test accuracy is lost") if full else (0.02, "little test accuracy is lost")
    claims, differences = [], []
    for power in _POWERS:
        exact, finite = named(rows, power), named(rows, f"{power}, {_FINITE}")
        lost = exact["test_accuracy"] - finite["test_accuracy"]
        apart = ratio(finite["last_loss"], exact["last_loss"])
        differences.append(abs(np.log(apart)))
        note = f"{accuracy(exact)} by products, {accuracy(finite)} by differences, over three seeds."
        claims += [
            Claim(f"{setting}, {power}: {words} by finite differences: how much", lost, "<=", most, note=note),
            Claim(f"{setting}, {power}: the last loss over that by exact products", apart, "<", 1.25),
        ]
    return [
        *claims,
        Claim(
            f"{setting}: the difference is smaller at the higher power: how far the last losses are apart "
            "(the logarithm of their ratio), with DAL less with DAL-0.5",
            differences[0] - differences[1],
            "<",
            0,
        ),
    ]


def _sweeps(options: Options, batch: int | None = None) -> tuple[Sweep, Sweep]:
    powers = tuple(_POWERS.values())
    return dal(options, batch=batch), dal(options, powers, batch=batch, curvature="finite_difference")


EXPERIMENT = Experiment(
    id="dal-approximation",
    title="DAL by finite differences",
    figure="Figures dal_cifar_full_batch, dal_cifar_sgd, dal_approx_comp and dal_0_5_approx_comp, appendix C",
    paper_says=(
        "With (∇E(θ + εg) − g)/ε, ε = 0.01/‖g‖, for Hg there is no loss of performance on full batches and a slight "
        "one on small batches; the difference is smaller for higher p."
    ),
    paper_setting="VGG on CIFAR-10, full batch and batches of 512; ResNet-50 on ImageNet.",
    profiles={
        "quick": Config((*_sweeps(VGG["quick"]), *_sweeps(ON_BATCHES["quick"], 64))),
        "cpu": Config((*_sweeps(MLP["cpu"]), *_sweeps(ON_BATCHES["cpu"], 64))),
        "paper": Config((*_sweeps(VGG["paper"]), *_sweeps(ON_BATCHES["paper"], 512))),
    },
    run=_dal.run,
    claims=claims,
    draw=draw,
    trainings=_dal.trainings,
    stand_ins={**STAND_INS_MLP, "cpu": f"Full batch: {STAND_INS_MLP['cpu']} Batches: {_dal.STAND_INS_VGG['cpu']}"},
)
