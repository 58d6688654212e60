import pytest

from principalflow.reproduce import gradient_flow
from principalflow.reproduce._flows import DESCENT
from principalflow.reproduce._run import run

pytestmark = pytest.mark.slow  # runs experiments in the quick profile


@pytest.fixture(scope="module")
def result():
    return run("gradient-flow")


def test_all_claims_hold(result):
    assert [claim.sentence for claim in result.claims if not claim.held] == []


def test_both_paths_start_at_one_point_and_are_looked_at_at_the_same_times(result):
    descent, flow = (gradient_flow._path(result.tables, name) for name in (DESCENT, gradient_flow.NGF))
    assert descent["loss"][0] == flow["loss"][0]
    assert descent["sharpness"][0] == flow["sharpness"][0]
    assert result.tables["errors"]["error"][0] == 0
    assert descent["time"].tolist() == flow["time"].tolist() == result.tables["errors"]["time"].tolist()


def test_the_flow_never_raises_the_loss_and_descent_at_the_edge_does(result):
    descent, flow = (gradient_flow._path(result.tables, name)["loss"].diff() for name in (DESCENT, gradient_flow.NGF))
    assert flow.max() < 0
    assert descent.max() > 0


def test_the_figure_shows_error_curvature_and_loss(result):
    assert [ax.get_ylabel() for ax in result.draw().axes] == [
        r"$\|\theta_n - \theta(nh)\|$",
        r"$\lambda_0$",
        r"$E(\theta)$",
    ]
