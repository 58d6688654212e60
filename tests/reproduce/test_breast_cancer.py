import jax
import jax.numpy as jnp
import numpy as np
import pytest

from principalflow.reproduce import breast_cancer
from principalflow.reproduce._tracking import PRINCIPAL, medians
from principalflow.reproduce.breast_cancer import EDGE, STABLE, Config, _logistic

pytestmark = pytest.mark.slow  # runs experiments in the quick profile

# One hidden unit instead of ten.
CONFIG = Config(hidden=1, starts=1, steps=1, euler_steps=20)


@pytest.fixture(scope="module")
def errors():
    with jax.enable_x64(True):
        return breast_cancer.run(CONFIG)["errors"]


def test_starts_are_in_the_area_that_they_are_called_after(errors):
    assert (errors.loc[errors["area"] == STABLE, "h_lambda"] < 2).all()
    assert (errors.loc[errors["area"] == EDGE, "h_lambda"] >= 2).all()
    assert set(errors["area"]) == {STABLE, EDGE}


def test_in_the_stable_area_the_flows_are_in_the_order_of_their_order(errors):
    stable = medians(errors[errors["area"] == STABLE]).loc[1]
    assert stable["PF"] < stable["IGR flow"] < stable["NGF"]


def test_at_the_edge_the_branches_are_two_flows(errors):
    edge = medians(errors[errors["area"] == EDGE]).loc[1]
    assert edge["PF"] != edge[PRINCIPAL]


def test_one_output_gives_the_logistic_loss():
    logits, labels = jnp.array([[-1.0], [2.0]]), jnp.array([0, 1])
    expected = np.mean([np.log1p(np.exp(-1.0)), np.log1p(np.exp(-2.0))])
    np.testing.assert_allclose(_logistic(lambda x: x, (logits, labels)), expected, rtol=1e-12)


def test_an_area_without_starts_leaves_its_claims_unmeasured(errors):
    tables = {"errors": errors[errors["area"] == STABLE]}
    claims = breast_cancer.claims(CONFIG, tables)
    assert [np.isnan(claim.measured) for claim in claims] == [False, True, True]
    assert "none" in claims[1].note
    assert breast_cancer.draw(CONFIG, tables).axes[1].get_title() == "edge of stability: no starts"
