"""DAL-p over powers and batch sizes: drift, stability and test accuracy.

Figures power_sweeps, power_sweeps_all and power_sweeps_batch_sizes_vgg.
"""

from matplotlib.figure import Figure

from principalflow.reproduce import _dal
from principalflow.reproduce._dal import (
    MLP,
    ON_BATCHES,
    RESNET,
    STAND_INS_ALL,
    VGG,
    Config,
    correlation_claim,
    dal,
    settings,
)
from principalflow.reproduce._experiment import Claim, Experiment, Table, Tables
from principalflow.reproduce._sweeps import rank_correlation


def claims(config: Config, tables: Tables) -> list[Claim]:
    return [claim for setting, runs in settings(tables["runs"]) for claim in _claims(setting, runs)]


def draw(config: Config, tables: Tables) -> Figure:
    parts = settings(tables["steps"])
    figure = Figure(figsize=(18, 3.8 * len(parts)), layout="constrained")
    for axes, (setting, steps) in zip(figure.subplots(len(parts), 4, squeeze=False), parts, strict=True):
        rate, loss, test, ends = axes
        _dal.draw_curves(rate, steps, "learning_rate")
        _dal.draw_curves(loss, steps, "loss")
        _dal.draw_curves(test, steps, "test_accuracy", log=False)
        _dal.draw_means(ends, dict(settings(tables["contenders"]))[setting], "test_accuracy")
        rate.set(title=f"{setting}: learning rate")
        low, high = steps["loss"].min(), steps.loc[steps["step"] == 0, "loss"].max()
        loss.set(title="loss", ylim=(low / 1.5, 4 * high))
        test.set(title="test accuracy")
        ends.set(title="test accuracy at the end")
        rate.legend(fontsize="small")
    return figure


def _claims(setting: str, runs: Table) -> list[Claim]:
    fine = runs[~runs["diverged"]]
    power, lost = fine["power"], runs[runs["diverged"]].groupby("contender", sort=False).size()
    gone = " ".join(f"{count} of three runs of {name} diverged and are left out." for name, count in lost.items())
    claims = [
        correlation_claim(f"{setting}: lower p, more drift", rank_correlation(power, fine["drift"]), -1, gone),
        correlation_claim(
            f"{setting}: lower p, better test accuracy", rank_correlation(power, fine["test_accuracy"]), -1, gone
        ),
    ]
    if setting.endswith("full batch"):  # on others the loss of all samples is known at some steps only
        found = rank_correlation(power, fine["largest_rise"])
        claims.append(
            correlation_claim(f"{setting}: lower p, less stability: larger rises of the loss", found, -1, gone)
        )
    return claims


EXPERIMENT = Experiment(
    id="dal-power",
    title="Lower powers: more drift, less stability, better test accuracy",
    figure="Figures power_sweeps, section 6.3, power_sweeps_all and power_sweeps_batch_sizes_vgg, appendix D",
    paper_says=(
        "The lower p in the rate 2/‖Hĝ‖^p, the more drift and the less stability, and the better the test accuracy; on "
        "small batches as on full ones."
    ),
    paper_setting="VGG and ResNet-18 on CIFAR-10, full batch and smaller ones; ResNet-50 on ImageNet.",
    profiles={
        "quick": Config(
            (
                dal(VGG["quick"]),
                dal(ON_BATCHES["quick"], batch=256),
                dal(ON_BATCHES["quick"], batch=64),
            )
        ),
        "cpu": Config(
            (dal(MLP["cpu"]), dal(VGG["cpu"]), dal(RESNET["cpu"]), dal(ON_BATCHES["cpu"], batch=64)),
        ),
        "paper": Config(
            (
                dal(VGG["paper"]),
                dal(RESNET["paper"]),
                *(dal(ON_BATCHES["paper"], batch=batch) for batch in (64, 1024, 8192)),
            )
        ),
    },
    run=_dal.run,
    claims=claims,
    draw=draw,
    trainings=_dal.trainings,
    stand_ins=STAND_INS_ALL,
)
