import jax
import numpy as np
import pytest
from reproduce.cases import TRAINING

from principalflow.flows import NegativeGradient, PositiveGradient
from principalflow.flows._integrate import integrate
from principalflow.reproduce._local import DOWN, UP, agreement, local_flows
from principalflow.reproduce._trained import trained


@pytest.fixture(scope="module")
def local():
    with jax.enable_x64(True):
        return local_flows(trained(TRAINING), [0, 2])


@pytest.mark.parametrize(("name", "flow"), [(DOWN, NegativeGradient()), (UP, PositiveGradient())])
def test_the_loss_changes_as_along_the_flow(local, name, flow):
    with jax.enable_x64(True):
        run = trained(TRAINING)
        end = integrate(flow, run.objective, run.theta(2), TRAINING.learning_rate).thetas[-1]
        expected = float(run.objective.value(end)) - run.records["loss"][2]
    assert local.changes[f"loss_change_{name}"][1] == pytest.approx(expected, rel=1e-2)


def test_a_flow_for_a_part_of_a_step_goes_a_part_of_the_way(local):
    with jax.enable_x64(True):
        part = local_flows(trained(TRAINING), [0, 2], time=0.25).changes
    for name in (DOWN, UP):
        share = part[f"loss_change_{name}"] / local.changes[f"loss_change_{name}"]
        assert share.between(0.15, 0.45).all()


def test_descents_own_changes_are_those_of_its_records(local):
    with jax.enable_x64(True):
        records = trained(TRAINING).records
    np.testing.assert_allclose(local.changes["sharpness_change"], records["eigenvalue_0"].diff()[[1, 3]])
    np.testing.assert_allclose(local.changes["loss_change"], records["loss"].diff()[[1, 3]])


def test_eulers_small_steps_would_cost_more(local):
    assert 0 < local.cost < local.cost_by_paper


def test_agreement_is_the_share_of_like_signs(local):
    changes = local.changes.assign(loss_change=[-1.0, 1.0], loss_change_down=[-2.0, -0.1])
    assert agreement(changes, "loss_change", DOWN) == 0.5
    assert np.isnan(agreement(changes.assign(loss_change_down=np.nan), "loss_change", DOWN))
