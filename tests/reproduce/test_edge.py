import dataclasses

import jax
import numpy as np
import pandas
import pytest
from reproduce.cases import TRAINING

import principalflow as pf
from principalflow.reproduce import EXPERIMENTS, edge
from principalflow.reproduce._edge import Config, all_trained, cost_claim, costs, networks
from principalflow.reproduce._trained import label
from principalflow.training import Options

CONFIG = Config((TRAINING,), seed=3)


def test_the_seed_goes_into_the_trainings():
    assert [network.seed for network in networks(CONFIG)] == [3]


def test_costs_are_counted_beside_those_of_eigenpairs_that_start_anew():
    with jax.enable_x64(True):
        (run,) = all_trained(CONFIG)
        table = costs([run], more=10, more_by_paper=1000)
    assert table["ours"].iloc[0] == run.cost + 10
    assert table["paper"].iloc[0] > 1000 + len(run.records)
    assert cost_claim(table).measured == table["ours"].iloc[0] / table["paper"].iloc[0]


def steps(name, h_lambda, loss_change):
    rows = {"network": name, "step": range(len(h_lambda)), "h": 0.1, "h_lambda": h_lambda, "loss_change": loss_change}
    return pandas.DataFrame({**rows, "loss": 1.0})


def test_rises_below_the_edge_speak_against_the_claim():
    config = edge.SETTINGS["quick"]
    names = [label(network) for network in networks(config)]
    costs = pandas.DataFrame({"ours": [1.0], "paper": [2.0]})
    shares = []
    for below in (0, 5):
        h_lambda, change = [1.5] * 10 + [2.1] * 10, [1.0] * below + [-1.0] * (10 - below) + [1.0] * 10
        tables = {"steps": pandas.concat([steps(name, h_lambda, change) for name in names]), "cost": costs}
        shares.append(
            [claim.measured for claim in edge.claims(config, tables) if "rises that are there" in claim.sentence]
        )
    assert shares == [[1.0, 1.0], [pytest.approx(2 / 3), pytest.approx(2 / 3)]]


def _networks():
    """The networks of all experiments and profiles; channels and rates don't decide whether one can be built."""
    alike = {"samples": 4, "width": 0.03, "learning_rate": 1.0, "steps": 1, "precision": "float32"}
    alike |= {"loss": "mean-square", "record_every": 0, "keep_every": 0}
    for experiment in EXPERIMENTS.values():
        for config in experiment.profiles.values():
            for network in getattr(config, "networks", ()) or (getattr(config, "network", None),):
                if isinstance(network, Options):
                    yield dataclasses.replace(network, chunk=network.chunk and 2, **alike)


@pytest.mark.parametrize("network", dict.fromkeys(_networks()), ids=label)
def test_every_network_of_every_profile_can_be_built(network, monkeypatch):
    shape = {"mnist": (28, 28, 1), "cifar10": (32, 32, 3), "digits": (8, 8, 1)}[network.data]
    classes = tuple("0123456789")
    made_up = pf.data.Dataset("made up", np.zeros((4, *shape)), np.zeros(4, int), None, None, classes, "nowhere")
    monkeypatch.setattr(pf.data, "load", lambda *_, **__: made_up)
    assert pf.training.objective(network).in_chunks == bool(network.chunk)
