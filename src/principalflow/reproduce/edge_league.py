"""All models of the long run, side by side through the edge of stability: which is closest where, and at what price."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import jax
import numpy as np
import pandas
from matplotlib.figure import Figure

from principalflow._lab import Claim, Table, Tables
from principalflow.descent import descend
from principalflow.flows import IGR, BackwardError, Central, NegativeGradient, Pair, Rod, TwoPoint, TwoStep
from principalflow.models import MLP, VGG, loss
from principalflow.objective import Objective, Vector
from principalflow.reproduce import _league
from principalflow.reproduce._league import RUN, Model, Race

NGF, CENTRAL, ROD, TWO_POINTS = "NGF", "central, k = 4", "rod, rank 4", "two points"
PAIR, TWO_STEP = "pair (2, 2)", "two steps, order 3"
OURS = (*(f"two steps, order {n}" for n in range(4)), "pair (1, 1)", PAIR)
MODELS = (NGF, "IGR flow", "order 2", *OURS, TWO_POINTS, ROD, CENTRAL)


@dataclass(frozen=True)
class Setting:
    """A loss at its edge.

    Attributes:
        name: Its name.
        kind: What is claimed of it: "established" where a run oscillates already, at most a little beyond 2/h; "far"
            where it goes far beyond; "other" elsewhere.
        h: The rate.
        begin: After how many steps flows start.
        steps: How many steps they follow.
        before: The rate up to there, if it was another.
        data: Whose images it learns.
        samples: How many.
        model: What learns them; "valley" is the function y x²/2 - y/1000 instead.
        hidden: Units of the layers of an MLP.
        width: Of a VGG's channels.
        activation: Of both.
        gain: Of the starting weights.
        loss: The loss.
        seeds: Of its starting weights; the league's is added to each.
        every: How many steps lie between two points of a course.
        models: Which models follow it.
        rtol: How exactly, where it isn't as exactly as in the other settings.
    """

    name: str
    kind: Literal["established", "far", "other"]
    h: float
    begin: int
    steps: int
    before: float | None = None
    data: str = "digits"
    samples: int = 600
    model: Literal["mlp", "vgg11", "valley"] = "mlp"
    hidden: tuple[int, ...] = (32, 32)
    width: float = 1 / 16
    activation: str = "tanh"
    gain: float = 1.0
    loss: Literal["mean-square", "cross-entropy"] = "mean-square"
    seeds: tuple[int, ...] = (0,)
    every: int = 2
    models: tuple[str, ...] = MODELS
    rtol: float | None = None


@dataclass(frozen=True)
class Config:
    """What is to be followed, how exactly, and at how many points of a course the sharpness is measured."""

    settings: tuple[Setting, ...]
    rtol: float = 2e-6
    looks: int = 30
    seed: int = 0


def run(config: Config) -> Tables:
    parts = []
    for setting, race in _races(config):
        models = _models(race, setting.rtol or config.rtol, setting.models)
        part = _league.follow(race, models, setting.every, config.looks)
        part["errors"] = part["errors"].assign(kind=setting.kind, parameters=race.start.size, h=race.h)
        parts.append(part)
    return {name: pandas.concat([part[name] for part in parts], ignore_index=True) for name in ("errors", "courses")}


def _models(race: Race, rtol: float, names: Sequence[str]) -> dict[str, Model]:
    h, rank = race.h, min(4, race.start.size)
    way = {"rtol": rtol, "atol": rtol / 1000, "max_steps": 5 * race.steps}
    flows = {
        NGF: NegativeGradient(),
        "IGR flow": IGR(h),
        "order 2": BackwardError(h, order=2),
        **{f"two steps, order {n}": TwoStep(h, order=n) for n in range(4)},
        "pair (1, 1)": Pair(h, orders=(1, 1)),
        PAIR: Pair(h, orders=(2, 2)),
        TWO_POINTS: TwoPoint(h),
        ROD: Rod(h, rank=rank),
        CENTRAL: Central(h, k=rank),
    }
    return {name: Model(flows[name], way) for name in names}


def _races(config: Config) -> Iterator[tuple[Setting, Race]]:
    for setting in config.settings:
        for seed in setting.seeds:
            objective = _objective(setting, config.seed + seed)
            before = setting.before or setting.h
            start = descend(objective, objective.theta, before, setting.begin, keep="last").thetas[-1]
            name = setting.name if len(setting.seeds) == 1 else f"{setting.name}, seed {seed}"
            yield setting, _race(name, setting, objective, start)


def _race(name: str, setting: Setting, objective: Objective, start: Vector) -> Race:
    def step(objective: Objective, theta: Vector) -> Vector:
        return theta - setting.h * objective.gradient(theta)

    return Race(name, objective, start, setting.steps, setting.h, threshold=2 / setting.h, step=step)


def _objective(setting: Setting, seed: int) -> Objective:
    if setting.model == "valley":
        return Objective(lambda w: w[1] * w[0] ** 2 / 2 - w[1] / 1000, np.array([0.05, 2.0]))
    inputs, labels = _league.images(setting.data, setting.samples)
    key, options = jax.random.key(seed), {"activation": setting.activation, "gain": setting.gain}
    if setting.model == "mlp":
        inputs = inputs.reshape(len(inputs), -1)
        network = MLP(inputs.shape[1], setting.hidden, labels.shape[1], key, **options)
    else:
        network = VGG(inputs.shape[1:], labels.shape[1], key, width=setting.width, **options)
    return Objective(loss(setting.loss), network, (inputs, labels))


def claims(config: Config, tables: Tables) -> list[Claim]:
    errors, courses = tables["errors"], tables["courses"]
    established, far = (errors[errors["kind"] == kind] for kind in ("established", "far"))
    return [
        *_accuracy(established, TWO_STEP, "the two-step flow of order 3", 1e-4, 0.001, 16),
        *_accuracy(established, PAIR, "the pair flow of orders (2, 2)", 5e-4, 0.002, 32),
        Claim.at_most(
            "There the central flow, which has no spikes, models the mean over time: its largest distance, averaged "
            "over the last half",
            _largest(established, CENTRAL, "mean_distance"),
            0.015,
        ),
        Claim.above(
            "Models of single steps don't pass the edge there: the smallest ratio of the nearest of their distances "
            "over that of the two-step flow of order 1",
            _ratio(established, "two steps, order 1", [NGF, "IGR flow", "order 2"]),
            10,
        ),
        Claim.at_most(
            "Far beyond 2/h the pair flow of orders (2, 2) goes on: its largest distance",
            _largest(far, PAIR, "distance"),
            0.005,
            note=f"The largest h λ₀ of the runs: {_peaks(courses, far)}.",
        ),
        Claim.at_least(
            "and it is closer than the central flow: the smallest ratio of their distances",
            _ratio(far, PAIR, [CENTRAL]),
            5,
        ),
        _warned(errors, courses),
        Claim.at_least(
            "On every problem that isn't far beyond 2/h our best model is closer than the NGF by 15 times and more: "
            "the smallest ratio",
            _best_of_ours(errors[errors["kind"] != "far"], [NGF]),
            15,
        ),
        Claim.above(
            "On every problem our best model is closer than those of the central flow, the rod flow and the two points "
            "that followed it: the smallest ratio",
            _best_of_ours(errors, [CENTRAL, ROD, TWO_POINTS]),
            1,
            note=_winners(errors),
        ),
        Claim.below(
            "What the run itself makes of a start 1e-9 away: its largest distance",
            float(errors.loc[errors["model"] == _league.BESIDE, "distance"].max()),
            1e-4,
            note="No model can be closer than the run's own path is determined.",
        ),
    ]


def _accuracy(rows: Table, name: str, words: str, distance: float, sharpness: float, gradients: float) -> list[Claim]:
    spike = rows.loc[rows["model"] == name, "spike_error"].abs()
    return [
        Claim.at_most(
            f"Along runs that oscillate already {words} ends beside the mean path: its largest distance, over the "
            "path's length",
            _largest(rows, name, "distance"),
            distance,
        ),
        Claim.at_most(f"{words}: the largest mean error of h λ₀", _largest(rows, name, "sharpness_error"), sharpness),
        Claim.at_most(
            f"{words}: how many steps the first spike is off, at most",
            float(spike.max()) if spike.notna().all() else np.nan,
            2,
        ),
        Claim.at_most(f"{words}: gradients a step, at most", _largest(rows, name, "gradients"), gradients),
    ]


def _largest(rows: Table, name: str, column: str) -> float:
    """Returns the largest number of a model; NaN if one is missing, or there is none."""
    values = rows.loc[rows["model"] == name, column]
    return float(values.max()) if len(values) and values.notna().all() else np.nan


def _distances(rows: Table) -> Table:
    """Returns the distances, a row for each race and a column for each model; infinite where one didn't arrive."""
    return rows.fillna({"distance": np.inf}).pivot_table("distance", "race", "model", sort=False)


