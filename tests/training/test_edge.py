"""What is recorded of each optimiser's edge: its own metric, against its own threshold."""

import re
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import optax
import pytest

import principalflow as pf
from principalflow.training import Options, run
from principalflow.training._member import Member
from principalflow.training._optimizer import edge, optimizer

IRIS = Options(
    data="iris", hidden=(6,), learning_rate=0.1, steps=10, record_every=5, evaluate_every=0, precision="float64"
)
ADAM = replace(IRIS, optimizer="adam", keep_every=1)


def recorded(folder):
    frame = pf.runs.load(folder)
    return frame[frame["eigenvalue_0"].notna()]


def averages(objective, thetas, beta2):
    """The average of squared gradients after the steps from these parameters."""
    nu = 0.0
    for theta in thetas:
        nu = beta2 * nu + (1 - beta2) * np.asarray(objective.gradient(theta)) ** 2
    return nu


@pytest.mark.parametrize(
    ("options", "metric", "threshold"),
    [
        (dict(optimizer="adam"), lambda nu, t: (1 - 0.9**t) * (np.sqrt(nu / (1 - 0.999**t)) + 1e-8), 380),
        (dict(optimizer="adam", beta1=0.0), lambda nu, t: np.sqrt(nu / (1 - 0.999**t)) + 1e-8, 20),
        (dict(optimizer="adamw"), lambda nu, t: (1 - 0.9**t) * (np.sqrt(nu / (1 - 0.999**t)) + 1e-8), 379.81),
        (
            dict(optimizer="nadam", beta1=0.5),
            lambda nu, t: (1 - 0.5**t) * (np.sqrt(nu / (1 - 0.999**t)) + 1e-8),
            3 / (0.5 * (1.5 + 0.5 * (1 - 0.5**10) / (1 - 0.5**11)) * 0.1),
        ),
        (dict(optimizer="rmsprop", beta2=0.9, eps=1e-3), lambda nu, t: np.sqrt(nu) + 1e-3, 20),
    ],
    ids=["adam", "adam without momentum", "adamw", "nadam", "rmsprop"],
)
def test_the_curvature_is_that_in_the_optimisers_metric_against_its_own_threshold(tmp_path, options, metric, threshold):
    options = replace(ADAM, **options)
    run(options, tmp_path)
    row, (_, thetas) = recorded(tmp_path).iloc[-1], pf.runs.iterates(tmp_path)
    objective = pf.training.objective(options)
    P = metric(averages(objective, thetas[:10], options.beta2 or 0.999), 10)
    dense = np.asarray(objective.hessian(thetas[10])) / np.sqrt(np.outer(P, P))
    assert row["step"] == 10
    assert row["eigenvalue_0"] == pytest.approx(np.linalg.eigvalsh(dense)[-1], rel=1e-6)
    assert row["threshold"] == pytest.approx(threshold)
    assert row["edge"] == pytest.approx(row["eigenvalue_0"] / threshold)


@pytest.mark.parametrize(
    ("name", "tx"),
    [
        ("adam", optax.adam(0.1)),
        ("adamw", optax.adamw(0.1, weight_decay=0.01)),
        ("nadam", optax.nadam(0.1)),
        ("rmsprop", optax.rmsprop(0.1, decay=0.99, eps_in_sqrt=False)),
    ],
)
def test_the_edge_is_the_one_that_is_read_off_optaxs_optimiser(name, tx):
    ours, theta = optimizer(replace(ADAM, optimizer=name)), jnp.array([1.0, -2.0, 3.0])
    state, their_state = ours.init(theta), tx.init(theta)
    steps = 3
    for gradient in np.random.default_rng(0).standard_normal((steps, 3)):
        _, state, _ = ours.update(None, gradient, state, theta, jnp.asarray(0.1))
        _, their_state = tx.update(gradient, their_state, theta)
    found, read = edge(replace(ADAM, optimizer=name), state, steps, 0.1), pf.optimizers.edge(tx, their_state, theta)
    assert not read.unknown
    np.testing.assert_allclose(found.preconditioner, read.preconditioner, rtol=1e-6)
    np.testing.assert_allclose(found.second_moment, read.second_moment, rtol=1e-6)
    assert (found.formula, found.threshold) == (read.formula, pytest.approx(read.threshold))


@pytest.mark.parametrize("name", ["adam", "rmsprop"])
def test_before_the_first_step_there_is_no_metric_and_nothing_is_measured(tmp_path, name):
    run(replace(ADAM, optimizer=name), tmp_path)
    assert recorded(tmp_path)["step"].tolist() == [5, 10]


def test_where_nothing_is_measured_the_loss_of_all_samples_is_recorded_beside_that_of_the_batch(tmp_path):
    run(replace(ADAM, batch_size=40), tmp_path)
    frame, objective = pf.runs.load(tmp_path), pf.training.objective(ADAM)
    assert frame["loss"][0] == pytest.approx(float(objective.value(objective.theta)))


@pytest.mark.parametrize(
    ("options", "times_h"),
    [(dict(), 2), (dict(momentum=0.5), 3), (dict(optimizer="dal"), 2), (dict(optimizer="dog"), 2)],
    ids=["gd", "momentum", "dal", "dog"],
)
def test_steps_along_the_gradient_have_the_threshold_of_their_rate(tmp_path, options, times_h):
    rate = 0.1 if options.get("optimizer") is None else None
    run(replace(IRIS, learning_rate=rate, **options), tmp_path)
    rows = recorded(tmp_path)
    np.testing.assert_allclose(rows["threshold"] * rows["learning_rate"], times_h)


@pytest.mark.parametrize("options", [dict(optimizer="prodigy"), dict(optimizer="dal", per_parameter=True, factor=0.01)])
def test_where_no_threshold_is_known_it_is_said_and_the_hessian_itself_is_recorded(tmp_path, options):
    options = replace(IRIS, learning_rate=None, steps=5, keep_every=5, **options)
    run(options, tmp_path)
    rows, objective = recorded(tmp_path), pf.training.objective(options)
    assert "threshold" not in rows
    assert "no threshold is known for" in rows["events"].iloc[0][0]
    largest = np.linalg.eigvalsh(objective.hessian(pf.runs.iterates(tmp_path)[1][-1]))[-1]
    assert rows["eigenvalue_0"].iloc[-1] == pytest.approx(largest, rel=1e-6)


def test_a_crossing_is_told_with_the_optimisers_formula(tmp_path):
    run(replace(ADAM, learning_rate=0.3, steps=80, loss="mean-square"), tmp_path)
    events = [event for listed in pf.runs.load(tmp_path)["events"].dropna() for event in listed]
    assert any("2(1+b1)/((1-b1)h), adam's threshold with b1 = 0.9," in event for event in events)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (dict(), r"h λ₀ 0\.\d{3} "),
        (dict(momentum=0.9), r"λ₀ 0\.\d{3} of its threshold"),
        (dict(optimizer="adam"), r"λ₀ 0\.\d{3} of its threshold"),
        (dict(optimizer="prodigy", learning_rate=None), r"λ₀ \d+\.\d+ "),
    ],
)
def test_progress_tells_the_sharpness_by_its_threshold(tmp_path, monkeypatch, options, words):
    told, close = [], Member.close
    monkeypatch.setattr(Member, "close", lambda self, *end: told.append(self.words()) or close(self, *end))
    run(replace(IRIS, **options), tmp_path)
    assert re.search(words, told[0])
