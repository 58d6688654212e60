"""Made-up runs of known causes.

The rules were written on seeds 0 to 9. Seeds 10 to 19 were looked at once, when they were done.
"""

import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from monitor.cases import BOWL, watch_bowl
from monitor.made_up import CURVATURE, KINDS, rows, rows_of, small, small_loss, without

import principalflow as pf
from principalflow.monitor._diagnosis import Diagnosis, spikes_in_words

STEPS = (
    *("batch_loss", "batch_loss_change", "batch_gradient_norm", "batch_slope"),
    *("update_norm", "realised_edge", "surprise"),
)
SPIKING = [kind for kind in KINDS if KINDS[kind].cause]
QUIET = [kind for kind in KINDS if not KINDS[kind].cause]
# Their spikes last longer than the time between two measurements of the curvature, and so show without the steps too.
WITHOUT_STEPS = [
    *("rate: descent on a bowl", "rate: sgd", "rate: descent on digits", "rate: a jump, sgd"),
    *("rate: a jump, adam on digits", "rate: a jump, descent on a bowl", "sharpening: two parameters"),
]


def spikes(table):
    diagnosis = Diagnosis()
    return [event for row in table for event in diagnosis.add(row)] + diagnosis.pending()


def causes(table):
    return [event.cause for event in spikes(table)]


def named(kind, seeds, missing=()):
    """How many of the runs have the cause named, that of the first spike, without these columns."""
    found = [causes(without(missing, rows(kind, seed))) for seed in seeds]
    return sum(names[:1] == [KINDS[kind].cause] for names in found)


@pytest.mark.parametrize(
    "kind",
    [
        *("rate: descent on a bowl", "rate: a jump, sgd", "batch: targets, sgd", "batch: inputs, adam"),
        *("stale: features that wake up, adam", "sharpening: two parameters", "burst: a wrong gradient, sgd"),
    ],
)
def test_a_run_has_its_cause_named_with_and_without_eigenvalues(kind):
    table = rows(kind, 0)
    assert causes(table)[0] == causes(without(CURVATURE, table))[0] == KINDS[kind].cause


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [range(10), range(10, 20)], ids=["seen", "fresh"])
@pytest.mark.parametrize("kind", SPIKING)
def test_nine_of_ten_runs_have_their_cause_named(kind, seeds):
    assert named(kind, seeds) >= 9


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [range(10), range(10, 20)], ids=["seen", "fresh"])
@pytest.mark.parametrize("kind", SPIKING)
def test_nine_of_ten_runs_have_their_cause_named_without_eigenvalues(kind, seeds):
    assert named(kind, seeds, CURVATURE) >= 9


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [range(10), range(10, 20)], ids=["seen", "fresh"])
@pytest.mark.parametrize("kind", WITHOUT_STEPS)
def test_nine_of_ten_runs_have_their_cause_named_without_the_steps(kind, seeds):
    assert named(kind, seeds, STEPS) >= 9


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind for kind in SPIKING if kind.startswith(("batch", "stale", "burst"))])
def test_without_the_steps_what_only_they_tell_is_unknown(kind):
    found = {cause for seed in range(10) for cause in causes(without(STEPS, rows(kind, seed)))}
    assert found <= {"unknown"}


@pytest.mark.slow
@pytest.mark.parametrize("kind", QUIET)
def test_nineteen_of_twenty_quiet_runs_have_no_spike(kind):
    assert sum(not causes(rows(kind, seed)) for seed in range(20)) >= 19


def test_a_quiet_run_has_no_spike():
    assert causes(rows("quiet: sgd, batches of 4", 0)) == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.startswith("stale")])
