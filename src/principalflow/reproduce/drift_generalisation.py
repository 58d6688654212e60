"""Mean drift against test accuracy and λ₀, over rates and powers.

Figures stability_lambda_performance and drift_lambda_sgd_connection.
"""

from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from principalflow._lab import Claim, Table, Tables
from principalflow.reproduce import _dal_drawing, _dal_settings
from principalflow.reproduce._dal_queries import correlation_claim, of, ratio, settings
from principalflow.reproduce._dal_settings import CHEAP, VGG, Config, both, on_batches
from principalflow.reproduce._statistics import rank_correlation

_SWEEPS = {"fixed rates": "rate", "DAL-p": "power"}
_MEASURES = {"test_accuracy": "test accuracy", "sharpness": r"$\lambda_0$ at the end"}


def claims(config: Config, tables: Tables) -> list[Claim]:
    return [
        claim
        for setting, runs in settings(tables["runs"])
        for claim in _claims(setting, runs, of(tables["contenders"], setting))
    ]


def draw(config: Config, tables: Tables) -> Figure:
    figure, parts = _dal_drawing.panels(tables["runs"], 4)
    for axes, setting, runs in parts:
        shades = _dal_drawing.colours(runs)
        pairs = [(sweep, measure) for sweep in _SWEEPS for measure in _MEASURES]
        for ax, (sweep, measure) in zip(axes, pairs, strict=True):
            rows = _finished(runs, sweep)
            for name, some in rows.groupby("contender", sort=False):
                ax.scatter(some["drift"], some[measure], color=shades[name], label=name)
            found = rank_correlation(rows["drift"], rows[measure])
            ax.set(xscale="log", xlabel=r"mean drift, $\frac{h^2}{2}\|Hg\|$", ylabel=_MEASURES[measure])
            ax.set_title(f"{setting}\n{sweep}: rank correlation {found}", fontsize="small")
            ax.xaxis.set_minor_formatter(NullFormatter())
            ax.legend(fontsize="x-small")
    return figure


def _claims(setting: str, runs: Table, contenders: Table) -> list[Claim]:
    claims = []
    for sweep in _SWEEPS:
        rows = _finished(runs, sweep)
        to_accuracy, to_sharpness = (rank_correlation(rows["drift"], rows[measure]) for measure in _MEASURES)
        claims += [
            correlation_claim(f"{setting}, {sweep}: the more drift, the better the test accuracy", to_accuracy, 1),
            correlation_claim(f"{setting}, {sweep}: the more drift, the lower λ₀", to_sharpness, -1),
        ]
    fine = contenders.dropna(subset="sharpness").sort_values("sharpness")
    least = {sweep: fine[fine[column].notna()].head(1) for sweep, column in _SWEEPS.items()}
    lowest, of_rates = (least[sweep]["sharpness"].sum(min_count=1) for sweep in ("DAL-p", "fixed rates"))
    at = "; ".join(
        f"{row['contender']}: λ₀ {row['sharpness']:.3g} at a loss of {row['last_loss']:.2g}"
        for rows in least.values()
        for _, row in rows.iterrows()
    )
    return [
        *claims,
        Claim.below(
            f"{setting}: DAL-p gets to a lower λ₀ than even large rates: the least mean over the seeds over that of "
            "fixed rates",
            ratio(lowest, of_rates),
            1,
            note=f"{at}. With a cross-entropy λ₀ falls with the loss, too.",
        ),
    ]


def _finished(runs: Table, sweep: str) -> Table:
    return runs[runs[_SWEEPS[sweep]].notna() & ~runs["diverged"]]


SETTINGS = dict(
    quick=Config(both(VGG["quick"], on_batches("quick", 64))),
    cpu=Config(both(CHEAP["cpu"], on_batches("cpu", 64, CHEAP), VGG["cpu"], on_batches("cpu", 64))),
    paper=Config(both(VGG["paper"], on_batches("paper", 1024))),
)
run = _dal_settings.run
trainings = _dal_settings.trainings
STAND_INS = _dal_settings.stand_ins(SETTINGS)
