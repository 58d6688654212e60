"""What following a flow costs, counted."""

import numpy as np
import pytest

import principalflow as pf
from principalflow.reproduce import _cost
from principalflow.reproduce._cost import COMPLETED, STUCK, measure
from principalflow.reproduce._flows import named
from principalflow.reproduce._solve import EULER

H = 0.9


@pytest.fixture(scope="module")
def valley():
    return pf.functions.quadratic([[2.0, 0.0], [0.0, 0.02]])


@pytest.fixture(scope="module")
def table(valley):
    flows = named(H, ("NGF", "IGR flow", "third-order flow", "order 3", "PF"))
    return measure(valley, [1.0, 1.0], H, 2, flows, 1e-4, 100, 10).set_index(["flow", "step"])


def test_errors_are_those_of_compare(valley, table):
    reference = pf.compare(valley, [1.0, 1.0], H, 2, named(H, ("NGF",)), kinds=("global",))
    # each is exact to its tolerance, 1e-4 of a step here, over two steps
    np.testing.assert_allclose(table.loc["NGF", "relative_error"], reference["relative_error"], atol=1e-3)


def test_the_principal_flow_is_descent_within_the_tolerance(table):
    assert table.loc["PF", "relative_error"].max() < 2e-4  # two steps


def test_a_cost_is_evaluations_times_the_price_of_a_field(table):
    # Gradients, products and contractions; a dense principal field of two parameters is a gradient and two products
    # in complex numbers.
    for flow, price in {"NGF": 1, "IGR flow": 1 + 2, "third-order flow": 1 + 2 * 2 + 4, "order 3": 4, "PF": 20}.items():
        rows = table.loc[flow]
        np.testing.assert_array_equal(rows["cost"], price * rows["evaluations"])


def test_a_flow_that_is_stuck_ends(valley):
    stuck = measure(valley, [1.0, 1.0], H, 2, named(H, ("PF",)), 1e-4, max_evaluations=10, euler_steps=50)
    assert stuck["status"].tolist() == [STUCK]
    assert stuck["evaluations"].tolist() == [10]
    assert np.isnan(stuck["relative_error"]).all()


def test_where_the_principal_branch_is_stuck_eulers_steps_go_on_for_two_steps(valley):
    flows = named(H, ("PF, principal branch",))
    stuck = measure(valley, [1.0, 1.0], H, 4, flows, 1e-4, max_evaluations=40, euler_steps=200)
    assert stuck["status"].tolist() == [EULER, EULER, STUCK]
    assert stuck["evaluations"].tolist() == [10 + 200, 200, 0]
    # log(1 - h lambda) = -0.22 + i pi, squared over twice the number of steps: the relative error of Euler's method
    assert stuck["relative_error"].iloc[0] < 0.03


def test_where_eulers_steps_run_away_a_flow_ends(valley, monkeypatch):
    monkeypatch.setattr(_cost, "euler", lambda field, theta, times, steps: [theta])
    stuck = measure(valley, [1.0, 1.0], H, 2, named(H, ("PF, principal branch",)), 1e-4, 4, euler_steps=20)
    assert stuck["status"].tolist() == [STUCK]
    assert np.isnan(stuck["relative_error"]).all()


def test_a_flow_that_is_followed_within_its_tolerance_is_completed(table):
    assert set(table["status"]) == {COMPLETED}
