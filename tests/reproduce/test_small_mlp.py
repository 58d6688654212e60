import jax
import pytest

from principalflow.reproduce import small_mlp
from principalflow.reproduce._tracking import FLOWS, PRINCIPAL, TRACKED, medians
from principalflow.reproduce.small_mlp import Config

pytestmark = pytest.mark.slow  # runs experiments in the quick profile

# One network, one step, coarse Euler steps: what is stated here needs no more.
CONFIG = Config(starts=1, steps=1, euler_steps=20)


@pytest.fixture(scope="module")
def errors():
    with jax.enable_x64(True):
        return small_mlp.run(CONFIG)["errors"]


def test_the_papers_rates_are_in_its_three_regimes(errors):
    low, middle, high = (errors.loc[errors["case"] == f"h = {h}", "h_lambda"].iloc[0] for h in CONFIG.rates)
    assert low < 1 < middle < 2 < high


def test_every_flow_is_followed_in_every_regime(errors):
    assert errors.groupby("flow")["case"].nunique().to_dict() == dict.fromkeys(FLOWS, 6) | {TRACKED: 2}
    assert errors["error"].notna().all()
    assert set(errors.loc[errors["flow"].isin(["NGF", "IGR flow"]), "solver"]) == {"tsit5"}


def test_in_the_stable_regime_the_flows_are_in_the_order_of_their_order(errors):
    stable = medians(errors[errors["case"] == "h λ₀ = 0.5"]).loc[1]
    assert stable["PF"] < stable["IGR flow"] < stable["NGF"]


def test_below_h_lambda_1_both_branches_are_one_flow(errors):
    stable = medians(errors[errors["h_lambda"] < 1])
    assert (stable["PF"] == stable[PRINCIPAL]).all()


def test_after_one_step_the_continuous_branch_is_nearest_in_all_regimes(errors):
    held = {claim.sentence: claim.held for claim in small_mlp.claims(CONFIG, {"errors": errors})}
    assert all(held[sentence] for sentence in held if "nearest to descent after one step" in sentence)


def test_the_figure_has_a_panel_for_each_rate(errors):
    assert len(small_mlp.draw(CONFIG, {"errors": errors}).axes) == 6
