import jax
import pytest

from principalflow import drift
from principalflow.reproduce import validating_bea
from principalflow.reproduce._edge import MLP, unrecorded
from principalflow.training import objective as objective_of

pytestmark = pytest.mark.slow  # runs experiments in the quick profile

NETWORK = unrecorded(MLP["quick"], 10, samples=200, width=0.05, learning_rate=0.1, steps=40)
CONFIG = validating_bea.Config((NETWORK,))


@pytest.fixture(scope="module")
def tables():
    with jax.enable_x64(True):
        return validating_bea.run(CONFIG)


def test_far_below_the_edge_each_order_is_nearer_to_descent(tables):
    last = tables["errors"].query("step == 40").set_index("flow")["error"]
    assert last["third-order flow"] < last["IGR flow"] < last["NGF"]


def test_the_error_is_the_drift_of_a_step_from_that_iterate(tables):
    first = tables["errors"].query("step == 0 and flow == 'NGF'").iloc[0]
    length = first["error"] / first["relative_error"]
    with jax.enable_x64(True):
        objective = objective_of(NETWORK)
        expected = drift.per_iteration(objective, objective.theta, h=0.1)
    assert first["error"] == pytest.approx(expected, abs=1e-3 * length)  # ten times the solver's tolerance


def test_every_look_has_all_three_flows_and_one_sharpness(tables):
    looks = tables["errors"].groupby("step")
    assert list(looks.groups) == [0, 10, 20, 30, 40]
    assert all(tuple(rows["flow"]) == validating_bea.FLOWS and rows["sharpness"].nunique() == 1 for _, rows in looks)


def test_where_the_order_of_the_flows_is_turned_round_the_claims_do_not_hold(tables):
    errors = tables["errors"]
    swap = {"NGF": "third-order flow", "third-order flow": "NGF"}
    turned = {"errors": errors.assign(flow=errors["flow"].replace(swap))}
    held, not_held = (validating_bea.claims(CONFIG, of) for of in (tables, turned))
    assert [claim.held for claim in held[:3]] == [True, True, True]
    assert [claim.held for claim in not_held[:3]] == [False, False, False]


def test_the_figure_has_a_row_of_three_panels_for_each_network(tables):
    assert len(validating_bea.draw(CONFIG, tables).axes) == 3