def _ratio(rows: Table, name: str, others: list[str]) -> float:
    """Returns the smallest ratio of the nearest of others' distances over a model's."""
    table = _distances(rows)
    return _smallest(table.reindex(columns=others).min(axis=1) / table[name]) if len(table) else np.nan


def _best_of_ours(rows: Table, others: list[str]) -> float:
    table = _distances(rows)
    theirs = table.reindex(columns=others).min(axis=1)
    return _smallest(theirs / table.reindex(columns=list(OURS)).min(axis=1))


def _smallest(ratios: pandas.Series) -> float:
    """Returns the smallest ratio; NaN if there is one of two models that didn't arrive."""
    return float(ratios.min(skipna=False))


def _winners(rows: Table) -> str:
    table = _distances(rows).drop(columns=_league.BESIDE)
    best = table.idxmin(axis=1)
    return (
        "The closest: " + "; ".join(f"{race}, {name}: {table.loc[race, name]:.2g}" for race, name in best.items()) + "."
    )


def _peak(courses: Table, race: str) -> float:
    return float(courses[(courses["race"] == race) & (courses["model"] == RUN)]["sharpness"].max())


def _peaks(courses: Table, rows: Table) -> str:
    return "; ".join(f"{race}, {_peak(courses, race):.2f}" for race in rows["race"].unique()) or "none"