def test_a_smaller_beta2_would_have_had_no_stale_average(kind):
    """The one that the sentence names."""
    assert all("0.95 lets" in str(spikes(rows(kind, seed))[0]) for seed in range(3))
    calm = [not spikes(rows_of(KINDS[kind].build(seed)._replace(b2=0.95))) for seed in range(10)]
    assert sum(calm) >= 9


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind",
    [
        *("rate: descent on a bowl", "rate: descent on a quartic", "rate: heavy ball on a bowl", "rate: sgd"),
        *("rate: descent on digits", "rate: adam", "rate: adam on digits", "rate: a jump, sgd"),
    ],
)
def test_a_fifth_below_the_rate_that_is_advised_the_run_would_have_been_stable(kind):
    calm = []
    for seed in range(10):
        run, sentence = KINDS[kind].build(seed), str(spikes(rows(kind, seed))[0])
        advised = [float(number) for number in re.findall(r"(?:rates|those|to) below ([\d.e+-]+)", sentence)]
        calm.append(not spikes(rows_of(run._replace(rates=np.minimum(run.rates, 0.8 * min(advised))))))
    assert sum(calm) >= 9


def quiet(count=150):
    return [dict(row) for row in rows("quiet: sgd", 0)[:count]]


def sentences(table):
    return [str(event) for event in spikes(table)]


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_batch_whose_loss_is_not_finite_is_a_bad_one(value):
    nothing = dict.fromkeys(STEPS[:-1], math.nan)
    table = [*quiet(100), *({**row, **nothing, "batch_loss": value} for row in quiet()[100:])]
    (event,) = spikes(table)
    assert (event.kind, event.cause, event.step, event.value) == ("spike", "batch", 101, math.inf)
    assert str(event).endswith(
        "became infinite or NaN at step 101: a bad batch. Before its step was taken, and after ordinary ones, the "
        "batch of step 101 had a loss that isn't finite. Look at its data, and skip steps whose loss isn't finite"
    )


def test_a_bad_batch_is_told_with_its_numbers():
    table = without(CURVATURE, rows("batch: targets, sgd", 0))
    (event,) = spikes(table)
    row = next(row for row in table if row["step"] == event.step)
    before = [row for row in table if row["step"] < event.step]
    assert event.value == row["batch_loss"]
    assert event.limit == np.median([row["batch_loss"] for row in before[-21:]])
    times = row["batch_gradient_norm"] / np.median([row["batch_gradient_norm"] for row in before[:-30]])
    clip = max(row["batch_gradient_norm"] for row in before[:-30])
    assert f"the batch of step {event.step} had a loss of {event.value:.3g} and a gradient {times:.3g} times" in str(
        event
    )
    assert f"clipping gradients at a norm of {clip:.3g}, the largest of {len(before) - 30} calm steps" in str(event)


def test_data_that_change_are_told_apart_from_one_bad_batch():
    worse = [{**row, "batch_loss": row["batch_loss"] + 5} for row in quiet()[100:]]
    (sentence,) = sentences([*quiet(100), *worse])
    assert "the data may have changed there" in sentence


def test_a_rate_beyond_the_edge_is_told_with_the_factor_and_the_stable_rate():
    """On the bowl, whose rates are stable below 2."""
    h = KINDS["rate: descent on a bowl"].build(0).rates[0]
    table = rows("rate: descent on a bowl", 0)
    first = table[0]
    sentence = sentences(table)[0]
    assert "the rate was too high from the start, and " in sentence
    assert f"lambda_0 was {first['edge']:.3g} times its threshold at step 1." in sentence
    assert f"rates below {h / first['edge']:.3g} are stable (the rate was {h:.3g} then)" in sentence
    assert h / first["edge"] == pytest.approx(2, rel=0.05)


def test_a_jump_of_the_rate_is_told_with_its_step_and_factor():
    rates = KINDS["rate: a jump, sgd"].build(0).rates
    at, factor = int(np.argmax(rates > rates[0])) + 1, rates[-1] / rates[0]
    table = rows("rate: a jump, sgd", 0)
    told = f"the rate was raised by a factor of {factor:.3g} at step {at}, "
    assert f"{told}and " in sentences(without(CURVATURE, table))[0]
    assert f"{told}to {rates[-1]:.3g}, and " in sentences(table)[0]


def test_sharpening_is_told_with_its_course():
    table = rows("sharpening: two parameters", 0)
    event = spikes(table)[0]
    measured = [row for row in table if "edge" in row and row["step"] < event.step]
    crossing = next(row for row in measured if row["edge"] > 1)
    last = measured[-1]
    assert (
        f"lambda_0 went from {measured[0]['edge']:.2f} times its threshold at step 1 to {crossing['edge']:.2f} times "
        f"at step {crossing['step']}, and was at {last['edge']:.2f} at step {last['step']}"
    ) in str(event)
    assert f"rates below {last['learning_rate'] / last['edge']:.3g} are stable" in str(event)


