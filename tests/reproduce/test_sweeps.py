import signal
from dataclasses import replace

import jax
import numpy as np
import pandas
import pytest
from filelock import FileLock, Timeout
from matplotlib.figure import Figure
from pandas.testing import assert_frame_equal
from reproduce.cases import experiment

import principalflow as pf
from principalflow import _steps
from principalflow._lab.kept import place, trainings_in
from principalflow._lab.result import load
from principalflow.reproduce import PROFILES, Result
from principalflow.reproduce._dal_settings import Config
from principalflow.reproduce._sweeps import (
    Sweep,
    by_run,
    contender,
    directory,
    ends,
    objective_of,
    over_seeds,
    setting,
    swept,
)
from principalflow.training import Options
from principalflow.training._member import Member, batch
from principalflow.training._tables import _curvature

OPTIONS = Options(
    data="iris",
    hidden=(4,),
    steps=4,
    record_every=2,
    evaluate_every=2,
    directions=1,
    checkpoint_every=2,
    learning_rate=(0.1, 0.2),
    seed=(0, 1),
    precision="float64",
)
SWEEP = Sweep(OPTIONS)
SINGLE = replace(OPTIONS, learning_rate=0.1, seed=0, record_every=0, evaluate_every=0)
GONE = replace(SINGLE, learning_rate=1e200)
DAL = replace(OPTIONS, optimizer="dal", learning_rate=None, seed=0)


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A folder with the finished runs of the sweep."""
    folder = tmp_path_factory.mktemp("kept")
    with jax.enable_x64(True), trainings_in(folder):
        SWEEP.make()
    return folder


@pytest.fixture
def table(kept):
    with trainings_in(kept):
        return swept(SWEEP)


@pytest.fixture
def path():
    """The descent of the first run."""
    objective = objective_of(SWEEP)
    return pf.descend(objective, objective.theta, 0.1, OPTIONS.steps)


def first(table):
    return table[(table["contender"] == "h = 0.1") & (table["seed"] == 0)]


def test_the_losses_are_those_of_descent(table, path):
    np.testing.assert_allclose(first(table)["loss"], path.losses, rtol=1e-12)


def test_there_is_a_row_for_each_step_of_each_run(table):
    assert table.groupby(["contender", "seed"]).size().to_dict() == {
        ("h = 0.1", 0): 5,
        ("h = 0.1", 1): 5,
        ("h = 0.2", 0): 5,
        ("h = 0.2", 1): 5,
    }


def test_the_length_of_the_update_is_the_rate_times_the_norm_of_the_gradient(table, path):
    norms = [np.linalg.norm(objective_of(SWEEP).gradient(theta)) for theta in path.thetas]
    np.testing.assert_allclose(first(table)["update_norm"], 0.1 * np.array(norms), rtol=1e-12)


def test_the_curvature_is_that_of_a_dense_hessian_along_the_gradient(table, path):
    objective, theta = objective_of(SWEEP), path.thetas[2]
    gradient = objective.gradient(theta)
    product = jax.hessian(objective.value)(theta) @ (gradient / np.linalg.norm(gradient))
    assert first(table)["measured_curvature"].iloc[2] == pytest.approx(float(np.linalg.norm(product)), rel=1e-10)


def test_the_drift_is_its_estimate(table, path):
    objective = objective_of(SWEEP)
    assert first(table)["drift"].iloc[2] == pytest.approx(pf.drift.estimate(objective, path.thetas[2], 0.1), rel=1e-10)


def test_what_was_not_recorded_at_a_step_is_nan(table):
    recorded = ["sharpness", "measured_curvature", "test_accuracy", "train_accuracy"]
    assert first(table)[recorded].isna().all(axis=1).tolist() == [False, True, False, True, False]
    assert first(table)[recorded].notna().all(axis=1).tolist() == [True, False, True, False, True]


def test_every_step_has_a_drift_that_follows_from_its_curvature(table):
    expected = table["learning_rate"] / 2 * table["curvature"] * table["update_norm"]
    assert table["drift"].notna().all()
    np.testing.assert_allclose(table["drift"], expected, rtol=1e-12)


def test_the_curvature_at_a_record_is_the_measured_one(table):
    there = table["measured_curvature"].notna()
    np.testing.assert_allclose(table["curvature"][there], table["measured_curvature"][there], rtol=1e-12)


def test_the_curvature_is_log_linear_between_records(table):
    before, between, after = first(table)["curvature"].iloc[:3]
    assert before != after
    assert between == pytest.approx(np.sqrt(before * after), rel=1e-12)


def test_dals_rate_tells_the_curvature_that_is_measured():
    table = swept(Sweep(replace(DAL, power=(1.0, 0.5), max_learning_rate=1e6)))
    from_rate = 2 / table["learning_rate"]
    from_rate = from_rate.where(table["power"] == 1, from_rate**2)
    recorded = table[table["measured_curvature"].notna()]
    np.testing.assert_array_equal(table["curvature"], from_rate)
    np.testing.assert_allclose(recorded["curvature"], recorded["measured_curvature"], rtol=1e-10)


def test_at_dals_cap_the_curvature_is_interpolated():
    table = swept(Sweep(replace(DAL, max_learning_rate=1e-3)))
    assert (table["learning_rate"] == 1e-3).all()
    measured = table["measured_curvature"].dropna().to_numpy()
    between = np.sqrt(measured[:-1] * measured[1:])
    np.testing.assert_allclose(table["curvature"], [measured[0], between[0], measured[1], between[1], measured[2]])


def test_only_the_steps_at_the_cap_are_interpolated():
    rate, measured = pandas.Series([0.5, 0.25, 5.0, 5.0, 4.0]), pandas.Series([0.4, np.nan, np.nan, np.nan, 0.025])
    found = _curvature(Options(optimizer="dal", power=1.0), pandas.Series(range(5)), rate, measured)
    np.testing.assert_allclose(found, [4.0, 8.0, 0.1, 0.05, 0.5])


def test_at_the_cap_the_curvature_is_at_most_what_the_cap_says():
    rate, measured = pandas.Series([5.0, 5.0]), pandas.Series([3.0, 0.1])
    found = _curvature(Options(optimizer="dal", power=0.5), pandas.Series(range(2)), rate, measured)
    np.testing.assert_allclose(found, [0.4**2, 0.1])


def test_a_rate_for_each_parameter_tells_no_curvature():
    rate, measured = pandas.Series([0.5, 0.25]), pandas.Series([3.0, np.nan])
    found = _curvature(Options(optimizer="dal", per_parameter=True), pandas.Series(range(2)), rate, measured)
    np.testing.assert_allclose(found, 3.0)


def test_a_sweep_of_one_run_that_recorded_nothing_else_has_its_losses(path):
    table = swept(Sweep(SINGLE))
    np.testing.assert_allclose(table["loss"], path.losses, rtol=1e-12)
    assert table[["sharpness", "drift", "curvature", "measured_curvature", "test_accuracy"]].isna().all(axis=None)


def test_on_batches_the_loss_is_that_of_all_samples_and_the_update_that_of_the_batch():
    options = replace(OPTIONS, optimizer="dal", learning_rate=None, batch_size=40, seed=0, steps=1, record_every=2)
    table, objective = swept(Sweep(options)), objective_of(Sweep(options))
    theta, chosen = objective.theta, batch(options, objective.samples, 0)
    of_batch = np.linalg.norm(objective.batch(chosen).gradient(theta))
    assert table["loss"].iloc[0] == pytest.approx(float(objective.value(theta)), rel=1e-12)
    assert np.isnan(table["loss"].iloc[1])
    assert table["update_norm"].iloc[0] == pytest.approx(table["learning_rate"].iloc[0] * of_batch, rel=1e-12)
    assert table["power"].tolist() == [1.0, 1.0]


def test_what_is_kept_comes_back_the_same_and_is_not_made_again(kept, table, monkeypatch):
    monkeypatch.setattr(_steps, "advance", None)
    with trainings_in(kept):
        assert_frame_equal(swept(SWEEP), table)


def test_other_settings_are_another_sweep(tmp_path):
    with trainings_in(tmp_path):
        assert place(SWEEP) == place(Sweep(replace(OPTIONS)))
        assert place(SWEEP) != place(SWEEP.seeded(1))


def test_a_folder_in_use_is_locked_and_then_free_again(kept):
    with trainings_in(kept):
        with directory(SWEEP) as folder, pytest.raises(Timeout):
            FileLock(f"{folder}.lock", timeout=0).acquire()
        with FileLock(f"{folder}.lock", timeout=0) as lock:
            assert lock.is_locked


def test_an_interrupted_sweep_goes_on_where_it_was(tmp_path, table, monkeypatch):
    began, arguments = [], Member.arguments

    def noted(member, count, at_once):
        began.append((member.o.learning_rate, member.step))
        if interrupts and began[-1] == (0.2, 1):
            signal.raise_signal(signal.SIGINT)
        return arguments(member, count, at_once)

    monkeypatch.setattr(Member, "arguments", noted)
    sweep = Sweep(replace(SINGLE, learning_rate=(0.1, 0.2)))
    with trainings_in(tmp_path):
        interrupts = True
        with pytest.raises(KeyboardInterrupt):
            swept(sweep)
        interrupts = False
        began.clear()
        losses = swept(sweep)["loss"]
    assert began[0] == (0.2, 2)  # the first run isn't made again, nor the first steps of the second
    np.testing.assert_array_equal(losses, table[table["seed"] == 0]["loss"])


def test_ends_are_the_parameters_of_the_last_step(kept, table):
    with trainings_in(kept):
        found = ends(SWEEP)
    last = table[table["step"] == OPTIONS.steps].set_index(["contender", "seed"])["loss"]
    assert set(found) == set(last.index)
    for key, theta in found.items():
        assert float(objective_of(SWEEP).value(theta)) == pytest.approx(last[key], rel=1e-12)


def test_a_run_that_diverged_has_no_end():
    assert ends(Sweep(GONE)) == {}


def test_a_run_that_diverged_at_its_last_step_has_no_end():
    assert ends(Sweep(replace(GONE, steps=1))) == {}


def test_a_run_that_diverged_says_so_and_its_last_loss_is_nan():
    table = swept(Sweep(GONE))
    assert (table["status"] == "diverged").all()
    assert len(table) < OPTIONS.steps + 1
    assert np.isnan(table["loss"].iloc[-1])


@pytest.mark.parametrize(
    ("options", "name"),
    [
        (Options(learning_rate=0.1), "h = 0.1"),
        (Options(optimizer="sgd", learning_rate=0.05, batch_size=64), "h = 0.05"),
        (Options(learning_rate=0.1, momentum=0.9), "momentum 0.9, h = 0.1"),
        (Options(optimizer="adam", learning_rate=0.001), "Adam, h = 0.001"),
        (Options(optimizer="prodigy"), "Prodigy"),
        (Options(optimizer="dog"), "DoG"),
        (Options(optimizer="dal"), "DAL"),
        (Options(optimizer="dal", power=0.5), "DAL-0.5"),
        (Options(optimizer="dal", momentum=0.9, factor=0.5), "DAL, momentum 0.9, factor 0.5"),
        (Options(optimizer="dal", curvature="finite_difference"), "DAL, finite difference"),
        (Options(optimizer="dal", power=0.5, per_parameter=True), "DAL-0.5, per parameter"),
        (Options(optimizer="dal", per_parameter=True, max_learning_rate=0.1), "DAL, cap 0.1, per parameter"),
    ],
)
def test_contenders_are_named_by_their_optimiser_and_its_rate_or_power(options, name):
    assert contender(options) == name


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (Options(), "mlp on digits, full batch"),
        (Options(data="cifar10", model="vgg11", batch_size=64), "vgg11 on cifar10, batches of 64"),
        (Options(loss="mean-square"), "mlp on digits, mean-square, full batch"),
    ],
)
def test_settings_are_network_data_loss_and_batch(options, words):
    assert setting(options) == words


def test_the_label_counts_the_runs():
    assert SWEEP.label == "mlp on iris, full batch: 4 runs of descent"
    assert Sweep(SINGLE).label == "mlp on iris, full batch: h = 0.1"


def test_its_name_is_followed_by_the_options_that_are_not_the_usual_ones():
    sweep = Sweep(Options(data="iris", learning_rate=0.2, seed=(0, 1)))
    assert str(sweep) == "mlp on iris, full batch: 2 runs of descent (data iris, learning_rate 0.2, seed (0, 1))"


@pytest.mark.parametrize(("seed", "shifted"), [((0, 1), (10, 11)), (2, (7,))])
def test_each_number_leads_to_as_many_seeds_of_its_own(seed, shifted):
    sweep = Sweep(replace(OPTIONS, seed=seed))
    assert sweep.seeded(5) == Sweep(replace(OPTIONS, seed=shifted))


def test_no_seed_is_had_by_two_numbers():
    seeds = [seed for number in range(4) for seed in SWEEP.seeded(number).options.seed]
    assert seeds == list(range(8))


def made_up(losses, seed=0, status="completed", **columns):
    start = {"setting": "made up", "contender": "h = 0.1", "rate": 0.1, "power": np.nan, "seed": seed}
    start |= {"family": "fixed rates", "full_batch": True, "status": status}
    start |= {"drift": 0.01, "sharpness": 5.0, "test_accuracy": 0.5, "train_accuracy": 0.6}
    return pandas.DataFrame(start | {"step": range(len(losses)), "loss": losses} | columns)


def measured(losses, **columns):
    (row,) = by_run(made_up(losses, **columns)).to_dict("records")
    return row


def test_rises_are_counted_and_the_largest_is_relative_to_the_loss_before():
    row = measured([4.0, 2.0, 3.0, 1.0, 1.1])
    assert row["rises"] == 2
    assert row["largest_rise"] == 0.5


def test_a_loss_that_only_falls_has_no_rise():
    row = measured([4.0, 2.0, 1.0])
    assert (row["rises"], row["largest_rise"]) == (0, 0.0)


def test_steps_without_a_loss_are_passed_over():
    row = measured([4.0, np.nan, 6.0, np.nan, 3.0, np.nan])
    assert (row["rises"], row["largest_rise"], row["last_loss"]) == (1, 0.5, 3.0)


def test_a_loss_that_is_not_finite_is_an_infinite_rise():
    row = measured([4.0, 2.0, np.nan], status="diverged")
    assert row["diverged"]
    assert (row["rises"], row["largest_rise"], row["last_loss"]) == (1, np.inf, np.inf)
    assert np.isnan(row["test_accuracy"])


def test_a_last_loss_above_the_first_counts_as_diverged():
    row = measured([2.0, 1.0, 3.0])
    assert row["diverged"]
    assert (row["rises"], row["largest_rise"], row["last_loss"]) == (1, 2.0, np.inf)
    assert np.isnan(row["train_accuracy"])


def test_the_last_numbers_that_were_recorded_count():
    row = measured([3.0, 2.0, 1.0], sharpness=[1.0, 7.0, np.nan], test_accuracy=[0.1, 0.3, np.nan])
    assert (row["sharpness"], row["test_accuracy"]) == (7.0, 0.3)


def test_the_drift_is_the_mean_over_the_steps_and_the_last_row_is_of_none():
    assert measured([3.0, 2.0, 1.0], drift=[0.1, 0.3, 9.0])["drift"] == 0.2


def test_each_run_has_its_own_measures():
    runs = by_run(pandas.concat([made_up([2.0, 1.0]), made_up([4.0, 3.0], seed=1)]))
    assert runs["last_loss"].tolist() == [1.0, 3.0]
    assert runs["diverged"].dtype == bool


def test_over_seeds_there_are_means_spreads_and_the_largest_rise():
    first = made_up([2.0, 2.2, 1.0], test_accuracy=0.5, sharpness=3.0)
    second = made_up([2.0, 1.0, 1.4, 2.0], seed=1, test_accuracy=0.7, sharpness=5.0)
    (row,) = over_seeds(by_run(pandas.concat([first, second]))).to_dict("records")
    assert row["last_loss"] == 1.5
    assert row["rises"] == 1.5
    assert row["largest_rise"] == pytest.approx(3 / 7)
    assert row["test_accuracy"] == pytest.approx(0.6)
    assert row["test_accuracy_spread"] == pytest.approx(0.2 / np.sqrt(2))
    assert (row["sharpness"], row["sharpness_spread"]) == (4.0, pytest.approx(np.sqrt(2)))
    assert row["diverged"] == 0


def test_no_mean_is_taken_of_the_seeds_that_survived():
    runs = by_run(pandas.concat([made_up([2.0, 1.0]), made_up([2.0, np.nan], seed=1, status="diverged")]))
    (row,) = over_seeds(runs).to_dict("records")
    assert row["diverged"] == 1
    assert row["last_loss"] == np.inf
    assert np.isnan([row[name] for name in ("test_accuracy", "train_accuracy", "drift", "sharpness")]).all()


def test_settings_with_sweeps_come_back_from_a_saved_result(tmp_path):
    config = Config((SWEEP, Sweep(Options(optimizer="dal", power=(1.0, 0.5), seed=3))), seed=2)
    item = experiment(profiles=dict.fromkeys(PROFILES, config), draw=lambda *_: Figure())
    Result(item, "quick", config, {}, (), seconds=1.0).save(tmp_path)
    loaded, why = load(tmp_path, item, "quick")
    assert not why
    assert loaded.config == config
