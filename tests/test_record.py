"""What a recorded run of descent holds."""

import jax.numpy as jnp
import numpy as np
import pytest
from cases import network, outputs, regression
from sklearn.datasets import load_digits

import principalflow as pf

NETWORK = regression(samples=40, sizes=(8, 30, 20, 3))  # 953 parameters


def half_square_loss(params, batch):
    inputs, targets = batch
    return jnp.mean(jnp.sum((outputs(params, inputs) - targets) ** 2, axis=1)) / 2


@pytest.fixture(scope="module")
def run():
    return pf.descend(NETWORK, NETWORK.theta, h=0.05, steps=10, record=pf.Record(every=4, k=3))


@pytest.fixture(scope="module")
def edge():
    """The last 200 of 1,300 steps of a network on digits, where the largest curvature is about 2/h."""
    images, labels = load_digits(return_X_y=True)
    data = (images[:300] / 16, np.eye(10)[labels[:300]])
    digits = pf.Objective(half_square_loss, network([64, 24, 24, 10]), data)
    h = 0.115
    start = pf.descend(digits, digits.theta, h, 1100).thetas[-1]
    return h, pf.descend(digits, start, h, 200, record=pf.Record(every=2)).records


def test_recording_does_not_change_the_run(run):
    plain = pf.descend(NETWORK, NETWORK.theta, h=0.05, steps=10)
    np.testing.assert_allclose(run.thetas, plain.thetas, rtol=1e-12)
    np.testing.assert_allclose(run.losses, plain.losses, rtol=1e-12)
    assert run.message == plain.message == "completed 10 steps"
    assert plain.records is None


def test_records_are_taken_every_so_many_steps(run):
    assert run.records["step"].tolist() == [0, 4, 8]
    np.testing.assert_array_equal(run.records["loss"], run.losses[::4])


def test_a_record_is_the_analysis_at_its_step(run):
    s = pf.stability.analyse(NETWORK, run.thetas[4], h=0.05, k=3, tol=1e-6)
    row = run.records.iloc[1]
    for i in range(3):
        np.testing.assert_allclose(row[f"eigenvalue_{i}"], s.eigenvalues[i], rtol=1e-3)  # a square of the tolerance
    np.testing.assert_allclose(row["drift_estimate"], s.drift, rtol=1e-9)
    np.testing.assert_allclose(row["loss_change_discrete"], s.loss_change.total_discrete, rtol=1e-6)


def test_measured_columns_are_those_of_the_next_iterate(run):
    np.testing.assert_allclose(run.records["loss_change"], (run.losses[1:] - run.losses[:-1])[::4], rtol=1e-9)
    ratio = pf.stability.relative_progress(NETWORK, run.thetas[8], 0.05)
    np.testing.assert_allclose(run.records["relative_progress"].iloc[2], ratio, rtol=1e-9)


def test_drift_is_measured_on_request():
    path = pf.descend(NETWORK, NETWORK.theta, h=0.01, steps=1, record=pf.Record(k=1, flow=pf.flows.NegativeGradient()))
    np.testing.assert_allclose(path.records["drift"], path.records["drift_estimate"], rtol=0.3)


def test_a_run_that_diverges_keeps_what_it_recorded():
    bowl = pf.functions.quadratic(np.diag([1.0, 10.0]))
    path = pf.descend(bowl, [1.0, 1.0], h=1e60, steps=50, record=pf.Record())
    assert path.status == "diverged"
    assert path.message == "diverged: step 3 left the finite numbers"
    assert path.records["step"].tolist() == [0, 1, 2]
    assert len(path.losses) == 3


def test_derivatives_that_are_not_finite_end_the_run():
    roots = pf.Objective(lambda theta: jnp.sum(jnp.sqrt(theta)), jnp.ones(2))
    path = pf.descend(roots, [1.0, 1.0], h=2.0, steps=3, record=pf.Record())  # the first step arrives at zero
    assert path.status == "diverged"
    assert path.message.startswith("diverged: at step 1, the gradient at theta must be finite")
    assert path.records["step"].tolist() == [0]


def test_the_rate_may_change_along_a_recording():
    take = pf.Record(k=3).start(NETWORK)
    take(NETWORK.theta, 0.01)
    row = take(NETWORK.theta, 0.05)
    s = pf.stability.analyse(NETWORK, NETWORK.theta, h=0.05, k=3, tol=1e-6)
    assert row["learning_rate"] == 0.05
    np.testing.assert_allclose(row["loss_change_discrete"], s.loss_change.total_discrete, rtol=1e-6)


def test_a_state_whose_arrays_do_not_fit_each_other_is_refused(run):
    recording = pf.Record(k=3).start(NETWORK)
    recording(run.thetas[0], 0.05)
    with pytest.raises(ValueError, match=r"^trail must be one that a call returned"):
        recording.restore({**recording.state, "probed": np.ones(2)})


def test_a_restored_recording_goes_on_bit_for_bit(run):
    one, other = pf.Record(k=3).start(NETWORK), pf.Record(k=3).start(NETWORK)
    assert one.state == {}
    one(run.thetas[0], 0.05)
    other.restore({name: jnp.asarray(np.array(array)) for name, array in one.state.items()})  # as from a file
    assert other(run.thetas[4], 0.05) == one(run.thetas[4], 0.05)


