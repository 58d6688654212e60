"""Run directories: what is written stays, whatever happens; what is damaged is told."""

import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from principalflow import _files, runs

CONFIG = {"learning_rate": 0.1, "hidden": (3, 4), "seed": None}


def rows(path):
    return [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]


def test_a_row_is_on_disk_as_soon_as_it_is_appended(tmp_path):
    run = runs.create(tmp_path / "a" / "run", CONFIG)
    run.append({"step": 0, "loss": np.float32(0.5), "values": np.arange(2)})
    assert rows(run.path) == [{"step": 0, "loss": 0.5, "values": [0, 1]}]
    run.close()


def test_numbers_that_are_not_finite_are_null(tmp_path):
    with runs.create(tmp_path, CONFIG) as run:
        run.append({"step": 0, "loss": float("nan"), "norm": np.float64(np.inf)})
    assert rows(tmp_path) == [{"step": 0, "loss": None, "norm": None}]


def test_the_config_is_kept(tmp_path):
    runs.create(tmp_path, CONFIG).close()
    with runs.reopen(tmp_path) as run:
        assert run.config == {"learning_rate": 0.1, "hidden": [3, 4], "seed": None}


def test_a_run_ends_as_its_context_does(tmp_path):
    with pytest.raises(KeyError), runs.create(tmp_path, CONFIG):
        raise KeyError("x")
    attrs = runs.load(tmp_path).attrs
    assert attrs["status"] == "interrupted"
    assert "KeyError" in attrs["message"]


def test_a_checkpoint_gives_back_its_arrays(tmp_path):
    arrays = {"theta": np.linspace(0, 1, 7, dtype=np.float32), "count": np.array(3), "on": np.array(True)}
    with runs.create(tmp_path, CONFIG) as run:
        run.checkpoint(5, arrays)
    with runs.reopen(tmp_path) as run:
        step, restored = run.restore()
    assert step == 5
    for name, array in arrays.items():
        np.testing.assert_array_equal(restored[name], array)
        assert restored[name].dtype == array.dtype


def test_restoring_drops_what_came_after_the_checkpoint(tmp_path):
    with runs.create(tmp_path, CONFIG) as run:
        run.append({"step": 0})
        run.checkpoint(1, {"theta": np.zeros(2)})
        run.append({"step": 1})
    with runs.reopen(tmp_path) as run:
        run.restore()
        assert rows(tmp_path) == [{"step": 0}]
        run.append({"step": 1, "again": True})
    assert rows(tmp_path) == [{"step": 0}, {"step": 1, "again": True}]


def test_without_a_checkpoint_a_run_starts_anew(tmp_path):
    with runs.create(tmp_path, CONFIG) as run:
        run.append({"step": 0})
    with runs.reopen(tmp_path) as run:
        assert run.restore() is None
    assert rows(tmp_path) == []


def test_two_checkpoints_are_kept(tmp_path):
    with runs.create(tmp_path, CONFIG) as run:
        for step in (1, 2, 3):
            run.checkpoint(step, {"theta": np.zeros(2)})
    assert sorted(int(path.name) for path in (tmp_path / "checkpoints").iterdir()) == [2, 3]


