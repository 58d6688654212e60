"""DAL-p over powers and batch sizes: drift, stability and test accuracy.

Figures power_sweeps, power_sweeps_all and power_sweeps_batch_sizes_vgg.
"""

from matplotlib.figure import Figure

from principalflow._lab import Claim, Table, Tables
from principalflow.reproduce import _dal_drawing, _dal_settings
from principalflow.reproduce._dal_queries import correlation_claim, is_full_batch, of, settings
from principalflow.reproduce._dal_settings import CHEAP, RESNET, VGG, Config, dal, on_batches
from principalflow.reproduce._statistics import rank_correlation


def claims(config: Config, tables: Tables) -> list[Claim]:
    return [claim for setting, runs in settings(tables["runs"]) for claim in _claims(setting, runs)]


def draw(config: Config, tables: Tables) -> Figure:
    figure, parts = _dal_drawing.panels(tables["steps"], 4)
    for (rate, loss, drift, ends), setting, steps in parts:
        _dal_drawing.draw_curves(rate, steps, "learning_rate")
        _dal_drawing.draw_losses(loss, steps)
        _dal_drawing.draw_curves(drift, steps, "drift")
        _dal_drawing.draw_accuracies(ends, of(tables["contenders"], setting))
        rate.set_title(f"{setting}: learning rate")
        loss.set_title("loss")
        drift.set_title(r"drift of a step, $\frac{h^2}{2}\|Hg\|$")
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
    if is_full_batch(runs):
        found = rank_correlation(power, fine["largest_rise"])
        sentence = f"{setting}: lower p, less stability: larger rises of the loss"
        claims.append(correlation_claim(sentence, found, -1, gone))
    return claims


SETTINGS = dict(
    quick=Config((dal(VGG["quick"]), *(dal(on_batches("quick", size)) for size in (256, 64)))),
    cpu=Config((dal(CHEAP["cpu"]), dal(VGG["cpu"]), dal(RESNET["cpu"]), dal(on_batches("cpu", 64)))),
    paper=Config(
        (dal(VGG["paper"]), dal(RESNET["paper"]), *(dal(on_batches("paper", size)) for size in (8192, 1024, 64)))
    ),
)
run = _dal_settings.run
trainings = _dal_settings.trainings
STAND_INS = _dal_settings.stand_ins(SETTINGS)
