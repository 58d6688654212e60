import dataclasses

import jax
import numpy as np
import pytest
from reproduce.cases import TRAINING

import principalflow as pf
from principalflow import _steps
from principalflow._lab.kept import trainings_in
from principalflow.reproduce._trained import trained


@pytest.fixture(autouse=True)
def double():
    trained.cache_clear()
    with jax.enable_x64(True):
        yield
    trained.cache_clear()


def test_a_training_is_descent_with_its_records():
    run = trained(TRAINING)
    path = pf.descend(run.objective, run.objective.theta, run.h, TRAINING.steps, record=pf.Record(k=1))
    np.testing.assert_allclose(run.kept, path.thetas, rtol=1e-12)
    for column in ("loss", "loss_change", "eigenvalue_0", "drift_estimate"):
        np.testing.assert_allclose(run.records[column], path.records[column], rtol=1e-9)


def test_what_is_kept_comes_back_the_same_and_is_not_made_again(tmp_path, monkeypatch):
    with trainings_in(tmp_path):
        made = trained(TRAINING)
    trained.cache_clear()
    monkeypatch.setattr(_steps, "advance", None)
    with trainings_in(tmp_path):
        found = trained(TRAINING)
    np.testing.assert_array_equal(found.kept, made.kept)
    assert found.records.equals(made.records)


def test_what_is_kept_is_a_run_directory(tmp_path):
    with trainings_in(tmp_path):
        trained(TRAINING)
    (folder,) = (path.parent for path in tmp_path.glob("*/config.json"))
    assert pf.training.restore(folder).step == TRAINING.steps


def test_other_settings_are_another_training(tmp_path):
    with trainings_in(tmp_path):
        trained(TRAINING)
        trained(dataclasses.replace(TRAINING, learning_rate=0.2))
    assert len(list(tmp_path.glob("*/config.json"))) == 2


def test_making_a_training_removes_none_of_other_code(tmp_path):
    (tmp_path / "0123456789abcdef-1").mkdir()
    with trainings_in(tmp_path):
        trained(TRAINING)
    assert (tmp_path / "0123456789abcdef-1").exists()


def test_without_a_folder_nothing_is_kept(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    trained(TRAINING)
    assert list(tmp_path.iterdir()) == []


def test_its_cost_is_steps_and_products():
    run = trained(TRAINING)
    assert run.cost == len(run.records) + 2 * run.records["products"].sum()


def test_iterates_that_are_not_kept_are_found_again():
    whole, sparse = trained(TRAINING), trained(dataclasses.replace(TRAINING, keep_every=3))
    assert len(sparse.kept) == 2
    for step in range(5):
        np.testing.assert_allclose(sparse.theta(step), whole.theta(step), rtol=1e-12, atol=1e-15)


def test_a_training_that_diverges_ends_there():
    run = trained(dataclasses.replace(TRAINING, learning_rate=1e6, loss="mean-square", steps=40))
    assert 1 < len(run.records) < 41
    assert np.isfinite(run.records["loss"]).all()
    assert np.isfinite(run.kept).all()
