"""A rate for each parameter (figures 51 and 52)."""

from matplotlib.figure import Figure

from principalflow._lab import Claim, Table, Tables
from principalflow.reproduce import _dal_drawing, _dal_settings
from principalflow.reproduce._dal_queries import accuracy, of, ratio, settings
from principalflow.reproduce._dal_settings import CHEAP, VGG, Config, dal, on_batches
from principalflow.reproduce._sweeps import Sweep
from principalflow.training import Options

_FACTORS = (2.0, 0.01)  # the paper's, and one with which most rates are below the cap


def claims(config: Config, tables: Tables) -> list[Claim]:
    return [
        claim
        for setting, rows in settings(tables["contenders"])
        for claim in _claims(setting, of(tables["steps"], setting), rows)
    ]


def draw(config: Config, tables: Tables) -> Figure:
    figure, parts = _dal_drawing.panels(tables["steps"], 3)
    for (loss, rate, ends), setting, steps in parts:
        _dal_drawing.draw_losses(loss, steps)
        _dal_drawing.draw_curves(rate, steps, "learning_rate")
        _dal_drawing.draw_accuracies(ends, of(tables["contenders"], setting))
        rate.set_title("mean rate over the parameters; dotted: the cap")
        rate.axhline(Options.max_learning_rate, color="grey", linestyle=":", linewidth=0.8)
    return figure


def _claims(setting: str, steps: Table, rows: Table) -> list[Claim]:
    first = steps.loc[steps["step"] == 0, "loss"].mean()
    rates = steps.groupby("contender")["learning_rate"].median()
    return [
        Claim.below(
            f"{setting}: {row['contender']}: it trains: the last loss over the first",
            ratio(row["last_loss"], first),
            0.5,
            note=f"{_end(row, steps)} The mean rate over the parameters is {rates[row['contender']]:.2g} at the "
            f"median; with all at the cap it would be {Options.max_learning_rate:g}.",
        )
        for _, row in rows.iterrows()
    ]


def _end(row: Table, steps: Table) -> str:
    """Returns how a contender ends, in words; the loss may swing to the end."""
    if row["diverged"]:
        return f"{row['diverged']:g} of three seeds diverged."
    late = steps[(steps["contender"] == row["contender"]) & (steps["step"] >= 0.9 * steps["step"].max())]["loss"]
    swing = f"{late.min():.2g} to {late.max():.2g}"
    return f"The loss is from {swing} in the last tenth of the steps. Test accuracy: {accuracy(row)}."


def _sweeps(options: Options) -> tuple[Sweep, ...]:
    return tuple(dal(options, (1.0, 0.5), per_parameter=True, factor=factor) for factor in _FACTORS)


SETTINGS = dict(
    quick=Config((*_sweeps(VGG["quick"]), *_sweeps(on_batches("quick", 64)))),
    cpu=Config((*_sweeps(CHEAP["cpu"]), *_sweeps(on_batches("cpu", 64, CHEAP)))),
    paper=Config((*_sweeps(VGG["paper"]), *_sweeps(on_batches("paper", 8192)))),
)
run = _dal_settings.run
trainings = _dal_settings.trainings
STAND_INS = _dal_settings.stand_ins(SETTINGS)
