import math

import pytest

from principalflow.reproduce import EXPERIMENTS, PROFILES, Claim


@pytest.mark.parametrize(
    ("comparison", "below", "equal", "above"),
    [("<", True, False, False), ("<=", True, True, False), (">", False, False, True), (">=", False, True, True)],
)
def test_a_claim_holds_as_its_comparison_says(comparison, below, equal, above):
    assert [Claim("", value, comparison, 1.0).held for value in (0.5, 1.0, 1.5)] == [below, equal, above]


@pytest.mark.parametrize("comparison", ["<", "<=", ">", ">=", "=="])
def test_what_could_not_be_measured_does_not_hold(comparison):
    assert not Claim("", math.nan, comparison, 0.0).held


def test_a_bound_reads_as_text():
    assert Claim("", 0.0, "<", 1e-8).bound == "< 1e-08"


@pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=EXPERIMENTS)
def test_every_experiment_has_settings_for_every_profile(experiment):
    assert set(experiment.profiles) == set(PROFILES)


@pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=EXPERIMENTS)
def test_settings_can_be_compared_and_not_changed(experiment):
    for config in experiment.profiles.values():
        assert type(config).__dataclass_params__.frozen
        assert hash(config) == hash(config)
