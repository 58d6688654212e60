"""What the leagues at the edge measure, on losses where it is known."""

import jax
import jax.numpy as jnp
import numpy as np
import pandas
import pytest

import principalflow as pf
from principalflow.reproduce import _league, edge_league, edge_league_optimisers
from principalflow.reproduce._league import BESIDE, Model, Race
from principalflow.reproduce.edge_league import (
    CENTRAL,
    NGF,
    OURS,
    PAIR,
    ROD,
    RUN,
    TWO_POINTS,
    TWO_STEP,
    Config,
    Setting,
)

VALLEY = Setting("valley", "other", h=1, begin=0, steps=40, model="valley", models=(NGF, TWO_STEP, PAIR))


@pytest.fixture(autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="module")
def tables():
    with jax.enable_x64(True):
        return edge_league.run(Config((VALLEY,), looks=5))


def of(tables, model):
    return tables["errors"].set_index("model").loc[model]


def race(objective, start, h, steps):
    def step(objective, theta):
        return theta - h * objective.gradient(theta)

    return Race("race", objective, jnp.asarray(start), steps, h, threshold=2 / h, step=step)


@pytest.mark.parametrize("flow", ["TwoStep", "Pair", "TwoPoint", "Rod", "Central", "NegativeGradient"])
def test_all_centres_are_those_of_the_same_time(flow):
    # Along a slope of constant steepness every model is descent itself, and the centre at t is the iterate at t + 1.
    slope = pf.Objective(lambda w: w[0] + 2 * w[1] + 0 * w[0] ** 2, np.zeros(2))
    h, kind = 0.1, getattr(pf.flows, flow)
    options = {"k": 2} if flow == "Central" else {"rank": 2} if flow == "Rod" else {}
    way = {"solver": "euler", "step": h} if flow == "Central" else {}
    model = Model(kind() if flow == "NegativeGradient" else kind(h, **options), way)
    tables = _league.follow(race(slope, [0.0, 0.0], h, 6), {flow: model}, every=2, looks=0)
    assert of(tables, flow)["distance"] < 1e-9
    assert of(tables, flow)["mean_distance"] < 1e-9
    assert of(tables, flow)["loss_error"] < 1e-9


def test_two_steps_follow_the_valley_and_the_gradient_flow_leaves_it(tables):
    assert of(tables, TWO_STEP)["distance"] < 1e-4
    assert of(tables, TWO_STEP)["sharpness_error"] < 1e-4
    assert of(tables, NGF)["distance"] > 1


def test_the_run_itself_is_one_of_the_courses(tables):
    course = tables["courses"][tables["courses"]["model"] == RUN]
    assert list(course["step"]) == list(range(0, 41, 2))
    assert course["sharpness"].notna().sum() == 5
    assert course["sharpness"].dropna().to_numpy() == pytest.approx(2, abs=0.1)
    assert course["amplitude"].iloc[0] == pytest.approx(0.05, rel=0.01)


def test_the_mean_loss_is_above_that_of_the_centre(tables):
    course = tables["courses"][tables["courses"]["model"] == TWO_STEP]
    # The curvature along x is 2.
    expected = course["loss"] + course["amplitude"] ** 2
    np.testing.assert_allclose(course["mean_loss"], expected, rtol=0.02, atol=2e-5)


def test_a_model_that_does_not_arrive_has_no_distance():
    objective = edge_league._objective(VALLEY, 0)
    model = Model(pf.flows.TwoStep(1.0), {"max_steps": 1})
    tables = _league.follow(race(objective, objective.theta, 1.0, 40), {"cut": model}, every=2, looks=2)
    assert np.isnan(of(tables, "cut")["distance"])
    assert of(tables, "cut")["status"] == "max_steps"
    whole = _league.follow(race(objective, objective.theta, 1.0, 40), {"whole": Model(pf.flows.TwoStep(1.0))}, 2, 2)
    assert of(tables, "cut")["gradients"] > of(whole, "whole")["gradients"] / 2  # of the steps that it took


