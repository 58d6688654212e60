"""What a monitor measures; `pytorch/test_monitor.py` has the same for PyTorch."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from cases import network, regression
from monitor.cases import BOWL, watch_bowl

import principalflow as pf
from principalflow.monitor import Monitor

NETWORK = regression(sizes=(2, 4, 1))
PARAMS = network((2, 4, 1))


def test_a_row_is_the_record_of_a_step_of_descent():
    row = Monitor(NETWORK, k=2).observe(7, PARAMS, 0.1)
    record = pf.Record(k=2).start(NETWORK)(NETWORK.theta, 0.1)
    sharpness = record["eigenvalue_0"]
    edge = {"threshold": 20.0, "edge": sharpness / 20, "stable_rate": 2 / sharpness}
    assert row == {"step": 7, **record, **edge, "events": row["events"]}


def test_values_are_those_of_the_dense_hessian():
    row = Monitor(NETWORK, k=3).observe(0, PARAMS, 0.1)
    values = np.linalg.eigvalsh(NETWORK.hessian(NETWORK.theta))[::-1]
    np.testing.assert_allclose([row[f"eigenvalue_{i}"] for i in range(3)], values[:3], rtol=1e-12)
    gradient = NETWORK.gradient(NETWORK.theta)
    after = NETWORK.value(NETWORK.theta - 0.1 * gradient)
    np.testing.assert_allclose(row["loss_change"], after - NETWORK.value(NETWORK.theta), rtol=1e-12)


def test_flat_parameters_give_the_same_row():
    assert Monitor(NETWORK).observe(0, NETWORK.theta, 0.1) == Monitor(NETWORK).observe(0, PARAMS, 0.1)


def test_where_nothing_is_due_nothing_is_looked_at():
    monitor = watch_bowl([0.1], every=10)
    assert monitor.observe(1, params=object(), learning_rate=object()) is None


def test_a_rate_of_zero_leaves_the_measurement_to_the_next_step():
    monitor = watch_bowl([0.0, 0.0, 0.1], every=10)
    assert [row["step"] for row in monitor.rows] == [2]


def test_a_start_that_is_not_finite_raises_nothing():
    monitor = Monitor(BOWL)
    assert math.isnan(monitor.observe(0, jnp.full(2, np.nan), 0.1)["loss"])
    assert monitor.summary() == "Nothing but the loss could be measured: the loss is not finite at step 0."


def test_a_restored_monitor_that_measured_nothing_has_a_summary():
    first, second = Monitor(BOWL), Monitor(BOWL)
    first.observe(0, jnp.full(2, np.nan), 0.1)
    second.restore(first.state)
    second.observe(1, jnp.full(2, np.nan), 0.1)
    assert second.summary() == "Nothing but the loss could be measured."


def test_numbers_close_to_overflow_raise_nothing():
    monitor = Monitor(BOWL, every=1)
    for step, size in enumerate([1e80, 1e150, 1e200, 1e307]):
        monitor.observe(step, jnp.full(2, size), 1e10)
    assert len(monitor.rows) == 4


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


def test_pending_work_is_waited_for_before_the_clock_starts(monkeypatch):
    order, monitor = [], Monitor(BOWL)
    ready, take = jax.block_until_ready, monitor._take
    monkeypatch.setattr(jax, "block_until_ready", lambda x: order.append("wait") or ready(x))
    monitor._take = lambda *place: order.append("measure") or take(*place)
    monitor.observe(0, jnp.ones(2), 0.1)
    assert order[:2] == ["wait", "measure"]


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
    assert row is None or "only the loss could be measured" in str(row["events"][0])


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


def adam_steps(tx, steps=5, start=None):
    """Parameters, state and last step of an optimiser on the network, as `observe` takes them."""
    params = PARAMS if start is None else start
    state = tx.init(params)
    for _ in range(steps):
        loss, gradient = NETWORK.value_and_gradient(params)
        gradient = NETWORK.unravel(gradient)
        updates, state = tx.update(gradient, state, params)
        params = optax.apply_updates(params, updates)
    return params, state, dict(updates=updates, gradient=gradient, loss=loss)


def test_an_optimisers_curvature_is_that_of_the_dense_hessian_in_its_metric():
    tx = optax.adam(1e-2)
    params, state, _ = adam_steps(tx)
    row = Monitor(NETWORK, optimizer=tx, k=2).observe(5, params, state=state)
    theta, nu = (NETWORK.flat("tree", tree) for tree in (params, optax.tree.get(state, "nu")))
    P = (1 - 0.9**5) * (np.sqrt(nu / (1 - 0.999**5)) + 1e-8)
    values = np.linalg.eigvalsh(NETWORK.hessian(theta) / np.sqrt(np.outer(P, P)))[::-1]
    np.testing.assert_allclose([row["eigenvalue_0"], row["eigenvalue_1"]], values[:2], rtol=1e-6)
    assert row["threshold"] == pytest.approx(38 / 1e-2)
    assert row["edge"] == pytest.approx(row["eigenvalue_0"] / 3800)


def test_the_surprise_of_adam_is_its_squared_gradient_over_the_average():
    tx = optax.adam(1e-2)
    params, state, step = adam_steps(tx)
    row = Monitor(NETWORK, optimizer=tx, measure="cheap").observe(5, params, state=state, **step)
    v, g = (np.asarray(NETWORK.flat("tree", t)) for t in (optax.tree.get(state, "nu"), step["gradient"]))
    v = v / (1 - 0.999**5)
    assert row["surprise"] == pytest.approx(np.sum(g**2 / np.sqrt(v)) / np.sum(np.sqrt(v)), rel=1e-5)


def test_an_adam_that_has_taken_no_step_is_measured_at_the_next():
    tx = optax.adam(1e-2)
    monitor = Monitor(NETWORK, optimizer=tx)
    assert monitor.observe(0, PARAMS, state=tx.init(PARAMS)) is None
    params, state, _ = adam_steps(tx, steps=1)
    assert monitor.observe(1, params, state=state)["step"] == 1


def test_an_optimiser_that_is_not_known_gets_a_sentence_and_no_threshold():
    tx = optax.lion(1e-2)
    params, state, step = adam_steps(tx)
    monitor = Monitor(NETWORK, optimizer=tx, k=1)
    row = monitor.observe(5, params, state=state, **step)
    assert "threshold" not in row
    assert "regime_0" not in row
    assert row["realised_edge"] > 0
    assert row["eigenvalue_0"] == pytest.approx(np.linalg.eigvalsh(NETWORK.hessian(params))[-1])
    assert [event.kind for event in row["events"]] == ["unknown"]
    assert "directional_sharpness" not in row
    assert "No threshold is known for this optimizer: optax.scale_by_lion can't be read." in monitor.summary()
    assert "rates" not in monitor.summary()


def test_regimes_take_momentum_into_account():
    curvature = 4.0  # of the bowl: h lambda = 2.4 is stable with momentum 0.9, up to 3.8
    row = Monitor(BOWL, k=1, momentum=0.9).observe(0, jnp.ones(2), 2.4 / curvature)
    assert row["regime_0"] == "complex stable"
    assert Monitor(BOWL, k=1).observe(0, jnp.ones(2), 2.4 / curvature)["regime_0"] == "unstable"


def test_a_rate_that_is_not_the_optimisers_is_refused():
    tx = optax.sgd(0.1)
    with pytest.raises(ValueError, match=r"learning_rate is 0\.2, but the optimizer's is 0\.1"):
        Monitor(NETWORK, optimizer=tx).observe(0, PARAMS, 0.2, state=tx.init(PARAMS))


def test_flat_parameters_may_have_a_state_of_their_structure():
    tx = optax.adam(1e-2)
    params, state, step = adam_steps(tx)
    rows = [
        Monitor(NETWORK, optimizer=tx, k=1).observe(5, p, state=state, **step)
        for p in (params, NETWORK.flat("p", params))
    ]
    assert rows[0] == rows[1]


def test_flat_parameters_may_have_a_flat_state():
    tx = optax.adam(1e-2)
    _, state = tx.update(NETWORK.gradient(PARAMS), tx.init(NETWORK.theta))
    assert Monitor(NETWORK, optimizer=tx, k=1).observe(1, NETWORK.theta, state=state)["threshold"] == pytest.approx(
        3800
    )


def test_models_with_leaves_that_are_no_parameters_have_a_surprise():
    model = eqx.nn.MLP(2, 1, 4, 1, key=jax.random.key(0))
    weights, tx = eqx.filter(model, eqx.is_inexact_array), optax.adam(1e-2)
    objective = pf.Objective(lambda model: jnp.sum(model(jnp.ones(2)) ** 2), model)
    gradient = objective.unravel(objective.gradient(model))
    updates, state = tx.update(eqx.filter(gradient, eqx.is_inexact_array), tx.init(weights))
    row = Monitor(objective, optimizer=tx, measure="cheap").observe(
        1, eqx.apply_updates(model, updates), state=state, updates=updates
    )
    assert row["surprise"] == pytest.approx(1)


def test_a_first_gradient_of_zero_leaves_the_surprise_right():
    tx, monitor = optax.adam(1e-2), Monitor(NETWORK, optimizer=optax.adam(1e-2), measure="cheap")
    state, zero = tx.init(PARAMS), jax.tree.map(jnp.zeros_like, PARAMS)
    for step, gradient in enumerate([zero, NETWORK.unravel(NETWORK.gradient(PARAMS))], 1):
        updates, state = tx.update(gradient, state)
        row = monitor.observe(step, PARAMS, state=state, updates=updates, gradient=gradient)
    v, g = (np.asarray(NETWORK.flat("tree", t)) for t in (optax.tree.get(state, "nu"), gradient))
    v = v / (1 - 0.999**2)
    assert row["surprise"] == pytest.approx(np.sum(g**2 / np.sqrt(v)) / np.sum(np.sqrt(v)), rel=1e-5)


def test_within_jit_observe_says_to_call_it_outside():
    monitor = Monitor(BOWL, k=1)
    with pytest.raises(ValueError, match=r"outside of jax\.jit"):
        jax.jit(lambda theta: monitor.observe(0, theta, 0.1))(jnp.ones(2))


def test_a_monitor_with_an_optimiser_needs_its_state():
    with pytest.raises(ValueError, match="state must be given to observe"):
        Monitor(NETWORK, optimizer=optax.sgd(0.1)).observe(0, PARAMS)


def test_a_state_needs_its_optimiser():
    with pytest.raises(ValueError, match="state needs the optimizer"):
        Monitor(NETWORK).observe(0, PARAMS, 0.1, state=optax.sgd(0.1).init(PARAMS))


def test_changes_are_those_of_a_step_in_the_metric():
    tx = optax.chain(optax.add_decayed_weights(0.1), optax.scale_by_rms(), optax.scale(-1e-2))
    params, state, _ = adam_steps(tx)
    row = Monitor(NETWORK, optimizer=tx, k=1).observe(5, params, state=state)
    theta, nu = (NETWORK.flat("tree", tree) for tree in (params, optax.tree.get(state, "nu")))
    P, g = np.sqrt(nu) + 1e-8, NETWORK.gradient(theta) + 0.1 * theta
    ahead = theta - 1e-2 * g / P
    change = NETWORK.value(ahead) - NETWORK.value(theta) + 0.05 * (ahead @ ahead - theta @ theta)
    assert row["loss_change"] == pytest.approx(float(change), rel=1e-6)
    assert row["gradient_norm"] == pytest.approx(float(jnp.linalg.norm(NETWORK.gradient(theta))))
    assert row["loss_change_discrete"] == pytest.approx(float(change), rel=0.1)


def test_leaves_can_be_selected_by_their_path():
    row = Monitor(NETWORK, k=1, select=lambda path: path.startswith("[1]")).observe(0, PARAMS, 0.1)
    chosen = NETWORK.entries(lambda path: path.startswith("[1]"))
    block = NETWORK.hessian(NETWORK.theta)[jnp.ix_(chosen, chosen)]
    assert row["eigenvalue_0"] == pytest.approx(np.linalg.eigvalsh(block)[-1])
    assert row["threshold"] == 20


def test_leaves_of_an_optimiser_that_is_not_known_can_be_selected():
    params = {"a": jnp.ones(2), "b": jnp.ones(2)}
    objective, tx = pf.Objective(lambda p: 4 * jnp.sum(p["a"] ** 2) + jnp.sum(p["b"] ** 2), params), optax.lion(0.1)
    row = Monitor(objective, optimizer=tx, k=1, select=lambda path: "b" in path).observe(
        0, params, state=tx.init(params)
    )
    assert row["eigenvalue_0"] == pytest.approx(2)


def test_steps_are_watched_whole_where_leaves_are_selected():
    tx = optax.adam(1e-2)
    params, state, step = adam_steps(tx)
    options = [dict(), dict(select=lambda path: path.startswith("[1]"))]
    whole, part = (Monitor(NETWORK, optimizer=tx, k=1, **o).observe(5, params, state=state, **step) for o in options)
    assert part["realised_edge"] == whole["realised_edge"]
    assert "landscape" not in part
    assert part["eigenvalue_0"] < whole["eigenvalue_0"]
