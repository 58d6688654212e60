import jax.numpy as jnp
import optax
import pytest
from monitor.cases import BOWL, watch_bowl

import principalflow as pf
from principalflow.monitor import Monitor
from principalflow.monitor._summary import _advice, _batches
from principalflow.optimizers import Edge, Part


def test_the_summary_tells_the_run():
    monitor = watch_bowl([0.45, 0.6, 0.4])
    monitor._schedule.spent, monitor._schedule.loop_time = 1.0, 5.0
    row = monitor.rows[-1]
    share = row["drift_estimate"] / (0.4 * row["gradient_norm"])
    assert monitor.summary() == (
        "The rate is 0.4; at the latest curvature, rates below 0.5 are stable.\n"
        "3 measurements over steps 0 to 2: lambda_0 went from 4 to 4, which is 0.80 times 2/h = 5, and first was above "
        "it at step 1. The next step was predicted to raise the loss at 1 of 3 measurements; at 1 of those it would "
        f"have. A step of descent from there drifts about {row['drift_estimate']:.2g} from the gradient flow, "
        f"{share:.0%} of its length.\n"
        "A measurement took 2.0 Hessian products on average. All measurements took 20% of the loop's own time."
    )


def test_a_rise_predicted_by_the_only_measurement_is_told():
    assert "The next step was predicted to raise the loss, and would have. A step" in watch_bowl([0.6]).summary()


def test_the_summary_has_no_sentences_about_nothing():
    quiet = watch_bowl([0.1]).summary()
    assert "raise the loss" not in quiet
    assert " 0 of" not in quiet


@pytest.mark.parametrize(
    ("matrix", "rate", "advice"),
    [
        (
            [[4.0]],
            0.6,
            "The rate 0.6 is beyond the edge of stability: at the latest curvature, rates below 0.5 are stable.",
        ),
        ([[-4.0]], 0.6, "No direction curves upwards here, so the curvature sets no limit on the rate."),
    ],
)
def test_the_summary_begins_with_advice(matrix, rate, advice):
    monitor = Monitor(pf.functions.quadratic(matrix))
    monitor.observe(0, jnp.ones(1), rate)
    assert monitor.summary().startswith(advice)


def test_before_a_measurement_the_summary_says_so():
    assert Monitor(BOWL).summary() == "Nothing was measured."


def test_the_summary_tells_what_was_put_off():
    assert watch_bowl([0.1] * 4, budget=1e-9).summary().endswith(" 1 measurement was put off, to keep to the budget.")


def test_measuring_that_takes_longer_than_the_loop_is_told_as_a_multiple():
    monitor = watch_bowl([0.1])
    monitor._schedule.spent, monitor._schedule.loop_time = 207.4, 1.0
    assert "Measuring took 207 times as long as the loop itself." in monitor.summary()


def test_the_advice_is_the_rate_at_which_decoupled_decay_is_stable_too():
    part = Part(learning_rate=0.5, weight_decay=2.0)
    monitor = Monitor(BOWL, k=1)
    row = monitor.observe(0, jnp.ones(2), edge=Edge(optimizer="sgdw", part=part))
    assert row["stable_rate"] == pytest.approx(2 / (4 + 2))
    assert "rates below 0.333 are stable" in monitor.summary()


def test_a_metric_of_groups_is_said_to_be_theirs():
    params = {"a": jnp.ones(1), "b": jnp.ones(1)}
    tx = optax.partition({"a": optax.sgd(0.1), "b": optax.sgd(0.2)}, {"a": "a", "b": "b"})
    monitor = Monitor(pf.Objective(lambda p: p["a"][0] ** 2 + p["b"][0] ** 2, params), optimizer=tx, k=1)
    monitor.observe(0, params, state=tx.init(params))
    assert "(in a metric that takes up the groups' rates)" in monitor.summary()


def test_without_curvature_the_advice_is_by_the_steps():
    """A step of descent on 2 z^2 at the rate 0.6: the realised edge is 0.6 * 4/2."""
    monitor = Monitor(pf.Objective(lambda z: 2 * jnp.sum(z**2), jnp.ones(1)), measure="cheap")
    monitor.observe(1, jnp.array([-1.4]), updates=jnp.array([-2.4]))
    assert monitor.summary().startswith("Judging by the latest steps, the rate is about 1.2 times too high.")


def test_batch_sharpness_that_scatters_is_held_against_no_threshold():
    rows = [{"step": i, "batch_sharpness": x, "eigenvalue_0": 1.0} for i, x in enumerate([-5.0, 3.0] * 6)]
    assert "too scattered" in _batches(rows, Edge.of_descent(0.1))
    rows = [{**row, "batch_sharpness": 4.0 + 0.1 * row["step"]} for row in rows]
    assert "times its threshold" in _batches(rows, Edge.of_descent(0.1))


def test_on_batches_the_advice_is_no_promise():
    losses = jnp.linspace(1, 2, 30)
    taken = [{"batch_loss": float(x), "batch_loss_change": -0.5} for x in losses]
    known = [{"learning_rate": 0.01, "stable_rate": rate} for rate in (0.5, 0.2, 0.4)]
    assert _advice({}, known, Edge.of_descent(0.01), taken).endswith(
        "rates below 0.2 are stable; on batches the edge may come much earlier."
    )