def _warned(errors: Table, courses: Table) -> Claim:
    """Returns the claim that the two-step flow says where its series diverges."""
    beyond = [race for race in errors["race"].unique() if _peak(courses, race) > 2.4]
    rows = errors[errors["race"].isin(beyond) & (errors["model"] == TWO_STEP)]
    said = (rows["status"] != "completed") & rows["message"].str.contains("Pair")
    return Claim.equal(
        "Where h λ₀ passes 2.4 the two-step flow says so and names the pair flow: share of these runs",
        float(said.mean()) if len(rows) else np.nan,
        1,
        note=f"{len(rows)} of the runs do.",
    )


def draw(config: Config, tables: Tables) -> Figure:
    return _league.draw(tables, {"sharpness": "h λ₀ at the centre", "mean_loss": "mean loss", "amplitude": "amplitude"})


def explore(config: Config, tables: Tables) -> dict[str, Any]:
    return _league.explore(tables)


_VALLEY = Setting("valley", "other", h=1, begin=0, steps=300, model="valley")
_SQUARE = Setting("tanh, square loss", "established", h=0.0575, begin=700, steps=100)
_RELU = replace(_SQUARE, name="relu, square loss", kind="other", begin=400, activation="relu", rtol=1e-3)
_ENTROPY = Setting("tanh, cross-entropy", "far", h=0.45, begin=10, steps=60, seeds=(2,), loss="cross-entropy")
_SEEDS = (0, 1, 2)
_MNIST = Setting(
    "MNIST MLP",
    "other",
    h=0.0228,
    before=0.02,
    begin=40,
    steps=60,
    data="mnist",
    samples=1000,
    hidden=(100, 100, 100),
)
_FEW = (NGF, "two steps, order 1", TWO_STEP, PAIR, CENTRAL)
_CPU = (
    replace(_VALLEY, steps=500),
    replace(_SQUARE, name="tanh, square loss, after the first spike", begin=550, steps=300, seeds=_SEEDS),
    replace(_SQUARE, name="tanh, square loss, at a lower rate", h=0.0525, begin=1100, steps=300, seeds=_SEEDS),
    replace(_SQUARE, name="tanh, square loss, after 900 steps", begin=900, steps=300, seeds=_SEEDS),
    replace(_SQUARE, name="tanh, square loss, before the first spike", kind="other", begin=404, steps=200),
    replace(_RELU, steps=300),
    replace(_ENTROPY, h=0.4, steps=200, seeds=_SEEDS),
    replace(_ENTROPY, name="tanh, cross-entropy, at a higher rate", steps=200, seeds=_SEEDS),
    _MNIST,
    replace(
        _MNIST,
        name="narrow VGG",
        h=0.1,
        before=None,
        begin=280,
        steps=12,
        data="cifar10",
        model="vgg11",
        loss="cross-entropy",
        every=3,
        models=_FEW,
    ),
)
_LARGE = replace(
    _MNIST,
    name="656,810 parameters",
    h=1 / 30,
    before=None,
    begin=200,
    steps=40,
    data="cifar10",
    samples=5000,
    hidden=(200, 200),
    gain=3**-0.5,
    every=4,
    models=_FEW,
)
SETTINGS = {
    "quick": Config((_VALLEY, _SQUARE, _RELU, _ENTROPY), rtol=1e-5, looks=20),
    "cpu": Config(_CPU),
    "paper": Config((*_CPU, _LARGE)),
}
