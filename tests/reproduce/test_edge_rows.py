"""What the rows at the edge of stability claim, on made-up steps."""

import numpy as np
import pandas
import pytest

from principalflow.reproduce import instabilities, local_flows, projection_dynamics, projection_prediction

COSTS = pandas.DataFrame({"ours": [1.0], "paper": [2.0]})
STEPS = np.arange(20)
H_LAMBDA = np.linspace(1.2, 2.8, 20)


def steps(**columns):
    made_up = {"network": "made up", "step": STEPS, "h": 0.1, "h_lambda": H_LAMBDA, "loss": 1.0, "loss_change": -1.0}
    return {"steps": pandas.DataFrame(made_up | columns), "cost": COSTS}


def held(module, tables):
    return [claim.held for claim in module.claims(module.EXPERIMENT.profiles["quick"], tables)]


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
