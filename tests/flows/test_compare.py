import jax.numpy as jnp
import numpy as np
import pandas
import pytest

import principalflow as pf

H = 0.0008
START = jnp.array([1.3, 1.5])
FLOWS = {"ngf": pf.flows.NegativeGradient(), "pf": pf.flows.Principal(H)}


@pytest.fixture(scope="module")
def table():
    return pf.compare(pf.functions.banana(), START, H, 3, FLOWS, rtol=1e-9)


def rows(table, flow, kind):
    return table[(table["flow"] == flow) & (table["kind"] == kind)]


def test_there_is_one_row_per_flow_step_and_kind(table):
    assert len(table) == 2 * 3 * 2
    assert list(rows(table, "pf", "local")["step"]) == [1, 2, 3]
    assert set(table["status"]) == {"completed"}


def test_global_errors_are_distances_from_the_iterates(table):
    banana = pf.functions.banana()
    path = pf.descend(banana, START, H, 3)
    solution = pf.integrate(FLOWS["ngf"], banana, START, 3 * H, rtol=1e-9, atol=1e-12, saves=3)
    expected = np.linalg.norm(solution.thetas - path.thetas, axis=1)[1:]
    np.testing.assert_allclose(rows(table, "ngf", "global")["error"], expected, rtol=1e-6)
    lengths = np.linalg.norm(np.diff(path.thetas, axis=0), axis=1)
    np.testing.assert_allclose(rows(table, "ngf", "global")["relative_error"], expected / lengths, rtol=1e-6)


def test_local_errors_restart_at_each_iterate(table):
    banana = pf.functions.banana()
    path = pf.descend(banana, START, H, 3)
    solution = pf.integrate(FLOWS["pf"], banana, path.thetas[1], H, rtol=1e-9, atol=1e-12)
    expected = np.linalg.norm(solution.thetas[-1] - path.thetas[2])
    np.testing.assert_allclose(rows(table, "pf", "local")["error"].iloc[1], expected, rtol=1e-6)


def test_the_first_step_is_the_same_either_way(table):
    for flow in FLOWS:
        first = [rows(table, flow, kind)["error"].iloc[0] for kind in ("local", "global")]
        np.testing.assert_allclose(*first, rtol=1e-5)


def test_the_tolerance_is_relative_to_descents_step():
    # A step of 1e-6 of theta: with a tolerance relative to theta its error of 1e-9 would be lost.
    bowl, h = pf.functions.quadratic([[1.0]], b=[-1.0]), 1e-3
    start = [1.0 + 1e-3]
    table = pf.compare(bowl, start, h, 1, {"ngf": pf.flows.NegativeGradient()})
    exact = 1e-3 * (np.exp(-h) - (1 - h))
    np.testing.assert_allclose(table["error"], exact, rtol=1e-2)


def test_where_descent_diverges_the_rows_say_so():
    flows = {"ngf": pf.flows.NegativeGradient(), "bea": pf.flows.BackwardError(0.05, order=3)}
    table = pf.compare(pf.functions.banana(), START, 0.05, 12, flows)
    late = table[table["step"] == 12]
    assert set(late["status"]) == {"diverged"}
    assert set(late["message"]) == {"descent diverged"}
    assert np.all(np.isnan(late["error"]))


def test_a_flow_that_gets_stuck_is_nan_from_there_on():
    h = 0.0017
    flows = {"pf": pf.flows.Principal(h, branch="principal")}
    table = pf.compare(pf.functions.banana(), START, h, 2, flows, max_steps=200)
    stuck = rows(table, "pf", "global")
    assert set(stuck["status"]) <= {"stuck", "max_steps"}
    assert np.all(np.isnan(stuck["error"]))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(flows=[]), "flows must be one or more flows"),
        (dict(flows=[pf.flows.IGR(0.1), pf.flows.IGR(0.2)]), "of different names"),
        (dict(flows=["ngf"]), "flows must be a flow"),
        (dict(h=0), "h must be a finite number above 0"),
        (dict(steps=0), "steps must be a whole number of at least 1"),
        (dict(rtol=-1), "rtol must be a number above 0 and below 1"),
        (dict(rtol=2.0), "rtol must be a number above 0 and below 1, got 2.0"),
        (dict(flows=3), "flows must be a flow"),
        (dict(flows={"ngf": pf.flows.NegativeGradient}), "flows must be a flow, not its class"),
        (dict(kinds=[]), "kinds must be one or more of 'local' and 'global'"),
        (dict(kinds=None), "kinds must be one or more of"),
        (dict(kinds=["nearby"]), "kinds must be one of 'local', 'global', got 'nearby'"),
        (dict(h=1e308), "h must be a learning rate from"),
        (dict(objective=None), "objective must be a principalflow.Objective"),
        (dict(theta=np.ones(2, np.float16)), "theta must be in single or double precision"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    defaults = {"objective": pf.functions.banana(), "theta": START, "h": H, "steps": 1, "flows": FLOWS}
    with pytest.raises(ValueError, match=message):
        pf.compare(**(defaults | arguments))


def test_one_kind_needs_no_list():
    table = pf.compare(pf.functions.banana(), START, H, 1, pf.flows.IGR(H), kinds="local")
    assert list(table["kind"]) == ["local"]


def test_a_comparison_beyond_memory_is_refused_beforehand(monkeypatch):
    monkeypatch.setattr("principalflow._checks._available_memory", lambda: 2**28)
    with pytest.raises(ValueError, match="steps asks for 100000001 iterates of 2 parameters"):
        pf.compare(pf.functions.banana(), START, H, 10**8, pf.flows.IGR(H))


def test_where_descent_does_not_move_the_missing_relative_error_is_explained():
    table = pf.compare(pf.functions.banana(), [1.0, 1.0], H, 1, pf.flows.IGR(H))
    assert list(table["error"]) == [0.0, 0.0]
    assert np.all(np.isnan(table["relative_error"]))
    assert set(table["status"]) == {"completed"}
    assert table["message"].str.startswith("descent doesn't move").all()


def test_the_parameters_that_the_objective_was_made_with_will_do():
    params = {"a": jnp.array([1.0, 2.0]), "b": jnp.array(0.5)}
    objective = pf.Objective(lambda p: jnp.sum(p["a"] ** 2) + p["b"] ** 4, params)
    tables = [
        pf.compare(objective, theta, 0.1, 1, [pf.flows.NegativeGradient()]) for theta in (params, objective.theta)
    ]
    pandas.testing.assert_frame_equal(*tables)


def test_flows_of_two_steps_are_compared_at_odd_steps_too():
    bowl = pf.functions.quadratic(jnp.diag(jnp.array([1.96, 0.1])))
    flows = [pf.flows.TwoStep(1.0, order=8), pf.flows.Pair(1.0, orders=(8, 8))]
    table = pf.compare(bowl, [1.0, 1.0], 1.0, 4, flows, rtol=1e-8)
    of_all = table[table["kind"] == "global"].pivot_table(index="step", columns="flow", values="relative_error")
    assert np.all(of_all["TwoStep"] < 1e-3)
    assert np.all(of_all["Pair"] < 0.05)
    local = table[(table["kind"] == "local") & (table["flow"] == "TwoStep")]
    assert local["error"].isna().all()
    assert local["message"].str.contains("several steps").all()


def test_central_flows_are_followed_by_eulers_steps_of_their_own():
    bowl = pf.functions.quadratic([[1.0]])
    table = pf.compare(bowl, [1.0], 1.0, 2, {"central": pf.flows.Central(1.0, k=1)}, step=0.01)
    assert set(table["solver"]) == {"euler"}
    assert set(table["evaluations"]) == {4}