def test_a_stale_average_is_told_with_the_surprise():
    table = rows("stale: features that wake up, adam", 0)
    row = table[300]  # the first step with these features
    assert f"At step 301 they were {row['surprise']:.3g} times their average" in sentences(table)[0]


def test_what_is_missing_is_told():
    losses = [{"step": i, "loss": 1.0} for i in range(30)] + [{"step": 30 + i, "loss": 5.0} for i in range(10)]
    (event,) = spikes(losses)
    assert event.cause == "unknown"
    assert str(event).endswith(
        "the rows don't show why. Give `observe` each step with its batch, which tells bad batches, bursts and stale "
        'averages; measure the curvature (measure="sharpness"), which tells a rate that is too high'
    )


def watch_zero_steps(rates, every):
    """Spikes of descent on the bowl whose update is 0 but at every so many steps, as with `optax.MultiSteps`."""
    theta, monitor = jnp.ones(2), pf.Monitor(BOWL, measure="cheap")
    for step, h in enumerate(rates, 1):
        loss, gradient = BOWL.value(theta), BOWL.gradient(theta)
        updates = -h * gradient if step % every == 0 else jnp.zeros(2)
        theta = theta + updates
        monitor.observe(step, theta, updates=updates, gradient=gradient, loss=loss)
    return [event for event in [*monitor.events, *monitor._diagnosis.pending()] if event.kind == "spike"]


def test_a_rate_of_zero_before_a_spike_ends_no_loop():
    assert watch_zero_steps([0.0] * 30 + [0.7] * 30, every=1)


def test_a_raised_rate_is_found_between_steps_that_do_not_move():
    (spike,) = watch_zero_steps([0.01] * 100 + [0.8] * 60, every=4)
    assert spike.cause == "rate"
    assert "the rate was raised by a factor of 80 at step 104" in str(spike)


def test_a_diagnosis_that_fails_ends_no_loop(monkeypatch):
    monkeypatch.setattr("principalflow.monitor._diagnosis._explain", lambda *_, **__: 1 / 0)
    (spike,) = spikes(rows("batch: targets, sgd", 0))
    assert spike.cause == "unknown"
    assert str(spike).endswith("the rows can't be read (ZeroDivisionError: division by zero)")


def test_causes_dont_depend_on_the_units_of_the_loss():
    table = without(CURVATURE, rows("batch: inputs, adam", 0))
    scaled = [
        {name: value * 1e6 if name.startswith("batch") else value for name, value in row.items()} for row in table
    ]
    assert causes(scaled) == causes(table)


def test_spikes_are_told_by_cause_with_the_highest_of_each():
    events = [
        pf.Event("spike", step, value, 1.0, f"it spiked at step {step}", cause=cause)
        for step, value, cause in [(5, 2.0, "sharpening"), (9, 4.0, "batch"), (20, 3.0, "sharpening")]
    ]
    assert spikes_in_words(events) == (
        "The loss rose out of line 3 times: 2 because of sharpening, 1 because of a bad batch. "
        "It spiked at step 20. It spiked at step 9."
    )
    assert spikes_in_words(events[:1]) == "It spiked at step 5."
    assert spikes_in_words([]) == ""


def trained(steps, at):
    """A monitor of a loop with optax, whose rate is raised at a step."""
    loss, theta, batches, data = small(0, steps)
    tx = optax.inject_hyperparams(optax.sgd)(0.05)
    monitor = pf.Monitor(pf.Objective(loss, jnp.asarray(theta), data), optimizer=tx, k=1, every=25)
    theta, state = jnp.asarray(theta), tx.init(theta)
    gradient = jax.jit(jax.value_and_grad(small_loss))
    for step in range(steps):
        if step == at:
            state.hyperparams["learning_rate"] = jnp.asarray(2.0)
        batch = jax.tree.map(lambda leaf, step=step: leaf[step], batches)
        value, slope = gradient(theta, batch)
        updates, state = tx.update(slope, state)
        theta = optax.apply_updates(theta, updates)
        monitor.observe(step + 1, theta, state=state, updates=updates, gradient=slope, loss=value, batch=batch)
    return monitor


