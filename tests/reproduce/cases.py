"""A cheap experiment for the tests of the machinery, and a cheap training for those of experiments."""

from dataclasses import dataclass, replace

import jax.numpy as jnp
import pandas
from matplotlib.figure import Figure

from principalflow.reproduce import PROFILES, Claim, Experiment, _run
from principalflow.reproduce._edge import MLP

TRAINING = replace(MLP["quick"], samples=50, width=0.02, learning_rate=0.1, steps=4)


@dataclass(frozen=True)
class Part:
    size: int = 3


@dataclass(frozen=True)
class Config:
    numbers: tuple[float, ...] = (1.0, 2.0)
    parts: tuple[Part, ...] = (Part(), Part(4))
    seed: int = 0


class Counting:
    """Counts its runs, and fails while told to."""

    def __init__(self):
        self.runs, self.fails = 0, False

    def __call__(self, config):
        self.runs += 1
        if self.fails:
            raise RuntimeError("the reactor is on fire")
        third = float(jnp.asarray(1.0) / 3)
        return {"table": pandas.DataFrame({"number": config.numbers, "third": third})}


def claims(config, tables):
    table = tables["table"]
    return [
        Claim("The largest number is below 10", float(table["number"].max()), "<", 10),
        Claim(
            "A third is known to single precision only", abs(table["third"][0] - 1 / 3), ">", 1e-12, note="It is not."
        ),
        Claim("Infinity is large", float("inf"), ">", 1),
    ]


def draw(config, tables):
    figure = Figure()
    figure.subplots().plot(tables["table"]["number"])
    return figure


def experiment(name="counting", **changes):
    given = {
        "id": name,
        "title": "Counting",
        "figure": "Figure 0",
        "paper_says": "Nothing of the kind.",
        "paper_setting": "None.",
        "profiles": dict.fromkeys(PROFILES, Config()),
        "run": Counting(),
        "claims": claims,
        "draw": draw,
        "stand_ins": {"quick": "Counting stands in for an experiment."},
    }
    return Experiment(**given | changes)


def replace_catalogue(monkeypatch, *items):
    """Has these experiments be all that there are."""
    monkeypatch.setattr(_run, "EXPERIMENTS", {item.id: item for item in items})
