from dataclasses import replace

import jax
import numpy as np
import pandas
import pytest

from principalflow import descend, functions
from principalflow.reproduce import edge_momentum
from principalflow.reproduce.edge_momentum import HEAVY_BALL, NESTEROV, rate

METHODS = pytest.mark.parametrize("method", [HEAVY_BALL, NESTEROV])


@METHODS
@pytest.mark.parametrize("momentum", [0.5, 0.9])
@pytest.mark.parametrize(("relative", "stable"), [(0.99, True), (1.01, False)])
def test_a_method_is_stable_on_a_quadratic_just_below_its_edge_and_not_just_above(method, momentum, relative, stable):
    h = relative * rate(method, momentum, edge=3.0)
    how = dict(momentum=momentum, nesterov=method == NESTEROV, keep="last")
    end = descend(functions.quadratic([[3.0]]), [1.0], h, 2000, **how).thetas[0]
    assert (abs(float(end[0])) < 1) is stable


@METHODS
def test_without_momentum_the_edge_is_that_of_descent(method):
    assert rate(method, 0.0, edge=8.0) == 2 / 8


def test_a_run_that_diverges_ends_there():
    config = edge_momentum.SETTINGS["quick"]
    network = replace(config.network, samples=50, width=0.02, steps=1)
    with jax.enable_x64(True):
        rows = edge_momentum.run(replace(config, network=network, edge=1e-3, steps=80))["steps"]
    assert rows.groupby("method").size().max() < 11


@pytest.mark.parametrize(("start", "later", "expected"), [(0.9, 1.01, [True, True]), (0.3, 0.5, [False, False])])
def test_a_sharpness_that_rises_to_the_edge_settles(start, later, expected):
    config = edge_momentum.SETTINGS["quick"]
    rows = pandas.DataFrame({"method": "made up", "h": 0.1, "sharpness": config.edge * np.array([start, *8 * [later]])})
    assert [claim.held for claim in edge_momentum.claims(config, {"steps": rows})] == expected


def test_a_sharpness_that_starts_above_the_edge_has_not_risen_to_it():
    config = edge_momentum.SETTINGS["quick"]
    rows = pandas.DataFrame({"method": "made up", "h": 0.1, "sharpness": 9 * [1.01 * config.edge]})
    assert not edge_momentum.claims(config, {"steps": rows})[0].held