def damage(path):
    """Turns a byte in the middle of the largest file below `path`."""
    largest = max((file for file in path.rglob("*") if file.is_file()), key=lambda file: file.stat().st_size)
    content = bytearray(largest.read_bytes())
    content[len(content) // 2] ^= 0xFF
    largest.write_bytes(content)


def remove(path):
    """Removes all but the folder's name."""
    for file in path.rglob("*"):
        if file.is_file():
            file.unlink()


def truncate(path):
    for file in path.rglob("*"):
        if file.is_file():
            os.truncate(file, file.stat().st_size // 2)


@pytest.mark.parametrize("harm", [damage, remove, truncate])
def test_a_corrupt_checkpoint_falls_back_to_the_one_before_it(tmp_path, harm):
    with runs.create(tmp_path, CONFIG) as run:
        for step in (1, 2):
            run.append({"step": step - 1})
            run.checkpoint(step, {"theta": np.random.default_rng(step).standard_normal(1000)})
    harm(tmp_path / "checkpoints" / "0000000002")
    with runs.reopen(tmp_path) as run, pytest.warns(runs.RunWarning, match="step 2 .* can't be used"):
        step, arrays = run.restore()
    assert step == 1
    np.testing.assert_array_equal(arrays["theta"], np.random.default_rng(1).standard_normal(1000))
    assert rows(tmp_path) == [{"step": 0}]


def everything(path):
    return {file: file.read_bytes() for file in path.rglob("*") if file.is_file() and file.name != "status.json"}


@pytest.mark.filterwarnings("ignore:the checkpoint of step")
def test_where_no_checkpoint_can_be_used_nothing_is_touched(saved):
    (saved / "metrics.jsonl").write_text("")
    before = everything(saved)
    with (
        runs.reopen(saved) as run,
        pytest.raises(runs.RunError, match=r"none of the checkpoints .* metrics file is shorter"),
    ):
        run.restore()
    assert everything(saved) == before


def test_without_orbax_nothing_is_touched(saved, monkeypatch):
    monkeypatch.setitem(sys.modules, "orbax.checkpoint", None)
    before = everything(saved)
    with runs.reopen(saved) as run, pytest.raises(ImportError, match="orbax"):
        run.restore()
    assert everything(saved) == before


def test_a_torn_line_is_removed_before_more_are_appended(saved):
    with (saved / "metrics.jsonl").open("a") as file:
        file.write('{"step": 1, "lo')
    with pytest.warns(runs.RunWarning, match="torn"):
        run = runs.reopen(saved)
    run.append({"step": 1})
    run.close()
    assert rows(saved) == [{"step": 0}, {"step": 1}]


def test_a_process_that_ended_while_it_made_a_run_leaves_a_folder_to_use(tmp_path):
    (tmp_path / "lock").touch()
    (tmp_path / "config.json.tmp").write_text("{")
    runs.create(tmp_path, CONFIG).close()


def test_a_stray_file_among_checkpoints_is_left_alone(saved):
    (saved / "checkpoints" / "notes.txt").touch()
    with runs.reopen(saved) as run:
        assert run.restore()[0] == 1
    assert (saved / "checkpoints" / "notes.txt").exists()


def test_a_full_disk_does_not_keep_the_lock(saved, monkeypatch):
    run = runs.reopen(saved)
    monkeypatch.setattr(_files, "write_json", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space"):
        run.close()
    monkeypatch.undo()
    runs.reopen(saved).close()


@pytest.mark.slow
def test_a_second_process_is_refused(tmp_path):
    run = runs.create(tmp_path, CONFIG)
    code = f"from principalflow import runs; runs.reopen({str(tmp_path)!r})"
    second = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert f"in use by another process ({os.getpid()})" in second.stderr
    run.close()
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


def test_a_killed_process_leaves_a_run_that_can_be_opened(tmp_path):
    code = (
        "import os, signal; from principalflow import runs\n"
        f"run = runs.create({str(tmp_path)!r}, {{}})\nrun.append({{'step': 0}})\nos.kill(os.getpid(), signal.SIGKILL)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == -signal.SIGKILL
    assert runs.load(tmp_path).attrs["status"] == "interrupted"
    runs.reopen(tmp_path).close()


def test_a_folder_with_something_in_it_is_refused(tmp_path):
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(runs.RunError, match=r"isn't empty: it has thesis\.tex"):
        runs.create(tmp_path, CONFIG)


def test_a_run_is_not_made_twice(tmp_path):
    runs.create(tmp_path, CONFIG).close()
    with pytest.raises(runs.RunError, match="is a run already"):
        runs.create(tmp_path, CONFIG)


def test_what_is_no_run_can_not_be_opened(tmp_path):
    with pytest.raises(runs.RunError, match="not a run directory"):
        runs.reopen(tmp_path)


def test_a_closed_run_takes_no_rows(tmp_path):
    run = runs.create(tmp_path, CONFIG)
    run.close()
    with pytest.raises(runs.RunError, match="closed"):
        run.append({"step": 0})
