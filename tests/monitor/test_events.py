import math

import jax.numpy as jnp
import numpy as np
import optax
import pytest
from monitor.cases import BOWL, watch_bowl

import principalflow as pf
from principalflow.monitor import Monitor
from principalflow.optimizers import Edge, Filter, Part


def told(monitor, *kinds):
    """The sentences of all events, or of those of some kinds."""
    return [str(event) for event in monitor.events if not kinds or event.kind in kinds]


def test_crossings_of_the_threshold_are_told_once_each_way():
    monitor = watch_bowl([0.3, 0.4, 0.6, 0.7, 0.4, 0.3])
    assert told(monitor, "above", "below") == [
        "lambda_0 crossed 2/h at step 2: 4 against 3.333",
        "lambda_0 fell below 2/h at step 4: 4 against 5",
    ]


def test_a_start_above_the_threshold_is_told():
    event = watch_bowl([0.8]).events[0]
    assert (event.kind, event.step, event.value, event.limit) == ("above", 0, 4, 2.5)
    assert str(event) == "lambda_0 is above 2/h at step 0: 4 against 2.5"


def test_momentum_moves_the_threshold():
    monitor = watch_bowl([0.9, 0.999, 1.001], momentum=0.999)  # 2(1+m)/h = 4 at h = 0.9995
    assert told(monitor, "above", "below") == [
        "lambda_0 crossed 2(1+m)/h, the threshold with momentum m = 0.999, at step 2: 4 against 3.994"
    ]


def test_a_predicted_rise_and_its_end_are_told_and_come_true():
    monitor = watch_bowl([0.45, 0.6, 0.6, 0.3])
    predicted = [event for event in monitor.events if event.kind in ("rising", "falling")]
    assert [(event.kind, event.step) for event in predicted] == [("rising", 1), ("falling", 3)]
    first = monitor.rows[1]
    assert predicted[0].value == pytest.approx(first["loss_change"])
    assert first["loss_change"] > 0
    expected = f"the next step is predicted to raise the loss (by {first['loss_change']:.2g}, from {first['loss']:.4g})"
    assert str(first["events"][1]) == expected  # exact on a quadratic


def test_eigenpairs_that_did_not_converge_are_told():
    monitor = watch_bowl([0.1])
    take = monitor._take
    monitor._take = lambda *place: take(*place) | {"converged": False, "residual_0": 0.25}
    for step in (1, 2):
        monitor.observe(step, jnp.ones(2), 0.1)
    assert told(monitor) == ["the eigenpairs did not converge at step 1: they are known to 0.25 only"]
    (event,) = monitor.events
    assert (event.kind, event.value, event.limit) == ("unconverged", 0.25, pytest.approx(4e-2))  # tol 1e-2, lambda_0 4


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_parameters_that_are_not_finite_are_told_once(value):
    monitor = watch_bowl([0.1])
    rows = [monitor.observe(step, jnp.full(2, value), 0.1) for step in (1, 2)]
    assert told(monitor, "nonfinite", "unmeasured") == ["the loss is not finite at step 1"]
    assert monitor.events[0].kind == "nonfinite"
    assert [set(row) for row in rows] == [{"step", "learning_rate", "loss", "events"}] * 2
    assert rows[1]["events"] == []
    assert [event.kind for event in rows[0]["events"]] == ["nonfinite", "spike"]
    assert "became infinite or NaN" in monitor.summary()


NOTHING = dict(updates=jnp.zeros(2), gradient=jnp.zeros(2))


def test_a_loss_of_all_data_that_is_not_finite_is_told_once_though_batches_have_one():
    objective = pf.Objective(lambda p, d: jnp.mean(d * jnp.sum(p**2)), jnp.ones(2), jnp.array([1.0, jnp.inf]))
    monitor = Monitor(objective, k=1, every=2)
    for step in range(5):
        monitor.observe(step, jnp.ones(2), 0.1, loss=1.0, batch=jnp.ones(1), **NOTHING)
    assert told(monitor, "nonfinite") == ["the loss is not finite at step 0"]


def test_a_batch_whose_loss_is_not_finite_is_told_once_though_all_data_have_one():
    monitor = Monitor(BOWL, k=1, every=2)
    for step, loss in enumerate([1.0, np.nan, np.nan, np.nan]):
        monitor.observe(step, jnp.ones(2), 0.1, loss=loss, **NOTHING)
    assert told(monitor, "nonfinite") == ["the loss of the step's batch is not finite at step 1"]


def test_what_cannot_be_measured_is_told_once_though_steps_are_watched_in_between():
    roots = pf.Objective(lambda theta: jnp.sum(jnp.sqrt(theta)), jnp.ones(2))
    monitor = Monitor(roots, k=1, every=2)
    for step in range(6):
        monitor.observe(step, jnp.zeros(2) if step else jnp.ones(2), 0.1, loss=1.0, **NOTHING)
    assert [event.step for event in monitor.events if event.kind == "unmeasured"] == [2]


def test_the_next_step_is_not_predicted_where_any_group_has_momentum():
    params = {"a": jnp.ones(1), "b": jnp.ones(1)}
    tx = optax.partition({"a": optax.sgd(0.1), "b": optax.sgd(1.5, 0.9)}, {"a": "a", "b": "b"})
    monitor = Monitor(pf.Objective(lambda p: p["a"][0] ** 2 + 3 * p["b"][0] ** 2, params), optimizer=tx, k=1)
    row = monitor.observe(0, params, state=tx.init(params))
    assert row["loss_change_discrete"] > 0
    assert told(monitor, "rising") == []


def test_derivatives_that_are_not_finite_are_told():
    roots = pf.Objective(lambda theta: jnp.sum(jnp.sqrt(theta)), jnp.ones(2))
    monitor = Monitor(roots, every=1)
    monitor.observe(0, jnp.ones(2), 0.1)
    row = monitor.observe(1, jnp.zeros(2), 0.1)
    assert row["loss"] == 0
    assert row["events"][0].kind == "unmeasured"
    assert str(row["events"][0]).startswith(
        "only the loss could be measured at step 1: the gradient at theta must be finite"
    )


def test_a_rate_that_is_not_finite_is_told():
    monitor = watch_bowl([np.nan])
    assert told(monitor) == ["only the loss could be measured at step 0: the learning rate is not finite"]
    assert math.isnan(monitor.events[0].limit)


def test_later_errors_of_the_numbers_are_told_and_not_raised():
    monitor = watch_bowl([0.1])

    def asymmetric(*place):
        raise ValueError("product must be symmetric")

    monitor._take = asymmetric
    monitor.observe(1, jnp.ones(2), 0.1)
    assert told(monitor) == ["only the loss could be measured at step 1: product must be symmetric"]


@pytest.mark.parametrize(("step", "kinds"), [(5, []), (50, ["above"])])
def test_an_early_adam_above_its_threshold_is_no_event(step, kinds):
    part = Part(learning_rate=0.8, filter=Filter())
    edge = Edge(optimizer="rmsprop", part=part, preconditioner=jnp.ones(2), second_moment=jnp.ones(2))
    row = Monitor(BOWL, k=1).observe(step, jnp.ones(2), edge=edge)
    assert row["edge"] > 1
    assert [event.kind for event in row["events"] if event.kind == "above"] == kinds
