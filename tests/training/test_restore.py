import shutil
from dataclasses import replace

import numpy as np
import pytest

import principalflow as pf
from principalflow.runs import RunError
from principalflow.training import Options, restore, run

IRIS = Options(data="iris", hidden=(4,), learning_rate=0.1, steps=10, record_every=0, evaluate_every=0)


def test_what_a_run_has_learned_has_its_last_loss(tmp_path):
    run(IRIS, tmp_path)
    objective, theta, step = restore(tmp_path)
    assert step == 10
    assert float(objective.value(theta)) == pytest.approx(pf.runs.load(tmp_path)["loss"].iloc[-1], rel=1e-6)


def test_the_objective_starts_where_the_run_did(tmp_path):
    run(replace(IRIS, steps=3, seed=2), tmp_path)
    objective, theta, _ = restore(tmp_path)
    path = pf.descend(objective, objective.theta, 0.1, 3)
    np.testing.assert_allclose(path.thetas[-1], theta, rtol=1e-5, atol=1e-6)


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    with pytest.raises(RunError, match="is not a run directory"):
        restore(tmp_path)


def test_a_folder_of_runs_is_refused(tmp_path):
    run(replace(IRIS, seed=(0, 1)), tmp_path)
    with pytest.raises(ValueError, match=r"path must be a single run, got the folder .* of 2, such as seed=0"):
        restore(tmp_path)


def test_a_run_without_a_checkpoint_is_refused(tmp_path):
    run(IRIS, tmp_path)
    shutil.rmtree(tmp_path / "checkpoints")
    with pytest.raises(RunError, match="has no checkpoint"):
        restore(tmp_path)