def test_a_monitor_tells_a_spike_as_an_event_and_first_in_its_summary():
    monitor = trained(steps=100, at=60)
    (spike,) = [event for event in monitor.events if event.kind == "spike"]
    assert spike.cause == "rate"
    assert next(row["step"] for row in monitor.rows if spike in row["events"]) <= spike.step + 15
    assert monitor.summary().startswith(f"The loss {str(spike).removeprefix('the loss ')}.")


def test_a_loop_that_ends_in_a_spike_has_it_in_its_summary():
    monitor = watch_bowl([0.4] * 3 + [4.0] * 5)
    assert not [event for event in monitor.events if event.kind == "spike"]
    assert monitor.summary().startswith("The loss spiked at step 4, from about ")
    assert "the rate was raised by a factor of 10 at step 3, to 4." in monitor.summary()


def test_a_restored_monitor_begins_anew_with_what_is_usual():
    first, second = watch_bowl([0.4] * 3 + [4.0] * 5), watch_bowl([0.4])
    second.restore({name: np.asarray(array) for name, array in first.state.items()})
    assert "spiked" not in second.summary()


def noisy(levels, seed=0):
    """Rows of losses about these levels, each step of which lowers the loss of its own batch a little."""
    noise = np.random.default_rng(seed).normal(0, 0.08, len(levels))
    steps = dict(
        batch_loss_change=-0.01, batch_gradient_norm=1.0, batch_slope=-0.02, update_norm=0.1, realised_edge=0.5
    )
    return [{"step": i, "batch_loss": level + noise[i], **steps} for i, level in enumerate(levels, 0)]


FALLING = np.linspace(2.4, 1.5, 100)


@pytest.mark.parametrize("rise", [np.linspace(1.5, 2.3, 60), np.linspace(1.5, 2.3, 200)])
def test_a_rise_that_is_slower_than_the_noise_is_a_setback(rise):
    table = noisy([*FALLING, *rise, *np.full(60, 2.3)])
    (event,) = [event for event in spikes(table) if event.kind == "setback"]
    assert 100 <= event.step <= 100 + len(rise)
    assert event.limit == pytest.approx(1.5, abs=0.1)
    assert str(event).startswith("the loss rose from step")


def test_a_rise_that_comes_back_soon_is_no_setback():
    hill = np.concatenate([np.linspace(1.5, 1.8, 15), np.linspace(1.8, 1.5, 15)])
    assert not spikes(noisy([*FALLING, *hill, *np.full(60, 1.5)]))


def test_a_monitor_says_that_the_loss_has_not_come_back_and_gives_no_rate():
    theta, monitor = jnp.ones(2), pf.Monitor(BOWL, k=1, every=20)
    losses = [row["batch_loss"] for row in noisy([*FALLING, *np.full(80, 2.3)])]
    for step, loss in enumerate(losses, 1):
        gradient = BOWL.gradient(theta)
        monitor.observe(step, theta, 0.1, updates=-1e-3 * gradient, gradient=gradient, loss=loss)
    assert "The loss hasn't come back: it is about 2." in monitor.summary()
    assert "The rate is" not in monitor.summary()


def test_gradients_that_are_clipped_are_not_to_be_clipped_at_a_larger_norm():
    table = [{**row, "clipped": True} for row in rows("batch: inputs, adam", 0)]
    (spike,) = spikes(table)
    assert "clipped already" in str(spike)


def test_without_a_threshold_the_curvature_is_not_asked_for():
    table = [{"step": i, "batch_loss": 1.0, "batch_loss_change": 0.0} for i in range(40)]
    table[-1]["batch_loss_change"] = 4.0
    table += [{**table[0], "step": 40 + i, "batch_loss": 5.0 + i} for i in range(8)]
    measured = [{**row, "eigenvalue_0": 3.0} for row in table]
    assert "measure the curvature" in " ".join(map(str, spikes(table))).lower()
    assert 'measure="sharpness"' not in " ".join(map(str, spikes(measured)))