def test_a_recording_without_its_state_would_spend_more(run):
    restored, fresh = pf.Record(k=3).start(NETWORK), pf.Record(k=3).start(NETWORK)
    restored(run.thetas[3], 0.05)
    assert restored(run.thetas[4], 0.05)["products"] < fresh(run.thetas[4], 0.05)["products"]


def test_progress_is_shown_on_the_error_stream_on_request(capsys):
    pf.descend(pf.functions.banana(), [1.3, 1.5], 0.0005, 3, record=pf.Record(), progress=True)
    printed = capsys.readouterr()
    assert "3/3" in printed.err
    assert not printed.out


def test_progress_is_silent_where_there_is_no_terminal(capsys):
    pf.descend(pf.functions.banana(), [1.3, 1.5], 0.0005, 3, record=pf.Record())
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("record", [10, "all", pf.Record])
def test_what_is_no_record_is_refused(record):
    with pytest.raises(ValueError, match=r"record must be a principalflow.Record, such as Record\(every=10\)"):
        pf.descend(pf.functions.banana(), [1.3, 1.5], 0.0005, 3, record=record)


def test_an_interrupted_run_keeps_what_it_recorded():
    class Interrupted(pf.Record):
        def start(self, objective):
            take, calls = super().start(objective), []

            def interrupted(theta, h):
                calls.append(theta)
                if len(calls) == 3:
                    raise KeyboardInterrupt
                return take(theta, h)

            return interrupted

    path = pf.descend(pf.functions.banana(), [1.3, 1.5], 0.0005, 9, record=Interrupted(every=2))
    assert path.status == "interrupted"
    assert path.message == "interrupted at step 3 of 9"
    assert path.records["step"].tolist() == [0, 2]
    assert len(path.losses) == len(path.thetas) == 4


def test_a_loss_that_rose_is_mentioned():
    path = pf.descend(pf.functions.quadratic([[1.0]]), [1.0], h=2.5, steps=2)
    assert path.message == "completed 2 steps; the loss rose from 0.5 to 2.531"


@pytest.mark.parametrize(
    "arguments", [dict(every=0), dict(k=0), dict(tol=0), dict(tol=1), dict(flow=pf.flows.NegativeGradient)]
)
def test_bad_arguments_are_refused(arguments):
    with pytest.raises(ValueError, match="must be"):
        pf.Record(**arguments)


@pytest.mark.slow
def test_a_record_costs_at_most_12_products_on_average(edge):
    _, records = edge
    assert records["products"].iloc[1:].mean() <= 12
    assert records["converged"].all()


@pytest.mark.slow
def test_the_edge_is_reached(edge):
    h, records = edge
    assert 1.9 < h * records["eigenvalue_0"].mean() < 2.1


@pytest.mark.parametrize("other", ["ngf", "igr"])
@pytest.mark.slow
def test_at_the_edge_the_principal_flow_predicts_the_projection_best(edge, other):
    _, records = edge
    errors = {
        flow: np.median(np.abs(records[f"next_projection_0_{flow}"] - records["next_projection_0"]))
        for flow in ("pf", other)
    }
    assert errors["pf"] < 0.5 * errors[other]


@pytest.mark.parametrize("theta", [[1.0, 1.0], (1, 1), np.ones(2, np.float32)])
def test_a_record_takes_any_numbers_for_theta(theta):
    assert pf.Record(k=1).start(pf.functions.banana())(theta, 0.001)["gradient_norm"] == 0


def test_a_record_of_what_is_no_objective_is_refused():
    with pytest.raises(ValueError, match=r"objective must be a principalflow.Objective"):
        pf.Record().start("banana")


def test_a_ratio_of_progress_that_is_only_rounding_is_not_recorded():
    high = pf.Objective(lambda p: 1e6 + jnp.sum(p**2), jnp.full(1, 1e-6))
    row = pf.Record().start(high)(high.theta, 0.1)
    assert np.isnan(row["relative_progress"])
    assert np.isnan(pf.stability.relative_progress(high, high.theta, 0.1))


def test_options_may_be_any_whole_and_real_numbers():
    record = pf.Record(every=np.uint8(2), k=np.int64(1), tol=jnp.array(0.01))
    path = pf.descend(pf.functions.quadratic([[1.0]]), [1.0], h=1.5, steps=4, record=record)
    assert path.records["step"].tolist() == [0, 2, 4]


def test_the_predicted_projections_are_those_of_the_flows():
    objective, h = pf.functions.quadratic(np.diag([5.0, 2.0, 0.3])), 0.5
    row = pf.Record(k=3).start(objective)(np.array([1.0, -2.0, 3.0]), h)
    lambdas, projections = ([row[f"{name}_{i}"] for i in range(3)] for name in ("eigenvalue", "projection"))
    flows = {"ngf": pf.flows.NegativeGradient(), "igr": pf.flows.IGR(h), "pf": pf.flows.Principal(h)}
    for name, flow in flows.items():
        expected = pf.stability.predict_projection(flow, lambdas, projections, h).real
        found = [row[f"next_projection_{i}_{name}"] for i in range(3)]
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
