"""What the rows at the edge of stability claim, on made-up steps."""

import numpy as np
import pandas
import pytest

from principalflow.reproduce import (
    instabilities,
    instabilities_resnet,
    local_flows,
    non_principal,
    projection_dynamics,
    projection_prediction,
    sharp_minima,
)

COSTS = pandas.DataFrame({"ours": [1.0], "paper": [2.0]})
STEPS = np.arange(20)
H_LAMBDA = np.linspace(1.2, 2.8, 20)


def steps(**columns):
    made_up = {"network": "made up", "step": STEPS, "h": 0.1, "h_lambda": H_LAMBDA, "loss": 1.0, "loss_change": -1.0}
    return {"steps": pandas.DataFrame(made_up | columns), "cost": COSTS}


def held(module, tables):
    return [claim.held for claim in module.claims(module.SETTINGS["quick"], tables)]


@pytest.mark.parametrize("best", ["PF", "NGF"])
def test_the_flow_that_predicts_best_wins(best):
    x, now = np.linspace(-3, -1, 20), np.ones(20)
    predicted = {
        column: 1.01 * x if flow == best else 0.1 * x[::-1] for flow, column in projection_prediction.FLOWS.items()
    }
    tables = steps(projection_0=now, next_projection_0=x, **predicted)
    assert held(projection_prediction, tables)[:2] == [best == "PF"] * 2


@pytest.mark.parametrize("follows", [True, False])
def test_projections_that_follow_the_principal_flow_shrink_below_and_grow_above(follows):
    factor = 1 - H_LAMBDA if follows else -1 / (H_LAMBDA - 1)
    tables = steps(projection_0=np.ones(20), next_projection_0=factor, next_projection_0_pf=1 - H_LAMBDA)
    assert held(projection_dynamics, tables)[:2] == [follows] * 2


@pytest.mark.parametrize("told", [True, False])
def test_a_coefficient_that_is_large_where_the_loss_rises_tells_it(told):
    rises = STEPS % 5 == 0
    coefficient = np.where(rises == told, 1.0, -1.0)
    tables = steps(loss_change=np.where(rises, 1.0, -1.0), coefficient_0_real=coefficient, gradient_norm=1.0)
    assert held(instabilities, tables)[:3] == [told] * 3


def test_descent_that_rises_with_the_flow_up_agrees_with_it():
    rises = STEPS >= 10
    signs = {"": np.where(rises, 1.0, -1.0), "_down": -np.ones(20), "_up": np.ones(20)}
    changes = {f"{what}_change{flow}": sign for what in ("loss", "sharpness") for flow, sign in signs.items()}
    coefficient = np.where(rises, 1.0, -1.0)
    table = pandas.DataFrame({"network": "made up", "coefficient": coefficient, "predicted": coefficient} | changes)
    assert held(local_flows, {"changes": table, "cost": COSTS}) == [True] * 5
    turned = table.assign(coefficient=-coefficient, predicted=-coefficient)
    assert held(local_flows, {"changes": turned, "cost": COSTS})[:4] == [False] * 4


@pytest.mark.parametrize("proportional", [True, False])
def test_rises_that_grow_with_those_of_the_positive_flow_are_proportional(proportional):
    rises = np.arange(1.0, 11)
    up = rises**2 if proportional else -rises
    changes = {"loss_change": rises, "loss_change_up": up, "sharpness_change": rises, "sharpness_change_up": up}
    tables = steps(coefficient_0_real=0.0) | {"changes": pandas.DataFrame(changes)}
    assert held(instabilities_resnet, tables)[2:4] == [proportional] * 2


def test_too_few_rises_tell_nothing_of_proportion():
    names = ("loss_change", "loss_change_up", "sharpness_change", "sharpness_change_up")
    changes = pandas.DataFrame({name: [1.0, 2.0] for name in names})
    assert held(instabilities_resnet, steps(coefficient_0_real=0.0) | {"changes": changes})[2:4] == [False] * 2


@pytest.mark.parametrize(("outside", "at_edge", "expected"), [(0.01, 1.0, [True, True]), (1.0, 1.5, [False, False])])
def test_the_non_principal_term_is_compared_outside_the_edge_and_at_it(outside, at_edge, expected):
    rows = {"network": "made up", "h_lambda": [0.5, 0.9, 1.5, 2.1], "relative": [outside, outside, 10.0, at_edge]}
    assert held(non_principal, {"steps": pandas.DataFrame(rows), "cost": COSTS})[:2] == expected


@pytest.mark.parametrize("left", [True, False])
def test_a_minimum_is_left_if_descent_goes_further_at_the_higher_rate(left):
    rows = {"step": [0, 1], "gradient_norm": 0.01, "sharpness": 9.0 if left else 10.0}
    lower = pandas.DataFrame(rows | {"part": sharp_minima.LOWER, "h": 0.1, "loss": 1.0, "moved": [0.0, 1.0]})
    change = {"part": sharp_minima.HIGHER, "h": 0.22}
    change |= {"loss": [1.0, 3.0], "moved": [0.0, 5.0]} if left else {"loss": [1.0, 0.9], "moved": [0.0, 4.0]}
    tables = {
        "steps": pandas.concat([lower, pandas.DataFrame(rows | change)]),
        "start": pandas.DataFrame({"gradient_norm": [1.0]}),
        "cost": COSTS,
    }
    assert held(sharp_minima, tables)[:4] == [True, left, left, left]
