"""What a monitor measures, says and spends; `pytorch/test_monitor.py` has the same for PyTorch."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import network, regression
from hypothesis import given
from hypothesis import strategies as st

import principalflow as pf
from principalflow.monitor import Monitor, Threshold, Watch

NETWORK = regression(sizes=(2, 4, 1))
PARAMS = network((2, 4, 1))
BOWL = pf.functions.quadratic(jnp.diag(jnp.array([1.0, 4.0])))


def watch_bowl(rates, **options):
    """A monitor of descent on the bowl, whose largest curvature is 4, at these rates."""
    theta, monitor = jnp.ones(2), Monitor(BOWL, **{"k": 1, "every": 1, **options})
    for step, h in enumerate(rates):
        monitor.observe(step, theta, h)
        theta = theta - h * BOWL.gradient(theta)
    return monitor


def sentences(monitor, word):
    return [(step, sentence) for step, sentence in monitor.events if word in sentence]


def test_a_row_is_the_record_of_a_step_of_descent():
    row = Monitor(NETWORK, k=2).observe(7, PARAMS, 0.1)
    assert row == {"step": 7, **pf.Record(k=2).start(NETWORK)(NETWORK.theta, 0.1), "threshold": 20.0}


def test_values_are_those_of_the_dense_hessian():
    row = Monitor(NETWORK, k=3).observe(0, PARAMS, 0.1)
    values = np.linalg.eigvalsh(NETWORK.hessian(NETWORK.theta))[::-1]
    np.testing.assert_allclose([row[f"eigenvalue_{i}"] for i in range(3)], values[:3], rtol=1e-12)
    gradient = NETWORK.gradient(NETWORK.theta)
    after = NETWORK.value(NETWORK.theta - 0.1 * gradient)
    np.testing.assert_allclose(row["loss_change"], after - NETWORK.value(NETWORK.theta), rtol=1e-12)


def test_flat_parameters_give_the_same_row():
    assert Monitor(NETWORK).observe(0, NETWORK.theta, 0.1) == Monitor(NETWORK).observe(0, PARAMS, 0.1)


def test_a_measurement_is_due_every_so_many_steps():
    monitor = watch_bowl([0.1] * 8, every=3)
    assert [row["step"] for row in monitor.rows] == [0, 3, 6]
    assert monitor.observe(2, jnp.ones(2), 0.1)["step"] == 2  # counting anew


def test_where_nothing_is_due_nothing_is_looked_at():
    monitor = watch_bowl([0.1])
    monitor._every = 10
    assert monitor.observe(1, params=object(), learning_rate=object()) is None


def test_a_rate_of_zero_leaves_the_measurement_to_the_next_step():
    monitor = watch_bowl([0.0, 0.0, 0.1], every=10)
    assert [row["step"] for row in monitor.rows] == [2]


def test_crossings_of_the_threshold_are_told_once_each_way():
    monitor = watch_bowl([0.3, 0.4, 0.6, 0.7, 0.4, 0.3])
    assert sentences(monitor, "lambda_0") == [
        (2, "lambda_0 crossed 2/h at step 2: 4 against 3.333"),
        (4, "lambda_0 fell below 2/h at step 4: 4 against 5"),
    ]


def test_a_start_above_the_threshold_is_told():
    assert watch_bowl([0.8]).events[0] == (0, "lambda_0 is above 2/h at step 0: 4 against 2.5")


def test_momentum_moves_the_threshold():
    monitor = watch_bowl([0.9, 0.999, 1.001], momentum=0.999)  # 2(1+m)/h = 4 at h = 0.9995
    told = "lambda_0 crossed 2(1+m)/h, the threshold with momentum m = 0.999, at step 2: 4 against 3.994"
    assert sentences(monitor, "lambda_0") == [(2, told)]


@pytest.mark.parametrize(("nesterov", "dampening"), [(False, 0.0), (True, 0.0), (False, 0.7)])
@given(momentum=st.floats(0.01, 0.99), h=st.floats(0.01, 1))
def test_the_thresholds_of_momentum_are_where_its_iteration_is_at_the_edge(nesterov, dampening, momentum, h):
    sharpness, m = Threshold.of(momentum, nesterov, dampening).times_h / h, momentum
    velocity = np.array([(1 - dampening) * sharpness, m])  # v <- m v + (1 - d) g
    direction = m * velocity + np.array([sharpness, 0.0]) if nesterov else velocity
    iteration = np.stack([np.array([1.0, 0.0]) - h * direction, velocity])
    np.testing.assert_allclose(np.max(np.abs(np.linalg.eigvals(iteration))), 1, rtol=1e-6)  # a double root may split


def test_a_predicted_rise_and_its_end_are_told_and_come_true():
    monitor = watch_bowl([0.45, 0.6, 0.6, 0.3])
    assert [step for step, _ in sentences(monitor, "predicted")] == [1, 3]
    first = monitor.rows[1]
    assert first["loss_change"] > 0
    expected = f"the next step is predicted to raise the loss (by {first['loss_change']:.2g}, from {first['loss']:.4g})"
    assert first["events"][1] == expected  # exact on a quadratic


def test_eigenpairs_that_did_not_converge_are_told():
    monitor = watch_bowl([0.1])
    take = monitor._take
    monitor._take = lambda theta, h: take(theta, h) | {"converged": False, "residual_0": 0.25}
    for step in (1, 2):
        monitor.observe(step, jnp.ones(2), 0.1)
    assert monitor.events == [(1, "the eigenpairs did not converge at step 1: they are known to 0.25 only")]


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_parameters_that_are_not_finite_are_told_once(value):
    monitor = watch_bowl([0.1])
    rows = [monitor.observe(step, jnp.full(2, value), 0.1) for step in (1, 2)]
    assert monitor.events == [(1, "the loss is not finite at step 1")]
    assert [set(row) for row in rows] == [
        {"step", "learning_rate", "loss", "events"},
        {"step", "learning_rate", "loss"},
    ]
    assert "left the finite numbers" in monitor.summary()


def test_a_start_that_is_not_finite_raises_nothing():
    monitor = Monitor(BOWL)
    assert math.isnan(monitor.observe(0, jnp.full(2, np.nan), 0.1)["loss"])
    assert monitor.summary() == "Nothing but the loss could be measured: the loss is not finite at step 0."


def test_derivatives_that_are_not_finite_are_told():
    roots = pf.Objective(lambda theta: jnp.sum(jnp.sqrt(theta)), jnp.ones(2))
    monitor = Monitor(roots, every=1)
    monitor.observe(0, jnp.ones(2), 0.1)
    row = monitor.observe(1, jnp.zeros(2), 0.1)
    assert row["loss"] == 0
    assert row["events"][0].startswith(
        "only the loss could be measured at step 1: the gradient at theta must be finite"
    )


def test_numbers_close_to_overflow_raise_nothing():
    monitor = Monitor(BOWL, every=1)
    for step, size in enumerate([1e80, 1e150, 1e200, 1e307]):
        monitor.observe(step, jnp.full(2, size), 1e10)
    assert len(monitor.rows) == 4


def test_a_rate_that_is_not_finite_is_told():
    assert watch_bowl([np.nan]).events == [
        (0, "only the loss could be measured at step 0: the learning rate is not finite")
    ]


def test_later_errors_of_the_numbers_are_told_and_not_raised():
    monitor = watch_bowl([0.1])

    def asymmetric(theta, h):
        raise ValueError("product must be symmetric")

    monitor._take = asymmetric
    monitor.observe(1, jnp.ones(2), 0.1)
    assert monitor.events == [(1, "only the loss could be measured at step 1: product must be symmetric")]


def test_rows_of_different_columns_make_one_table():
    monitor = watch_bowl([0.1, 0.6])
    monitor.observe(2, jnp.full(2, np.nan), 0.1)
    columns = monitor.table()
    assert columns["step"].tolist() == [0, 1, 2]
    assert columns["regime_0"].tolist() == ["real stable", "unstable", ""]
    assert np.isnan(columns["eigenvalue_0"][2])
    assert columns["events"][0] == ""
    assert columns["events"][1].startswith("lambda_0 crossed 2/h at step 1: 4 against 3.333; the next step")


def test_without_rows_the_table_is_empty():
    assert len(Monitor(BOWL).table()) == 0


def test_a_table_can_be_drawn():
    assert len(pf.plot.stability(watch_bowl([0.1, 0.2, 0.6]).table()).axes) == 6


def test_the_summary_tells_the_run():
    monitor = watch_bowl([0.45, 0.6, 0.4])
    monitor._spent, monitor._loop_time = 1.0, 5.0
    row = monitor.rows[-1]
    share = row["drift_estimate"] / (0.4 * row["gradient_norm"])
    assert monitor.summary() == (
        "3 measurements over steps 0 to 2: lambda_0 went from 4 to 4, which is 0.80 times 2/h = 5, and first was above "
        "2/h at step 1. At 1 of the measurements descent's next step was predicted to raise the loss, and at 1 of "
        "these it would. "
        f"The last one drifts about {row['drift_estimate']:.2g} from the gradient flow, {share:.0%} of its length. "
        "A measurement took 2.0 Hessian products on average; all of them took 20% of the loop's own time. "
        "The rate is 80% of 0.5, up to which rates are stable at this curvature."
    )


@pytest.mark.parametrize(
    ("matrix", "rate", "advice"),
    [
        ([[4.0]], 0.6, "The rate is beyond the edge of stability: at this curvature those below 0.5 are stable."),
        ([[-4.0]], 0.6, "Nothing curves upwards here, so that the curvature sets the rate no limit."),
    ],
)
def test_the_summary_ends_with_advice(matrix, rate, advice):
    monitor = Monitor(pf.functions.quadratic(matrix))
    monitor.observe(0, jnp.ones(1), rate)
    assert monitor.summary().endswith(advice)


def test_before_a_measurement_the_summary_says_so():
    assert Monitor(BOWL).summary() == "Nothing was measured."


class Clocked(Watch):
    """A watch whose loop and measurements take given times, on a clock of its own."""

    def __init__(self, costs, waits=None, **options):
        super().__init__(**{"every": 1, "budget": None, "to": None, "config": {}, **options})
        self.now, self.costs, self.waits = 0.0, iter(costs), iter(waits or itertools.repeat(0.0))
        self._clock = lambda: self.now

    def pass_time(self, seconds):
        self.now += seconds

    def observe(self, step):
        if self._is_due(step):
            wait = lambda: self.pass_time(next(self.waits))  # noqa: E731
            self._measure(
                step, 0.1, Threshold.of(), wait, lambda h: self.pass_time(next(self.costs)) or {"loss": 1.0}, float
            )


@given(
    budget=st.floats(0.01, 2),
    compilation=st.floats(0, 100),
    cost=st.floats(0.01, 5),
    steps=st.lists(st.floats(0, 10), max_size=50),
)
def test_the_budget_is_kept_beyond_the_first_measurement(budget, compilation, cost, steps):
    first = compilation + cost
    watch = Clocked(itertools.chain([first], itertools.repeat(cost)), budget=budget)
    for step, seconds in enumerate(steps):
        watch.observe(step)
        assert watch._spent <= max(budget * watch._loop_time, first) * (1 + 1e-9) + cost
        watch.pass_time(seconds)


def test_a_measurement_is_put_off_until_it_fits():
    watch = Clocked(itertools.repeat(1.0), budget=0.1)
    for step in range(45):
        watch.observe(step)
        watch.pass_time(1.0)
    assert [row["step"] for row in watch.rows] == [0, 10, 30, 40]  # at 30 s, 2 s spent and 1 s to spend


def test_the_summary_tells_what_was_put_off():
    assert "At 3 steps a measurement was due and put off" in watch_bowl([0.1] * 4, budget=1e-9).summary()


def test_without_a_budget_nothing_is_put_off():
    watch = Clocked(itertools.repeat(100.0))
    for step in range(5):
        watch.observe(step)
        watch.pass_time(1.0)
    assert len(watch.rows) == 5
    assert watch.overhead == 125  # the loop's time up to the last observation is 4 s


@pytest.mark.parametrize("budget", [None, 0.1])
def test_on_a_clock_that_stands_still_all_is_measured_and_no_overhead_known(budget):
    watch = Clocked(itertools.repeat(0.0), budget=budget)
    for step in range(3):
        watch.observe(step)
    assert len(watch.rows) == 3
    assert np.isnan(watch.overhead)


def test_waiting_for_the_loops_own_work_is_the_loops_time():
    watch = Clocked([1.0, 1.0], waits=[3.0, 5.0])
    for step in range(2):
        watch.observe(step)
    assert (watch._spent, watch._loop_time) == (2.0, 8.0)


def test_pending_work_is_waited_for_before_the_clock_starts(monkeypatch):
    order, monitor = [], Monitor(BOWL)
    ready, take = jax.block_until_ready, monitor._take
    monkeypatch.setattr(jax, "block_until_ready", lambda x: order.append("wait") or ready(x))
    monitor._take = lambda theta, h: order.append("measure") or take(theta, h)
    monitor.observe(0, jnp.ones(2), 0.1)
    assert order[:2] == ["wait", "measure"]


def test_rows_go_to_a_function():
    rows = []
    assert watch_bowl([0.1, 0.2], to=rows.append).rows == rows


class Writer:
    def __init__(self):
        self.scalars, self.texts = {}, {}

    def add_scalar(self, tag, value, step):
        self.scalars[tag, step] = value

    def add_text(self, tag, text, step):
        self.texts[tag, step] = text


def test_numbers_and_events_go_to_a_writer():
    writer = Writer()
    monitor = watch_bowl([0.1, 0.6], to=writer)
    monitor.observe(2, jnp.full(2, np.nan), 0.1)
    assert writer.scalars["principalflow/eigenvalue_0", 1] == 4
    assert ("principalflow/step", 1) not in writer.scalars
    assert ("principalflow/regime_0", 1) not in writer.scalars
    assert ("principalflow/loss", 2) not in writer.scalars  # it is NaN
    assert writer.texts["principalflow/events", 1].startswith("lambda_0 crossed 2/h")


def test_a_real_writer_takes_rows(tmp_path):
    tensorboard = pytest.importorskip("tensorboardX")
    with tensorboard.SummaryWriter(str(tmp_path)) as writer:
        watch_bowl([0.1, 0.6], to=writer)
    assert list(tmp_path.iterdir())


def test_rows_go_to_a_run_directory(tmp_path):
    with watch_bowl([0.1, 0.2], to=tmp_path) as monitor:
        pass
    frame = pf.runs.load(tmp_path)
    assert frame.attrs["config"] == dict(every=1, budget=None, k=1, tol=1e-2, momentum=0.0, parameters=2)
    assert frame["eigenvalue_0"].tolist() == [row["eigenvalue_0"] for row in monitor.rows]
    assert (frame.attrs["status"], frame.attrs["message"]) == ("done", monitor.summary())
    monitor.close()


@pytest.mark.parametrize("error", [KeyError, KeyboardInterrupt])
def test_a_loop_that_ends_by_an_error_leaves_it_in_the_run_directory(tmp_path, error):
    with pytest.raises(error), Monitor(BOWL, to=str(tmp_path)):
        raise error("x")
    status = pf.runs.load(tmp_path).attrs
    assert status["status"] == "interrupted"
    assert error.__name__ in status["message"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(every=0), "every must be"),
        (dict(k=0), "k must be"),
        (dict(tol=0), "tol must be"),
        (dict(budget=0), "budget must be"),
        (dict(momentum=1), "momentum must be"),
        (dict(to=3), "to must be a function of a row"),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Monitor(BOWL, **arguments)


def test_what_is_no_objective_is_refused():
    with pytest.raises(ValueError, match="objective must be"):
        Monitor(lambda theta: 0.0)


@pytest.mark.parametrize(
    ("step", "rate", "message"),
    [
        (-1, 0.1, "step must be"),
        (jnp.array(3), 0.1, "step must be"),
        (0, -0.1, "learning_rate must be"),
        (0, "x", "rate"),
        (0, 10**400, "learning_rate must be within the range"),
        (0, None, "learning_rate must be a real number"),
        (10**30, 0.1, "step must be a whole number of at most"),
    ],
)
def test_bad_observations_are_refused(step, rate, message):
    with pytest.raises(ValueError, match=message):
        Monitor(BOWL).observe(step, jnp.ones(2), rate)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        (PARAMS[:1], r"at \[1\]\[0\] it has shape \(4, 1\), got nothing"),
        ([*PARAMS, PARAMS[0]], r"at \[2\]\[0\] it has nothing, got shape \(2, 4\)"),
        ([(PARAMS[0][0].T, PARAMS[0][1]), PARAMS[1]], r"at \[0\]\[0\] it has shape \(2, 4\), got shape \(4, 2\)"),
    ],
)
def test_parameters_of_another_structure_are_refused_by_their_path(params, message):
    with pytest.raises(ValueError, match=message):
        Monitor(NETWORK).observe(0, params, 0.1)


def test_parameters_of_eight_bits_are_refused():
    first, second = PARAMS
    coarse = [first, (second[0], second[1].astype(jnp.float8_e4m3fn))]
    with pytest.raises(ValueError, match="params must be of float16 or wider, got dtype float8_e4m3fn"):
        Monitor(NETWORK).observe(0, coarse, 0.1)


def test_complex_parameters_are_refused():
    with pytest.raises(ValueError, match="params must be real, as the objective's are, got complex128"):
        Monitor(BOWL).observe(0, jnp.ones(2) + 1j, 0.1)


def test_parameters_of_half_precision_are_measured_in_the_objectives():
    row = Monitor(BOWL, k=1).observe(0, jnp.ones(2, jnp.bfloat16), 0.1)
    assert row["eigenvalue_0"] == pytest.approx(4)


def test_an_objective_of_half_precision_is_refused():
    with pytest.raises(ValueError, match=r"objective.theta must be in single or double precision"):
        Monitor(pf.Objective(lambda p: jnp.sum(p**2), jnp.ones(2, jnp.float16)))


@pytest.mark.parametrize(("rate", "measured"), [(1e-200, False), (1e200, True)])
def test_rates_beyond_measure_end_no_loop(rate, measured):
    row = Monitor(BOWL, k=1).observe(0, jnp.ones(2), rate)
    assert (row is not None) == measured
    assert row is None or "only the loss could be measured" in row["events"][0]


def test_a_restored_monitor_goes_on_with_the_same_rows_and_events():
    """Rates that cross 2/lambda_0 = 0.5 and fall back, so that events depend on what was before."""
    rates, thetas = [0.4, 0.6, 0.3, 0.7], [jnp.ones(2)]
    for h in rates:
        thetas.append(thetas[-1] - h * BOWL.gradient(thetas[-1]))
    whole = watch_bowl(rates)
    for cut in range(1, 4):
        first, second = watch_bowl(rates[:cut]), Monitor(BOWL, k=1, every=1)
        second.restore({name: np.asarray(array) for name, array in first.state.items()})
        for step in range(cut, 4):
            second.observe(step, thetas[step], rates[step])
        assert first.rows + second.rows == whole.rows
