"""Adam, RMSProp and descent on batches have edges of their own (beyond the paper; Cohen et al. 2022)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import pandas
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from principalflow import _checks
from principalflow._lab import Claim, Table, Tables
from principalflow.reproduce._edge import SQUARE
from principalflow.reproduce._flows import stack
from principalflow.reproduce._sweeps import Sweep, batch, contender
from principalflow.reproduce._trained import Trained, trained
from principalflow.spectrum import sharpness
from principalflow.stability import BatchSharpness, batch_sharpness, batch_thresholds
from principalflow.training import Options

_NEAR = 0.15  # "stays at" and "settles at": the median over the last third within so much of it


@dataclass(frozen=True)
class Config:
    """Trainings on all samples by optimisers that rescale gradients, and on batches by descent.

    Batch sharpness is a mean over `drawn` batches.
    """

    rescaled: tuple[Options, ...]
    on_batches: tuple[Options, ...]
    drawn: int = 64
    seed: int = 0


def trainings(config: Config) -> list[Sweep]:
    return [Sweep(replace(o, seed=config.seed)) for o in (*config.on_batches, *config.rescaled)]


def run(config: Config) -> Tables:
    rescaled = {label(o): _rescaled(trained(replace(o, seed=config.seed))) for o in config.rescaled}
    on_batches = {label(o): _on_batches(trained(replace(o, seed=config.seed)), config.drawn) for o in config.on_batches}
    return {"steps": stack(rescaled, "optimizer"), "batches": stack(on_batches, "optimizer")}


def label(o: Options) -> str:
    """Returns the name of a training in figures and claims."""
    return contender(o) if o.batch_size is None else f"{contender(o)}, {batch(o)}"


def _rescaled(run: Trained) -> Table:
    """Returns the loss, λ₀ in the optimiser's metric with its threshold, and `plain`, λ₀ of the Hessian itself.

    The last is of the iterates that were kept, NaN elsewhere.
    """
    plain = dict(zip(run.steps.tolist(), sharpness(run.objective, run.kept), strict=True))
    rows = run.records[["step", "loss", "threshold"]]
    return rows.assign(sharpness=run.records["eigenvalue_0"], plain=rows["step"].map(plain), h=run.h)


def _on_batches(run: Trained, drawn: int) -> Table:
    """Returns the loss, batch sharpness with its standard error and threshold, and λ₀ of all samples."""
    o, records = run.training, run.records.set_index("step").reindex(run.steps)
    found = [_batch_sharpness(run, theta, drawn, int(step)) for step, theta in zip(run.steps, run.kept, strict=True)]
    return pandas.DataFrame(
        {
            "step": run.steps,
            "loss": records["loss"].to_numpy(),
            "batch_sharpness": [each.mean for each in found],
            "standard_error": [each.standard_error for each in found],
            "threshold": batch_thresholds(run.h, momentum=o.momentum).small,
            "sharpness": records["eigenvalue_0"].to_numpy(),
        }
    )


def _batch_sharpness(run: Trained, theta: Any, drawn: int, seed: int) -> BatchSharpness:
    try:
        return batch_sharpness(run.objective, theta, cast(int, run.training.batch_size), batches=drawn, seed=seed)
    except _checks.NonFiniteError:  # the end of a run that diverges
        return BatchSharpness(np.nan, np.nan, 0)


def claims(config: Config, tables: Tables) -> list[Claim]:
    found = [
        claim
        for o in config.rescaled
        for claim in _claims_of_rescaled(label(o), _of(tables["steps"], o, "sharpness", "plain"))
    ]
    late = {}
    for o in config.on_batches:
        settled, late[o] = (_late(column) for column in _of(tables["batches"], o, "batch_sharpness", "sharpness"))
        limit = "2(1-m)/h, the threshold of momentum m on small batches" if o.momentum else "2/h"
        found.append(
            Claim.at_most(
                f"{label(o)}: batch sharpness settles at {limit}: how far its median over it is from 1",
                abs(settled - 1),
                _NEAR,
                note=f"The median over the last third of the steps is {settled:.3f}; that of all samples' λ₀ over the "
                f"same is {late[o]:.3f}.",
            )
        )
    smaller, larger = sorted((o for o in late if not o.momentum), key=lambda o: cast(int, o.batch_size))
    found.append(
        Claim.below(
            "The smaller the batch, the lower λ₀ of all samples stays: "
            f"its median over 2/h with {batch(smaller)}, over that with {batch(larger)}",
            late[smaller] / late[larger],
            1,
        )
    )
    return found


def _claims_of_rescaled(name: str, columns: tuple[Table, Table]) -> list[Claim]:
    own, plain = columns
    start = float(own.iloc[0]) if len(own) else np.nan
    return [
        Claim.at_least(
            f"{name}: λ₀ in its metric rises from below to its own threshold: the largest λ₀ over it",
            float(own.max()) if start < 1 else np.nan,
            1,
            note=f"At the first record it is {start:.3f}.",
        ),
        Claim.at_most(
            f"{name}: there it stays: how far the median of λ₀ over the threshold, over the last third, is from 1",
            abs(_late(own) - 1),
            _NEAR,
            note=f"The median is {_late(own):.3f}.",
        ),
        Claim.above(
            f"{name}: the Hessian itself tells nothing of it: how far the median of its λ₀ over 2/h is from 1",
            abs(_late(plain) - 1),
            _NEAR,
            note=f"The median is {_late(plain):.3g}.",
        ),
    ]


def _of(table: Table, o: Options, *columns: str) -> tuple[Table, ...]:
    """Returns columns of one training over its threshold, that of the plain Hessian over 2/h."""
    rows = table[table["optimizer"] == label(o)]
    return tuple(rows[name] / (2 / rows["h"] if name == "plain" else rows["threshold"]) for name in columns)


def _late(column: Table) -> float:
    """Returns the median over the last third."""
    return float(column.iloc[-(len(column) // 3) :].median())


def draw(config: Config, tables: Tables) -> Figure:
    figure = Figure(figsize=(15, 9), layout="constrained")
    (loss, own, plain), (batch_loss, on_batches, whole) = figure.subplots(2, 3)
    for number, o in enumerate(config.rescaled):
        colour, (metric, hessian) = f"C{number}", _of(tables["steps"], o, "sharpness", "plain")
        steps = _draw_loss(loss, tables["steps"], o, colour)
        own.plot(steps, metric, color=colour, linewidth=0.8)
        plain.semilogy(steps[hessian.notna()], hessian.dropna(), color=colour, linewidth=0.8)
    for number, o in enumerate(config.on_batches, len(config.rescaled)):
        colour = f"C{number}"
        mean, error, all_samples = _of(tables["batches"], o, "batch_sharpness", "standard_error", "sharpness")
        steps = _draw_loss(batch_loss, tables["batches"], o, colour)
        on_batches.errorbar(steps, mean, 2 * error, color=colour, linewidth=0.8)
        whole.plot(steps, all_samples, color=colour, linewidth=0.8)
    loss.set(title="loss, all samples at each step", ylabel="$E$")
    own.set(title="λ₀ in the optimiser's metric, over its threshold")
    plain.set(title="λ₀ of the Hessian itself, over 2/h")
    batch_loss.set(title="loss, batches", ylabel="$E$")
    on_batches.set(title="batch sharpness ± 2 standard errors, over its threshold")
    whole.set(title="λ₀ of all samples, over the same threshold")
    for ax in figure.axes:
        ax.set_xlabel("step")
    for ax in (own, plain, on_batches, whole):
        ax.axhline(1, color="black", linestyle="--", linewidth=0.8)
    for ax in (loss, batch_loss):
        ax.legend()
    return figure


def _draw_loss(ax: Axes, table: Table, o: Options, colour: str) -> Table:
    """Draws a training's loss, and returns its steps."""
    rows = table[table["optimizer"] == label(o)]
    ax.semilogy(rows["step"], rows["loss"], color=colour, linewidth=0.8, label=label(o))
    return rows["step"]


