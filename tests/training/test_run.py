"""Training runs: right numbers, the same ones after an interruption, and shared work in sweeps."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace

import jax
import numpy as np
import optax
import optax.contrib
import pytest
from cases import compilations

import principalflow as pf
from principalflow import _steps
from principalflow.training import Options, _run, run
from principalflow.training._member import batch
from principalflow.training._problem import problem

IRIS = Options(
    data="iris", hidden=(6,), learning_rate=0.1, steps=20, record_every=5, evaluate_every=10, precision="float64"
)
DAL = replace(IRIS, optimizer="dal", learning_rate=None)


def metrics(path):
    return (path / "metrics.jsonl").read_bytes()


def iris_objective(seed=0):
    iris = pf.data.load("iris")
    model = pf.models.build("mlp", (4,), 3, jax.random.key(seed), hidden=(6,), dtype=np.float64)
    return pf.Objective(pf.models.loss(), model, (iris.inputs.astype(float), iris.labels))


def test_gd_is_descent(tmp_path):
    run(IRIS, tmp_path)
    frame, objective = pf.runs.load(tmp_path), iris_objective()
    path = pf.descend(objective, objective.theta, 0.1, 20)
    np.testing.assert_allclose(frame["loss"], path.losses, rtol=1e-12)
    assert frame["step"].tolist() == list(range(21))
    assert frame.attrs["status"] == "completed"


def test_momentum_is_heavy_ball(tmp_path):
    run(replace(IRIS, momentum=0.9), tmp_path)
    objective = iris_objective()
    theta, velocity, losses = objective.theta, 0.0, []
    for _ in range(21):
        losses.append(float(objective.value(theta)))
        velocity = 0.9 * velocity + objective.gradient(theta)
        theta = theta - 0.1 * velocity
    np.testing.assert_allclose(pf.runs.load(tmp_path)["loss"], losses, rtol=1e-12)


def test_records_are_those_of_the_monitor_at_their_steps(tmp_path):
    run(IRIS, tmp_path)
    frame, objective = pf.runs.load(tmp_path), iris_objective()
    recorded = frame[frame["eigenvalue_0"].notna()]
    assert recorded["step"].tolist() == [0, 5, 10, 15, 20]
    theta = pf.descend(objective, objective.theta, 0.1, 15).thetas[15]
    largest = pf.spectrum.top_eigenpairs(objective, theta, 1).values[0]
    assert recorded["eigenvalue_0"].iloc[3] == pytest.approx(largest, rel=1e-9)  # few parameters: the dense method
    assert frame[frame["test_accuracy"].notna()]["step"].tolist() == [0, 10, 20]


def test_the_iterates_of_every_so_many_steps_are_kept(tmp_path):
    run(replace(IRIS, keep_every=6), tmp_path)
    steps, thetas = pf.runs.iterates(tmp_path)
    path = pf.descend(iris_objective(), iris_objective().theta, 0.1, 20, keep=6)
    assert steps.tolist() == path.steps.tolist() == [0, 6, 12, 18]
    np.testing.assert_allclose(thetas, path.thetas, rtol=1e-12)


def test_a_run_whose_every_step_is_recorded_compiles_no_steps(tmp_path):
    with compilations("_advance") as compiled:
        run(replace(IRIS, record_every=1), tmp_path)
    assert compiled == []


@pytest.mark.parametrize("optimizer", ["gd", "adam", "dog", "dal"])
def test_while_its_loss_is_in_use_another_run_compiles_no_steps(tmp_path, optimizer):
    options = replace(IRIS, optimizer=optimizer, learning_rate=0.1 if optimizer in ("gd", "adam") else None)
    _in_use = pf.training.objective(options)
    run(options, tmp_path / "once")
    with compilations("jit(_advance)") as compiled:
        run(replace(options, seed=1), tmp_path / "again")
    assert compiled == []


def test_the_objective_of_options_is_the_one_that_they_train():
    ours, theirs = pf.training.objective(IRIS), iris_objective()
    np.testing.assert_array_equal(ours.theta, theirs.theta)
    assert ours.value(ours.theta) == theirs.value(theirs.theta)


def test_a_sweep_has_no_single_objective():
    with pytest.raises(ValueError, match="options must be those of a single run, got a sweep of 2"):
        pf.training.objective(replace(IRIS, seed=(0, 1)))


def test_sgd_takes_every_sample_once_an_epoch():
    options = replace(IRIS, optimizer="sgd", batch_size=40)
    seen = np.concatenate([batch(options, 120, step) for step in range(3, 6)])
    assert sorted(seen) == list(range(120))
    assert not np.array_equal(seen, np.concatenate([batch(options, 120, step) for step in range(3)]))


def test_the_loss_of_a_batch_is_called_so(tmp_path):
    run(replace(IRIS, optimizer="sgd", batch_size=40), tmp_path)
    frame = pf.runs.load(tmp_path)
    assert frame["batch_loss"].notna().all()
    assert frame[frame["loss"].notna()]["step"].tolist() == [0, 5, 10, 15, 20]


def test_dal_takes_its_own_rate(tmp_path):
    run(replace(DAL, power=0.5), tmp_path)
    frame, objective = pf.runs.load(tmp_path), iris_objective()
    gradient = objective.gradient(objective.theta)
    unit = gradient / np.linalg.norm(gradient)
    curvature = np.linalg.norm(objective.hvp(objective.theta, unit))
    assert frame["learning_rate"][0] == pytest.approx(min(2 / curvature**0.5, 5), rel=1e-9)
    assert frame["loss"].iloc[-1] < frame["loss"][0]


def taken_by(tx, steps=20):
    """The losses of an optax optimiser on iris, and the lengths of its updates over those of the gradients."""
    objective = iris_objective()
    theta, state, losses, rates = objective.theta, tx.init(objective.theta), [], []
    for _ in range(steps + 1):
        gradient = objective.gradient(theta)
        update, state = tx.update(gradient, state, theta)
        losses.append(float(objective.value(theta)))
        rates.append(float(np.linalg.norm(update) / np.linalg.norm(gradient)))
        theta = theta + update
    return losses, rates


RESCALING = {
    "adam": (dict(beta1=0.8, beta2=0.9, eps=1e-3), optax.adam(0.1, b1=0.8, b2=0.9, eps=1e-3)),
    "adamw": (dict(weight_decay=0.5), optax.adamw(0.1, weight_decay=0.5)),
    "nadam": ({}, optax.nadam(0.1)),
    "rmsprop": (dict(eps=1e-6), optax.rmsprop(0.1, decay=0.99, eps=1e-6, eps_in_sqrt=False)),
}


@pytest.mark.parametrize("name", RESCALING)
def test_optimisers_that_rescale_are_those_of_optax(tmp_path, name):
    options, tx = RESCALING[name]
    run(replace(IRIS, optimizer=name, record_every=0, **options), tmp_path)
    frame = pf.runs.load(tmp_path)
    np.testing.assert_allclose(frame["loss"], taken_by(tx)[0], rtol=1e-9)
    np.testing.assert_array_equal(frame["learning_rate"], 0.1)


@pytest.mark.parametrize("name", ["prodigy", "dog"])
def test_who_chooses_its_rate_has_the_one_of_its_updates_length(tmp_path, name):
    run(replace(IRIS, optimizer=name, learning_rate=None), tmp_path)
    frame = pf.runs.load(tmp_path)
    losses, rates = taken_by(getattr(optax.contrib, name)())
    np.testing.assert_allclose(frame["loss"], losses, rtol=1e-9)
    np.testing.assert_allclose(frame["learning_rate"], rates, rtol=1e-9)


def test_the_stem_is_that_of_the_network():
    options = Options(data="digits", model="resnet18", width=1 / 16, learning_rate=0.1)
    small, large = (problem(replace(options, stem=stem), False).objective.theta.size for stem in ("small", "imagenet"))
    assert large - small == (7 * 7 - 3 * 3) * 4  # the first convolution, from 1 channel to 64 / 16


@pytest.mark.parametrize("curvature", ["hvp", "finite_difference"])
def test_chunks_change_nothing_but_rounding(tmp_path, curvature):
    options = replace(DAL, curvature=curvature, steps=5, record_every=0)
    run(options, tmp_path / "whole")
    run(replace(options, chunk=50), tmp_path / "chunks")
    whole, chunks = (pf.runs.load(tmp_path / name)["loss"] for name in ("whole", "chunks"))
    np.testing.assert_allclose(chunks, whole, rtol=1e-9)


def test_a_run_that_diverges_is_a_result(tmp_path):
    statuses = run(replace(IRIS, learning_rate=1e30, loss="mean-square"), tmp_path)
    frame = pf.runs.load(tmp_path)
    assert set(statuses.values()) == {"diverged"}
    assert np.isnan(frame["loss"].iloc[-1])
    assert "not finite at step" in frame.attrs["message"]


def test_a_regression_trains(tmp_path):
    values = np.random.default_rng(0).standard_normal((40, 3))
    lines = ["a,b,target", *(f"{a},{b},{c}" for a, b, c in values)]
    (tmp_path / "table.csv").write_text("\n".join(lines))
    options = replace(IRIS, data=str(tmp_path / "table.csv"), loss="mean-square")
    run(options, tmp_path / "run")
    assert {"loss", "test_loss"} <= set(pf.runs.load(tmp_path / "run"))
    with pytest.raises(ValueError, match="loss must be mean-square"):
        run(replace(options, loss="cross-entropy"), tmp_path / "other")


def stop_after(monkeypatch, calls, name="advance"):
    """Sends Ctrl-C after so many compiled calls, once."""
    advance, left = getattr(_steps, name), [calls]

    def counted(*arguments):
        left[0] -= 1
        if not left[0]:
            signal.raise_signal(signal.SIGINT)
        return advance(*arguments)

    monkeypatch.setattr(_steps, name, counted)


INTERRUPTED = {
    "gd": replace(IRIS, momentum=0.5, schedule="cosine", warmup=3, keep_every=3),
    "sgd": replace(IRIS, optimizer="sgd", batch_size=40, precision="float32"),
    "dal": replace(
        IRIS, optimizer="dal", learning_rate=None, momentum=0.9, average=0.9, batch_size=40, curvature_every=3
    ),
    "dog": replace(IRIS, optimizer="dog", learning_rate=None, batch_size=40, precision="float32"),
    "adamw": replace(IRIS, optimizer="adamw", batch_size=40, precision="float32"),
    # Above 500 parameters, where eigenpairs start at those of the record before.
    "iterative": replace(IRIS, hidden=(20, 20), learning_rate=1.5, record_every=2),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", INTERRUPTED)
def test_an_interrupted_run_goes_on_with_the_same_numbers(tmp_path, monkeypatch, name):
    options = INTERRUPTED[name]
    run(options, tmp_path / "whole")
    for calls in (1, 3, 2):
        with monkeypatch.context() as patch:
            stop_after(patch, calls)
            statuses = run(options, tmp_path / "cut")
        assert set(statuses.values()) == {"interrupted"}
    run(options, tmp_path / "cut")
    assert metrics(tmp_path / "cut") == metrics(tmp_path / "whole")
    if options.keep_every:
        assert (tmp_path / "cut/iterates.npy").read_bytes() == (tmp_path / "whole/iterates.npy").read_bytes()


def test_more_steps_go_on_with_the_same_numbers(tmp_path):
    run(replace(IRIS, steps=13), tmp_path / "longer")
    run(IRIS, tmp_path / "longer")
    run(IRIS, tmp_path / "whole")
    assert metrics(tmp_path / "longer") == metrics(tmp_path / "whole")


def test_a_run_that_is_made_longer_leaves_a_users_folders_alone(tmp_path):
    run(replace(IRIS, steps=13), tmp_path)
    folder = tmp_path / "checkpoints"
    shutil.copytree(folder / "0000000013", folder / "best")
    (folder / "0000000020").write_text("named like a step to come")
    run(IRIS, tmp_path)
    assert pf.training.restore(tmp_path).step == 20
    assert (folder / "best").is_dir()
    assert (folder / "0000000020").read_text() == "named like a step to come"


@pytest.mark.filterwarnings("ignore:the checkpoint of step")
def test_a_run_that_can_not_go_on_keeps_its_config(tmp_path):
    run(replace(IRIS, steps=13), tmp_path)
    before = (tmp_path / "config.json").read_bytes()
    (tmp_path / "metrics.jsonl").write_text("")
    with pytest.raises(pf.runs.RunError, match="none of the checkpoints"):
        run(IRIS, tmp_path)
    assert (tmp_path / "config.json").read_bytes() == before


def test_a_checkpoint_of_another_network_is_refused(tmp_path):
    run(replace(IRIS, steps=13), tmp_path)
    with pf.runs.reopen(tmp_path) as opened:
        opened.checkpoint(14, {"state_0": np.zeros(3)})
    with pytest.raises(pf.runs.RunError, match=r"the checkpoint of step 14 .* is not one of this training"):
        run(IRIS, tmp_path)


@pytest.mark.parametrize("steps", ['"many"', "null", "[20]"])
def test_a_config_with_steps_that_are_no_number_is_one_with_other_options(tmp_path, steps):
    run(replace(IRIS, steps=3), tmp_path)
    config = (tmp_path / "config.json").read_text().replace('"steps": 3', f'"steps": {steps}')
    (tmp_path / "config.json").write_text(config)
    with pytest.raises(pf.runs.RunError, match=r"is a run with steps .*, and 20 was asked for"):
        run(IRIS, tmp_path)


def test_a_clock_that_stands_still_changes_nothing(tmp_path, monkeypatch):
    run(IRIS, tmp_path / "whole")
    monkeypatch.setattr(time, "perf_counter", lambda: 5.0)
    monkeypatch.setattr(time, "monotonic", lambda: 5.0)
    assert list(run(IRIS, tmp_path / "still").values()) == ["completed"]
    assert metrics(tmp_path / "still") == metrics(tmp_path / "whole")


def test_a_finished_run_is_left_alone(tmp_path):
    run(IRIS, tmp_path)
    before, said = metrics(tmp_path), []
    assert run(IRIS, tmp_path, say=said.append) == {str(tmp_path): "completed"}
    assert metrics(tmp_path) == before
    assert said == [f"{tmp_path} is completed already."]


@pytest.mark.parametrize("on_terminal", [True, False])
@pytest.mark.parametrize("progress", [None, False])
def test_how_far_a_run_is_is_said_where_no_bar_shows_it(tmp_path, monkeypatch, on_terminal, progress):
    monkeypatch.setattr(_run, "_SECONDS_BETWEEN_WORDS", 0)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: on_terminal)
    said = []
    run(IRIS, tmp_path, progress=progress, say=said.append)
    has_bar = on_terminal and progress is None
    assert any("of 20: loss" in sentence for sentence in said) != has_bar


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(learning_rate=0.2), "learning_rate 0.1, and 0.2 was asked for"),
        (dict(steps=10), "steps 20, and 10 was asked for.* longer, not shorter"),
        (dict(hidden=(7,)), "hidden"),
    ],
)
def test_a_run_with_other_options_is_refused(tmp_path, change, message):
    run(IRIS, tmp_path)
    with pytest.raises(pf.runs.RunError, match=message):
        run(replace(IRIS, **change), tmp_path)


def test_a_run_from_before_there_was_an_option_goes_on(tmp_path):
    run(replace(IRIS, steps=13), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    del config["stem"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert list(run(IRIS, tmp_path).values()) == ["completed"]


def test_a_schedule_that_ends_at_zero_can_not_be_made_longer(tmp_path):
    options = replace(IRIS, schedule="cosine")
    run(options, tmp_path)
    with pytest.raises(pf.runs.RunError, match="steps 20, and 30"):
        run(replace(options, steps=30), tmp_path)


SWEEP = replace(IRIS, learning_rate=(0.1, 0.3, 1e30), seed=(0, 1), loss="mean-square")


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sweep")
    with compilations("jit(_advance)") as compiled:
        statuses = run(SWEEP, folder)
    return folder, statuses, compiled


def test_a_sweep_compiles_once(sweep):
    assert len(sweep[2]) == 1


def test_a_sweep_is_its_runs(sweep, tmp_path):
    folder, statuses, _ = sweep
    assert sorted(statuses.values()) == ["completed"] * 4 + ["diverged"] * 2
    run(replace(SWEEP, learning_rate=0.3, seed=1), tmp_path)
    assert metrics(folder / "learning_rate=0.3,seed=1") == metrics(tmp_path)


def test_runs_that_are_computed_together_are_the_same_to_rounding(sweep, tmp_path):
    statuses = run(SWEEP, tmp_path, together=True)
    assert list(statuses.values()) == list(sweep[1].values())
    apart, together = pf.runs.load(sweep[0]), pf.runs.load(tmp_path)
    kept = ~apart["run"].str.contains("1e30|1e\\+30")
    np.testing.assert_allclose(together["loss"][kept], apart["loss"][kept], rtol=1e-9)


@pytest.mark.slow
def test_a_sweep_that_is_computed_together_goes_on_with_the_same_numbers(tmp_path, monkeypatch):
    """One of its runs diverges, so that lanes end at different times."""
    options = replace(SWEEP, seed=0, momentum=0.5)
    run(options, tmp_path / "whole", together=True)
    for calls in (2, 3):
        with monkeypatch.context() as patch:
            stop_after(patch, calls, "advance_together")
            run(options, tmp_path / "cut", together=True)
    run(options, tmp_path / "cut", together=True)
    for name in options.runs():
        assert metrics(tmp_path / "cut" / name) == metrics(tmp_path / "whole" / name)


def test_batches_can_be_computed_together(tmp_path):
    options = replace(IRIS, optimizer="sgd", batch_size=40, seed=(0, 1), steps=6)
    run(options, tmp_path / "together", together=True)
    run(options, tmp_path / "apart")
    together, apart = (pf.runs.load(tmp_path / name)["batch_loss"] for name in ("together", "apart"))
    np.testing.assert_allclose(together, apart, rtol=1e-9)


def test_a_run_that_goes_on_leaves_its_checkpoint_alone(tmp_path, monkeypatch):
    """To save it again would be a moment without it."""
    options = replace(IRIS, checkpoint_every=1, steps=5)
    with monkeypatch.context() as patch:
        stop_after(patch, 3)
        run(options, tmp_path)
    saves = []
    monkeypatch.setattr(pf.runs.Run, "checkpoint", lambda self, step, arrays: saves.append(step))
    run(options, tmp_path)
    assert saves == [4, 5]


def test_a_sweep_is_not_put_into_a_single_run(tmp_path):
    run(IRIS, tmp_path)
    with pytest.raises(pf.runs.RunError, match="is a single run"):
        run(replace(IRIS, seed=(0, 1)), tmp_path)


def test_a_run_that_another_process_has_is_refused_before_any_work(tmp_path):
    run(IRIS, tmp_path)
    with pf.runs.reopen(tmp_path), pytest.raises(pf.runs.RunError, match=f"in use by another process .{os.getpid()}"):
        run(replace(IRIS, steps=30), tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(batch_size=1000, optimizer="sgd"), "batch_size must be at most the 120 samples"),
        (dict(model="vgg11", hidden=Options.hidden), r"\(height, width, channels\)"),
        (dict(data="irys"), "Did you mean 'iris'"),
    ],
)
def test_what_does_not_fit_is_refused_before_any_work(tmp_path, change, message):
    with pytest.raises(ValueError, match=message):
        run(replace(IRIS, **change), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def started(folder, cache, *arguments):
    command = [sys.executable, "-m", "principalflow.cli", "train", "--out", str(folder), *arguments]
    caching = {"JAX_COMPILATION_CACHE_DIR": str(cache), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    return subprocess.Popen(command, env={**os.environ, **caching}, stderr=subprocess.DEVNULL)


@pytest.mark.slow
def test_a_run_killed_at_random_moments_gives_the_same_metrics(tmp_path):
    options = "--data iris --hidden 30 30 --optimizer sgd --batch-size 30 --learning-rate 0.05 --momentum 0.9"
    arguments = f"{options} --steps 100 --record-every 4 --checkpoint-every 11 --evaluate-every 50".split()
    whole, killed, cache = tmp_path / "whole", tmp_path / "killed", tmp_path / "cache"
    assert started(whole, cache, *arguments).wait() == 0
    length, moments = len(metrics(whole)), random.Random(0)
    for share in (0, 0.3, 0.6):  # the last leaves time enough to be killed in
        process = started(killed, cache, *arguments)
        file = killed / ("metrics.jsonl" if share else "lock")  # the lock is the first file there is
        while process.poll() is None and not (file.exists() and file.stat().st_size >= share * length):
            time.sleep(0.001)
        time.sleep(0.05 * moments.random())
        process.kill()
        assert process.wait() == -signal.SIGKILL
    assert started(killed, cache, *arguments).wait() == 0
    assert metrics(killed) == metrics(whole)
    names = [{path.relative_to(run).as_posix() for path in run.glob("*/*")} for run in (killed, whole)]
    assert names[0] == names[1] == {"checkpoints/0000000099", "checkpoints/0000000100"}  # nothing is left behind
    with pf.runs.reopen(killed) as opened:  # without a warning: the metrics have the digest that was saved
        assert opened.restore()[0] == 100
