"""The league of flows. The quick profile takes a minute, so here are a small run of two flows, and a made-up table."""

import jax
import numpy as np
import pandas
import pytest

from principalflow.reproduce import flow_league
from principalflow.reproduce.flow_league import EDGE, FLOWS, QUADRATIC, SMALL, Config

pytestmark = pytest.mark.slow  # runs experiments in the quick profile

SHORT = Config(
    banana_rates=(), small_rates=(0.5,), digits_samples=40, digits_h=0.01, digits_training=(1, 2, 4), steps=2
)


@pytest.fixture(scope="module")
def tables():
    with pytest.MonkeyPatch.context() as patch, jax.enable_x64(True):
        patch.setattr(flow_league, "FLOWS", ("NGF", "PF"))
        return flow_league.run(SHORT)


@pytest.fixture
def made_up():
    """All errors 0.5 but the PF's, 0.05, on a problem for each kind."""
    problems = {QUADRATIC: (2, 1.8), SMALL: (41, 0.5), EDGE: (3466, 2.0)}
    row = {
        "evaluations": 7,
        "most_products": 24,
        "converged": True,
        "cost": 7.0,
        "solver": "tsit5",
        "status": "completed",
    }
    rows = [
        {"problem": problem, "flow": flow, "step": step, "relative_error": 0.05 if flow == "PF" else 0.5, **row}
        for problem in problems
        for flow in FLOWS
        for step in range(1, 6)
    ]
    facts = [(name, size, 0.1, z, 1e-3) for name, (size, z) in problems.items()]
    columns = ["problem", "parameters", "h", "h_lambda", "tolerance"]
    return {"errors": pandas.DataFrame(rows), "problems": pandas.DataFrame(facts, columns=columns)}


def test_the_complex_flow_runs_on_3466_parameters(tables):
    assert tables["problems"].set_index("problem").loc[EDGE, "parameters"] == 3466
    rows = tables["errors"].query("problem == @EDGE and flow == 'PF'")
    assert rows["converged"].all()
    assert rows["most_products"].between(4, 48).all()


def test_the_principal_flow_is_descent_on_the_quadratic_alone(tables):
    errors = tables["errors"].query("flow == 'PF'").groupby("problem")["relative_error"].max()
    assert errors[QUADRATIC] < 2 * SHORT.tolerance  # two steps
    assert errors[SMALL] > 10 * SHORT.tolerance


def test_the_small_mlp_starts_at_the_curvature_that_its_name_says(tables):
    assert tables["problems"].set_index("problem").loc[SMALL, "h_lambda"] == pytest.approx(0.5)


def test_at_the_edge_the_claims_compare_the_errors_of_the_rivals_with_the_pfs(made_up):
    claims = [claim for claim in flow_league.claims(Config(), made_up) if claim.sentence.startswith("At the edge")]
    assert [round(claim.measured, 6) for claim in claims] == [10.0] * 6
    assert all(claim.held for claim in claims)


def test_a_rival_that_diverged_leaves_its_claim_unheld(made_up):
    errors = made_up["errors"]
    gone = (errors["flow"] == "PF, principal branch") & (errors["problem"] == EDGE) & (errors["step"] == 2)
    errors.loc[gone, "relative_error"] = np.nan
    claims = flow_league.claims(Config(), made_up)
    assert [claim.held for claim in claims if claim.sentence.startswith("At the edge")] == [True] * 5 + [False]


def test_errors_below_the_tolerance_are_alike(made_up):
    errors = made_up["errors"]
    errors.loc[errors["problem"] == EDGE, "relative_error"] *= 1e-4
    ratio = [claim.measured for claim in flow_league.claims(Config(), made_up) if "At the edge" in claim.sentence]
    assert ratio == [1.0] * 6


def test_the_figure_has_a_heat_map_for_one_step_for_five_and_for_the_cost(made_up):
    figure = flow_league.draw(Config(), made_up)
    titles = [ax.get_title() for ax in figure.axes if ax.get_title()]
    assert [title.split(",")[0] for title in titles] == [
        "error after 1 step",
        "error after 5 steps",
        "cost of the first step",
    ]


def test_the_table_to_explore_has_all_numbers(made_up):
    figures = list(flow_league.explore(Config(), made_up).values())
    assert len(figures[1].data[0].cells.values[0]) == len(made_up["errors"])