def test_the_first_spike_is_the_first_high_maximum():
    course = pandas.DataFrame({"step": [0, 2, 4, 6, 8], "amplitude": [1.0, 1.2, 1.0, 9.0, 3.0]})
    assert _league.first_spike(course, course) == 6
    assert np.isnan(_league.first_spike(course[:3], course))


@pytest.fixture
def made_up():
    """A race of each kind, with NGF at 0.1, ours at 1e-5, all others at 0.01; one where h λ₀ comes to 2.5."""
    distance = {NGF: 0.1, BESIDE: 1e-7, **dict.fromkeys(OURS, 1e-5)}
    names = (*edge_league.MODELS, BESIDE)
    rows = [
        {
            "race": kind,
            "kind": kind,
            "model": name,
            "distance": distance.get(name, 0.01),
            "mean_distance": distance.get(name, 0.01),
            "sharpness_error": 1e-4,
            "spike_error": 0.0,
            "gradients": 10.0,
            "status": "inexact" if kind == "far" else "completed",
            "message": "take Pair" if kind == "far" else "",
        }
        for kind in ("established", "far", "other")
        for name in names
    ]
    courses = [
        {"race": kind, "model": RUN, "sharpness": 2.5 if kind == "far" else 2.1} for kind in ("established", "far")
    ]
    return {"errors": pandas.DataFrame(rows), "courses": pandas.DataFrame(courses)}


def held(tables):
    return {claim.sentence: claim.held for claim in edge_league.claims(Config(()), tables)}


def test_claims_hold_where_ours_are_closest(made_up):
    assert all(held(made_up).values())


@pytest.mark.parametrize(
    ("kind", "model"),
    [
        ("established", TWO_STEP),
        ("established", "two steps, order 1"),
        ("established", CENTRAL),
        ("far", PAIR),
    ],
)
def test_a_claimed_model_that_did_not_arrive_leaves_its_claim_unheld(made_up, kind, model):
    errors = made_up["errors"]
    errors.loc[(errors["kind"] == kind) & (errors["model"] == model), ["distance", "mean_distance"]] = np.nan
    assert not all(held(made_up).values())


def test_a_problem_on_which_no_model_arrived_leaves_a_claim_unheld(made_up):
    errors = made_up["errors"]
    errors.loc[errors["kind"] == "other", "distance"] = np.nan
    assert not all(held(made_up).values())


@pytest.mark.parametrize("model", [NGF, ROD, TWO_POINTS, CENTRAL])
def test_a_rival_that_is_closer_leaves_a_claim_unheld(made_up, model):
    errors = made_up["errors"]
    errors.loc[(errors["kind"] == "other") & (errors["model"] == model), "distance"] = 1e-6
    assert not all(held(made_up).values())


def test_a_divergence_without_a_word_leaves_a_claim_unheld(made_up):
    made_up["errors"]["status"] = "completed"
    assert not all(held(made_up).values())


@pytest.mark.slow
def test_four_optimisers_are_followed(monkeypatch):
    monkeypatch.setattr(edge_league_optimisers, "ORDERS", range(3))
    rates = tuple((name, rate / 10, 20) for name, rate, _ in edge_league_optimisers.Config().rates)
    config = edge_league_optimisers.Config(rates, samples=40, hidden=(4,), steps=8, every=2, looks=3)
    tables = edge_league_optimisers.run(config)
    errors = tables["errors"]
    assert set(errors["race"]) == {"heavy ball", "Nesterov", "RMSProp", "Adam"}
    assert errors["distance"].max() < 0.1
    claims = edge_league_optimisers.claims(config, tables)
    assert len(claims) == 12
    assert all(np.isfinite(claim.measured) for claim in claims)
    assert "distance over price" in {ax.get_title() for ax in edge_league_optimisers.draw(config, tables).axes}
