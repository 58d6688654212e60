"""The parameters that a run keeps on its way."""

import numpy as np
import pytest

from principalflow import runs


def kept(path):
    steps, thetas = runs.iterates(path)
    return dict(zip(steps.tolist(), thetas[:, 0].tolist(), strict=True))


def test_what_is_kept_comes_back_in_its_dtype(tmp_path):
    thetas = np.random.default_rng(0).standard_normal((12, 5)).astype(np.float32)
    with runs.create(tmp_path, {}) as run:
        for step, theta in enumerate(thetas):
            run.keep(10 * step, theta)
    found = runs.iterates(tmp_path)
    assert found.steps.tolist() == list(range(0, 120, 10))
    assert found.thetas.dtype == np.float32
    np.testing.assert_array_equal(found.thetas, thetas)


def test_what_was_kept_after_the_checkpoint_is_dropped_when_a_run_goes_on(tmp_path):
    with runs.create(tmp_path, {}) as run:
        run.keep(0, [0.0, 1.0])
        run.checkpoint(1, {"a": np.ones(1)})
        run.keep(1, [10.0, 1.0])
    with runs.reopen(tmp_path) as run:
        run.restore()
        assert kept(tmp_path) == {0: 0.0}
        run.keep(2, [20.0, 1.0])
    assert kept(tmp_path) == {0: 0.0, 2: 20.0}


def test_without_a_checkpoint_a_run_starts_with_nothing_kept(tmp_path):
    with runs.create(tmp_path, {}) as run:
        run.keep(0, [0.0])
    with runs.reopen(tmp_path) as run:
        run.restore()
    with pytest.raises(runs.RunError, match="is no run that kept its iterates"):
        runs.iterates(tmp_path)


def test_a_row_that_was_cut_off_does_not_count(tmp_path):
    with runs.create(tmp_path, {}) as run:
        run.keep(0, [0.0, 1.0])
    with (tmp_path / "iterates.npy").open("ab") as file:
        file.write(b"half a row")
    assert kept(tmp_path) == {0: 0.0}
    with runs.reopen(tmp_path) as run:
        run.keep(1, [10.0, 1.0])
    assert kept(tmp_path) == {0: 0.0, 1: 10.0}


def test_a_checkpoint_from_when_more_was_kept_is_not_used(tmp_path):
    with runs.create(tmp_path, {}) as run:
        run.keep(0, [0.0])
        run.checkpoint(1, {"a": np.ones(1)})
    (tmp_path / "iterates.npy").unlink()
    unusable = pytest.raises(runs.RunError, match="none of the checkpoints")
    with runs.reopen(tmp_path) as run, pytest.warns(runs.RunWarning, match="fewer iterates are kept than"), unusable:
        run.restore()


@pytest.mark.parametrize("content", [b"", b"not numpy's", b"\x93NUMPY\x01\x00\x10\x00{'descr': 'oops'"])
def test_a_damaged_file_is_an_error(tmp_path, content):
    with runs.create(tmp_path, {}):
        (tmp_path / "iterates.npy").write_bytes(content)
    with pytest.raises(runs.RunError, match=r"iterates\.npy can't be read"):
        runs.iterates(tmp_path)


def test_a_file_of_other_arrays_is_an_error(tmp_path):
    np.save(tmp_path / "iterates.npy", np.ones(3))
    with pytest.raises(runs.RunError, match="it doesn't hold steps and parameters"):
        runs.iterates(tmp_path)


@pytest.mark.parametrize(
    ("step", "theta", "message"),
    [
        (-1, [1.0], "step must be a whole number"),
        (0, [[1.0]], r"theta must be flat, got shape \(1, 1\)"),
        (0, ["a"], "theta must be an array of numbers"),
        (0, [1.0, 2.0], "theta must be as before"),
    ],
)
def test_bad_arguments_are_named(tmp_path, step, theta, message):
    with runs.create(tmp_path, {}) as run:
        run.keep(0, [1.0])
        with pytest.raises(ValueError, match=message):
            run.keep(step, theta)
