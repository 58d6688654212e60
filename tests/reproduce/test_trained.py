import dataclasses

import jax
import numpy as np
import pytest

import principalflow as pf
from principalflow.reproduce import _trained
from principalflow.reproduce._kept import trainings_in
from principalflow.reproduce._trained import Training, trained

TRAINING = Training("digits", 50, "mlp", width=0.02, h=0.1, steps=4)


@pytest.fixture(autouse=True)
def double():
    trained.cache_clear()
    with jax.enable_x64(True):
        yield
    trained.cache_clear()


def test_a_training_is_descent_with_its_records():
    run = trained(TRAINING)
    path = pf.descend(run.objective, run.objective.theta, TRAINING.h, TRAINING.steps)
    np.testing.assert_allclose(run.kept, path.thetas)
    np.testing.assert_allclose(run.records["loss"], path.losses)


def test_what_is_kept_comes_back_the_same_and_is_not_made_again(tmp_path, monkeypatch):
    with trainings_in(tmp_path):
        made = trained(TRAINING)
    trained.cache_clear()
    monkeypatch.setattr(_trained, "descended", None)
    with trainings_in(tmp_path):
        found = trained(TRAINING)
    np.testing.assert_array_equal(found.kept, made.kept)
    assert found.records.to_dict() == made.records.astype({"regime_0": str}).to_dict()
    assert found.cost == made.cost


def test_other_settings_are_another_training(tmp_path):
    with trainings_in(tmp_path):
        trained(TRAINING)
        trained(dataclasses.replace(TRAINING, h=0.2))
    assert len(list(tmp_path.glob("*.npz"))) == 2


def test_making_a_training_removes_none_of_other_code(tmp_path):
    (tmp_path / "0123456789abcdef-1.npz").touch()
    with trainings_in(tmp_path):
        trained(TRAINING)
    assert (tmp_path / "0123456789abcdef-1.npz").exists()


def test_without_a_folder_nothing_is_kept(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    trained(TRAINING)
    assert list(tmp_path.iterdir()) == []


def test_its_cost_is_steps_and_products():
    run = trained(TRAINING)
    assert run.cost == len(run.records) + 2 * run.records["products"].sum()


def test_iterates_that_are_not_kept_are_found_again():
    whole, sparse = trained(TRAINING), trained(dataclasses.replace(TRAINING, keep=3))
    assert len(sparse.kept) == 2
    for step in range(5):
        np.testing.assert_allclose(sparse.theta(step), whole.theta(step), rtol=1e-12, atol=1e-15)


def test_a_training_that_diverges_ends_there():
    run = trained(dataclasses.replace(TRAINING, h=1e6, loss="mean-square", steps=40))
    assert 1 < len(run.records) < 41
    assert np.isfinite(run.records["loss"]).all()


def test_the_loss_and_the_precision_are_as_asked():
    objective = dataclasses.replace(TRAINING, loss="mean-square", precision="single").objective()
    assert objective.theta.dtype == np.float32
    assert float(objective.value(objective.theta)) != float(TRAINING.objective().value(TRAINING.objective().theta))
