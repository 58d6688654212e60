import numpy as np
import pytest

import principalflow as pf
from principalflow.reproduce._flows import COLOURS, DESCENT, at_steps, errors, follow, named, points, stack


@pytest.fixture(scope="module")
def table():
    return follow(pf.functions.quadratic([[1.0]]), [1.0], h=1.5, steps=3, flows=["NGF", "PF"], saves=4)


def test_every_flow_has_a_colour_of_its_own():
    flows = named(0.1, [name for name in COLOURS if name != DESCENT])
    assert len(set(COLOURS.values())) == len(flows) + 1


def test_descent_has_a_point_per_step(table):
    np.testing.assert_allclose(points(table, DESCENT)[:, 0], [1, -0.5, 0.25, -0.125])


def test_flows_have_the_points_between(table):
    assert len(points(table, "NGF")) == 3 * 4 + 1
    np.testing.assert_allclose(points(table, "NGF")[:, 0], np.exp(-1.5 * np.arange(13) / 4), rtol=1e-6)


def test_imaginary_parts_are_kept(table):
    z = points(table, "PF")[:, 0]
    np.testing.assert_allclose(z, np.exp(np.arange(13) / 4 * np.log(-0.5 + 0j)), atol=1e-7)


def test_errors_compare_whole_steps(table):
    np.testing.assert_allclose(errors(table, "NGF"), np.abs(np.exp(-1.5 * np.arange(1, 4)) - (-0.5) ** np.arange(1, 4)))
    assert len(at_steps(table, "PF")) == 4


def test_where_a_path_ended_early_errors_are_unknown(table):
    cut = table[(table["flow"] != "NGF") | (table["step"] < 1.9)]
    assert np.isnan(errors(cut, "NGF")).tolist() == [False, True, True]


def test_a_flow_at_which_the_solver_stops_is_followed_by_euler():
    paths = follow(pf.functions.banana(), [1.0, 0.7], h=0.0017, steps=1, flows=["PF, principal branch"], saves=1)
    assert paths.loc[paths["flow"] == "PF, principal branch", "solver"].iloc[0] == "euler"
    assert np.isfinite(errors(paths, "PF, principal branch")).all()


def test_stacked_tables_keep_their_keys(table):
    stacked = stack({("a", 1): table, ("b", 2): table}, "letter", "number")
    assert stacked.groupby(["letter", "number"]).size().to_dict() == {("a", 1): len(table), ("b", 2): len(table)}
