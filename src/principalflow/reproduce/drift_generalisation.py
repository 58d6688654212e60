"""Mean drift against test accuracy and λ₀, over rates and powers.

Figures stability_lambda_performance and drift_lambda_sgd_connection.
"""

from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from principalflow.reproduce import _dal
from principalflow.reproduce._dal import (
    MLP,
    ON_BATCHES,
    STAND_INS_VGG,
    VGG,
    Config,
    correlation_claim,
    dal,
    descent,
    settings,
)
from principalflow.reproduce._experiment import Claim, Experiment, Table, Tables
from principalflow.reproduce._sweeps import rank_correlation

_SWEEPS = {"fixed rates": "rate", "DAL-p": "power"}
_MEASURES = {"test_accuracy": "test accuracy", "sharpness": r"$\lambda_0$ at the end"}


def claims(config: Config, tables: Tables) -> list[Claim]:
    return [claim for setting, runs in settings(tables["runs"]) for claim in _claims(setting, runs)]


def draw(config: Config, tables: Tables) -> Figure:
    parts = settings(tables["runs"])
    figure = Figure(figsize=(16, 4 * len(parts)), layout="constrained")
    for axes, (setting, runs) in zip(figure.subplots(len(parts), 4, squeeze=False), parts, strict=True):
        pairs = [(sweep, measure) for sweep in _SWEEPS for measure in _MEASURES]
        for ax, (sweep, measure) in zip(axes, pairs, strict=True):
            rows = _finished(runs, sweep)
            for name, some in rows.groupby("contender", sort=False):
                ax.scatter(
                    some["drift"], some[measure], color=_dal.colours(list(rows["contender"].unique()))[name], label=name
                )
            found = rank_correlation(rows["drift"], rows[measure])
            ax.set(xscale="log", xlabel=r"mean drift, $\frac{h^2}{2}\|Hg\|$", ylabel=_MEASURES[measure])
            ax.set_title(f"{setting}\n{sweep}: rank correlation {found}", fontsize="small")
            ax.xaxis.set_minor_formatter(NullFormatter())
            ax.legend(fontsize="x-small")
    return figure


def _claims(setting: str, runs: Table) -> list[Claim]:
    claims = []
    for sweep in _SWEEPS:
        rows = _finished(runs, sweep)
        claims += [
            correlation_claim(
                f"{setting}, {sweep}: the more drift, the better the test accuracy",
                rank_correlation(rows["drift"], rows["test_accuracy"]),
                1,
            ),
            correlation_claim(
                f"{setting}, {sweep}: the more drift, the lower λ₀",
                rank_correlation(rows["drift"], rows["sharpness"]),
                -1,
            ),
        ]
    means = {sweep: _finished(runs, sweep).groupby("contender")["sharpness"].mean() for sweep in _SWEEPS}
    lowest, of_rates = means["DAL-p"].min(), means["fixed rates"].min()
    where = {sweep: mean.idxmin() if len(mean) else "none" for sweep, mean in means.items()}
    claims.append(
        Claim(
            f"{setting}: DAL-p gets to a lower λ₀ than even large rates: the least mean over the seeds over that of "
            "fixed rates",
            lowest / of_rates,
            "<",
            1,
            note=f"{lowest:.3g} with {where['DAL-p']}, {of_rates:.3g} at {where['fixed rates']}.",
        )
    )
    return claims


def _finished(runs: Table, sweep: str) -> Table:
    return runs[runs[_SWEEPS[sweep]].notna() & ~runs["diverged"]]


EXPERIMENT = Experiment(
    id="drift-generalisation",
    title="More drift goes with better test accuracy and lower curvature",
    figure="Figures stability_lambda_performance, section 6.3, and drift_lambda_sgd_connection, appendix D",
    paper_says=(
        "Over sweeps of fixed rates and of DAL's powers, the higher the mean drift of an iteration, the higher the "
        "test accuracy and the lower λ₀; DAL-p with a low p gets to a lower λ₀ than descent with large rates. On "
        "batches of 1,024 it is the same."
    ),
    we_add=(
        "Runs that diverge are left out. λ₀ is the last recorded one. On batches drift and λ₀ are those of all samples."
    ),
    paper_setting="VGG on CIFAR-10, full batch and batches of 1,024.",
    profiles={
        "quick": Config(
            (
                descent(VGG["quick"]),
                dal(VGG["quick"]),
                descent(ON_BATCHES["quick"], batch=64),
                dal(ON_BATCHES["quick"], batch=64),
            )
        ),
        "cpu": Config(
            (
                descent(MLP["cpu"]),
                dal(MLP["cpu"]),
                descent(VGG["cpu"]),
                dal(VGG["cpu"]),
                descent(ON_BATCHES["cpu"], batch=64),
                dal(ON_BATCHES["cpu"], batch=64),
            )
        ),
        "paper": Config(
            (
                descent(VGG["paper"]),
                dal(VGG["paper"]),
                descent(ON_BATCHES["paper"], batch=1024),
                dal(ON_BATCHES["paper"], batch=1024),
            )
        ),
    },
    run=_dal.run,
    claims=claims,
    draw=draw,
    trainings=_dal.trainings,
    stand_ins=STAND_INS_VGG,
)
