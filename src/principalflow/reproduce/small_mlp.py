"""A network of 41 parameters: which flow stays with descent for some steps (figure 7)."""

from collections.abc import Iterator
from dataclasses import dataclass

import jax
import numpy as np
import pandas
from matplotlib.figure import Figure

from principalflow import models
from principalflow._lab import Claim, Table, Tables
from principalflow.objective import Objective
from principalflow.reproduce._tracking import FLOWS, PRINCIPAL, TRACKED, draw_errors, errors_from, medians, spectra

SHORT_TERM = 3  # steps
_SLIDES = (
    "Here the PF's error grows with the steps, as the paper says. Where we looked, it is not the imaginary part "
    "as such: once the flow has left the real line, a second eigenvalue that was above 1/h comes to Re hλ = 1 with a "
    "positive imaginary part, which is where the continuous branch has its own cut, and the flow slides along that."
)

_LOST = (
    "Where the PF has lost descent on every branch, it is further away than descent's steps are long, and none is the "
    "nearest for a reason. So it is by now from two of the three starts of the quick profile. The cpu profile has ten."
)


@dataclass(frozen=True)
class Config:
    """The network and its data, of which several are drawn, and the rates.

    The paper's three rates fall into its three regimes only if 8 < λ₀ < 10, so networks are drawn until `starts` of
    them do. `multiples` are further rates, as h λ₀.
    """

    inputs: int = 2
    hidden: int = 10
    samples: int = 5
    activation: str = "tanh"
    rates: tuple[float, ...] = (0.1, 0.2, 0.25)
    multiples: tuple[float, ...] = (0.5, 1.5, 2.5)
    starts: int = 3
    steps: int = 3
    euler_steps: int = 40
    seed: int = 0


def run(config: Config) -> Tables:
    tables = []
    for number, (objective, sharpness) in zip(range(config.starts), _starts(config), strict=False):
        rates = {f"h = {h:g}": h for h in config.rates}
        rates |= {f"h λ₀ = {multiple:g}": multiple / sharpness for multiple in config.multiples}
        for case, h in rates.items():
            # Up to h λ₀ = 2 the tracked branch hardly parts from the continuous one.
            names = (*FLOWS, TRACKED) if h * sharpness > 2 else FLOWS
            errors = errors_from(objective, objective.theta, h, config.steps, config.euler_steps, names)
            tables.append(errors.assign(case=case, start=number, h=h, h_lambda=h * sharpness))
    return {"errors": pandas.concat(tables, ignore_index=True)}


def claims(config: Config, tables: Tables) -> list[Claim]:
    return [claim for case, errors in _cases(tables) for claim in _claims_of(case, errors)]


def draw(config: Config, tables: Tables) -> Figure:
    figure = Figure(figsize=(15, 8), layout="constrained")
    axes = figure.subplots(2, 3).ravel()
    for ax, (case, errors) in zip(axes, _cases(tables), strict=True):
        draw_errors(ax, errors)
        ax.set_title(f"{case}: {_regime(errors)}")
    axes[2].legend()
    return figure


def _claims_of(case: str, errors: Table) -> Iterator[Claim]:
    middle = medians(errors)
    to_others = middle["PF"] / middle[["NGF", "IGR flow"]].min(axis=1)
    yield Claim.below(
        f"At {case} the PF is nearest to descent after one step: its error over the smaller of the NGF's and the IGR "
        "flow's (medians over starts)",
        float(to_others[1]),
        1,
    )
    later = to_others.loc[2:SHORT_TERM]
    note = _SLIDES if errors["h_lambda"].min() > 2 and not later.max() < 1 else ""
    yield Claim.below(
        f"The same after 2 to {SHORT_TERM} steps: the largest of these ratios", float(later.max()), 1, note=note
    )
    if errors["h_lambda"].min() > 1:
        to_principal = middle["PF"] / middle[PRINCIPAL]
        for n in to_principal.index.intersection([1, SHORT_TERM]):
            yield Claim.below(
                f"The continuous branch of the PF is nearer than the principal one after {n} step{'s' * (n > 1)} at "
                f"{case}: ratio of their errors",
                float(to_principal[n]),
                1,
            )
    if errors["h_lambda"].min() > 2 and SHORT_TERM in middle.index:
        tracked = middle[TRACKED] / middle[["PF", PRINCIPAL]].min(axis=1)
        yield Claim.below(
            f"With its logarithm tracked along the path the PF is nearer than on both branches after {SHORT_TERM} "
            f"steps at {case}: its error over the smaller of theirs",
            float(tracked[SHORT_TERM]),
            1,
            note=_LOST if not tracked[SHORT_TERM] < 1 else "",
        )


def _starts(config: Config) -> Iterator[tuple[Objective, float]]:
    """Draws networks with their data, and keeps those whose λ₀, beside them, puts rates into the paper's regimes."""
    low, middle, high = config.rates
    for seed in range(1000 * config.seed, 1000 * (config.seed + 1)):
        objective = _objective(config, seed)
        sharpness = float(spectra(objective, objective.theta[None])[0, 0])
        if low * sharpness < 1 < middle * sharpness < 2 < high * sharpness:
            yield objective, sharpness


def _objective(config: Config, seed: int) -> Objective:
    for_network, for_inputs, for_targets = jax.random.split(jax.random.key(seed), 3)
    network = models.MLP(config.inputs, (config.hidden,), 1, for_network, activation=config.activation)
    inputs = jax.random.normal(for_inputs, (config.samples, config.inputs))
    targets = jax.random.normal(for_targets, (config.samples,))
    return Objective(models.loss("mean-square"), network, (inputs, targets), holomorphic=True)


def _cases(tables: Tables) -> Iterator[tuple[str, Table]]:
    return iter(tables["errors"].groupby("case", sort=False))


def _regime(errors: Table) -> str:
    h_lambda = np.median(errors["h_lambda"])
    bounds = r"$\lambda_0 < 1/h$", r"$1/h < \lambda_0 < 2/h$", r"$\lambda_0 > 2/h$"
    return bounds[min(int(h_lambda), 2)]


_MORE = Config(starts=10, steps=10, euler_steps=200)
SETTINGS = {"quick": Config(), "cpu": _MORE, "paper": _MORE}
SCHEMA = 2
STAND_INS = dict.fromkeys(SETTINGS, "tanh stands in for elu, whose pieces don't fit together off the real line.")