def _settings(
    network: Options, rates: Mapping[str, float], on_batches: Sequence[tuple[int, float, float]], **longer: Any
) -> Config:
    """Returns the settings.

    Args:
        network: What is trained on all samples.
        rates: By which optimisers, at which rates. Their memory of squared gradients is 100 steps, as RMSProp's usually
            is: with Adam's usual 1,000 the swings around the threshold are wide, and outlast these trainings.
        on_batches: The size of batches, the rate and the momentum of each training on batches.
        **longer: What is different there.
    """
    rescaled = (replace(network, optimizer=name, learning_rate=h, beta2=0.99) for name, h in rates.items())
    batched = replace(network, optimizer="sgd", **longer)
    return Config(
        tuple(rescaled),
        tuple(replace(batched, batch_size=size, learning_rate=h, momentum=m) for size, h, m in on_batches),
    )


SETTINGS = {
    "quick": _settings(
        replace(SQUARE["quick"], steps=600, record_every=10, keep_every=10, checkpoint_every=300),
        {"adam": 0.02, "adamw": 0.02, "nadam": 0.007, "rmsprop": 0.001},
        ((8, 0.3, 0.0), (64, 0.3, 0.0), (4, 0.02, 0.9)),
        **dict(gain=0.6, steps=6000, record_every=200, keep_every=200, checkpoint_every=2000),
    ),
    "cpu": _settings(
        replace(SQUARE["cpu"], steps=1500, record_every=10, keep_every=10),
        {"adam": 0.001, "adamw": 0.001, "nadam": 0.00035, "rmsprop": 0.0001},
        ((8, 0.1, 0.0), (64, 0.1, 0.0), (4, 0.007, 0.9)),
        **dict(gain=0.6, steps=12_000, record_every=200, keep_every=200, checkpoint_every=2000),
    ),
    "paper": _settings(
        replace(SQUARE["paper"], record_every=10, keep_every=100),
        {"adam": 1e-4, "adamw": 1e-4, "nadam": 3.5e-5, "rmsprop": 1e-5},
        ((64, 0.03, 0.0), (1024, 0.03, 0.0), (64, 0.002, 0.9)),
        **dict(steps=50_000, record_every=1000, keep_every=1000),
    ),
}
