import jax.numpy as jnp
import pytest
from monitor.cases import BOWL, watch_bowl

import principalflow as pf
from principalflow.monitor import Monitor


def test_the_summary_tells_the_run():
    monitor = watch_bowl([0.45, 0.6, 0.4])
    monitor._schedule.spent, monitor._schedule.loop_time = 1.0, 5.0
    row = monitor.rows[-1]
    share = row["drift_estimate"] / (0.4 * row["gradient_norm"])
    assert monitor.summary() == (
        "3 measurements over steps 0 to 2: lambda_0 went from 4 to 4, which is 0.80 times 2/h = 5, and first was above "
        "2/h at step 1. At 1 of them the next step was predicted to raise the loss, and at 1 of these it would. "
        f"A step of descent from there drifts about {row['drift_estimate']:.2g} from the gradient flow, {share:.0%} of "
        "its length. A measurement took 2.0 Hessian products on average. "
        "All measurements took 20% of the loop's own time. "
        "The rate is 80% of 0.5, up to which rates are stable at this curvature."
    )


def test_the_summary_has_no_sentences_about_nothing():
    quiet = watch_bowl([0.1]).summary()
    assert "raise the loss" not in quiet
    assert " 0 of" not in quiet


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


def test_the_summary_tells_what_was_put_off():
    assert "At 3 steps a measurement was due and put off" in watch_bowl([0.1] * 4, budget=1e-9).summary()


def test_without_curvature_the_advice_is_by_the_steps():
    """A step of descent on 2 z^2 at the rate 0.6: the realised edge is 0.6 * 4/2."""
    monitor = Monitor(pf.Objective(lambda z: 2 * jnp.sum(z**2), jnp.ones(1)), measure="cheap")
    monitor.observe(1, jnp.array([-1.4]), updates=jnp.array([-2.4]))
    assert monitor.summary().endswith("By the latest steps the rate is about 1.2 times too high.")
