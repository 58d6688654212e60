"""DAL against a sweep of fixed rates (figure 18), and against Adam, momentum and optimisers without a rate."""

from dataclasses import replace

from matplotlib.figure import Figure

from principalflow._lab import Claim, Table, Tables
from principalflow.reproduce import _dal_drawing, _dal_settings
from principalflow.reproduce._dal_queries import (
    DAL,
    STEPS_NOT_COST,
    accuracy,
    end_of_sweep,
    fixed_rates,
    lowest_loss,
    named,
    of,
    ratio,
    settings,
)
from principalflow.reproduce._dal_settings import CHEAP, RESNET, VGG, Config, both, descent_with_momentum
from principalflow.reproduce._sweeps import Sweep
from principalflow.training import Options


def claims(config: Config, tables: Tables) -> list[Claim]:
    return [claim for setting, rows in settings(tables["contenders"]) for claim in _claims(setting, rows)]


def draw(config: Config, tables: Tables) -> Figure:
    figure, parts = _dal_drawing.panels(tables["contenders"], 3)
    for (loss, others, ends), setting, rows in parts:
        steps, rates = of(tables["steps"], setting), list(fixed_rates(rows)["contender"])
        _dal_drawing.draw_losses(loss, steps, [*rates, DAL])
        _dal_drawing.draw_losses(others, steps, [name for name in rows["contender"] if name not in rates])
        _dal_drawing.draw_accuracies(ends, rows)
        loss.set_title(f"{setting}: loss of DAL and fixed rates")
        others.set_title("loss of DAL-p and others")
    return figure


def _claims(setting: str, rows: Table) -> list[Claim]:
    rates = fixed_rates(rows)
    dal, best = named(rows, DAL), lowest_loss(rates)
    told = "; ".join(
        f"{row['contender']} {row['last_loss']:.3g}, {accuracy(row)}, rise {row['largest_rise']:.2g}"
        for _, row in rows.iterrows()
    )
    return [
        Claim.equal(f"{setting}: DAL needs no sweep: seeds in which it diverges", dal["diverged"], 0),
        Claim.below(
            f"{setting}: it is stable: the largest rise of its loss in one step, relative to the loss, over that of "
            f"the rate with the lowest last loss, {best['contender']}",
            ratio(dal["largest_rise"], best["largest_rise"]),
            1,
            note=f"{dal['largest_rise']:.2g} against {best['largest_rise']:.2g}, the largest of the seeds."
            f"{end_of_sweep(best, rates)}",
        ),
        Claim.below(
            f"{setting}: its loss rises less often than at that rate: steps at which it does, over those",
            ratio(dal["rises"], best["rises"]),
            1,
            note=f"{dal['rises']:.1f} against {best['rises']:.1f} on average.",
        ),
        Claim.at_most(
            f"{setting}: it trains as fast as a swept rate: how many of the {len(rates)} rates end at a lower loss",
            int((rates["last_loss"] < dal["last_loss"]).sum()),
            1,
            note=f"{STEPS_NOT_COST} Last losses, test accuracies, and largest rises: {told}.",
        ),
    ]


def _peers(options: Options) -> tuple[Sweep, ...]:
    """Returns descent with momentum, Adam at its usual rates, and optimisers that choose their rates."""
    with_momentum, options = descent_with_momentum(options), replace(options, record_every=0)
    return (
        with_momentum,
        Sweep(replace(options, optimizer="adam", learning_rate=(0.001, 0.01))),
        Sweep(replace(options, optimizer="prodigy")),
        Sweep(replace(options, optimizer="dog")),
    )


SETTINGS = dict(
    quick=Config((*both(CHEAP["quick"], RESNET["quick"]), *_peers(CHEAP["quick"]))),
    cpu=Config((*both(CHEAP["cpu"], VGG["cpu"], RESNET["cpu"]), *_peers(CHEAP["cpu"]), *_peers(VGG["cpu"]))),
    paper=Config((*both(VGG["paper"], RESNET["paper"]), *_peers(VGG["paper"]))),
)
run = _dal_settings.run
trainings = _dal_settings.trainings
STAND_INS = _dal_settings.stand_ins(SETTINGS)
