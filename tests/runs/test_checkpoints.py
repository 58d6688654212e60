"""Checkpoints: a run reads and removes only what it wrote, whatever else stands beside it."""

import errno
import json
import os
import resource
import shutil
import signal
import subprocess
import sys

import numpy as np
import orbax.checkpoint
import pytest

from principalflow import _files, runs
from principalflow.runs import _checkpoints, _directory


def content(*paths):
    return {file: file.read_bytes() for path in paths for file in path.rglob("*") if file.is_file()}


def save_more(path, *steps):
    """Goes on with a run, as a training does."""
    with runs.reopen(path) as run:
        run.restore()
        for step in steps:
            run.append({"step": step - 1})
            run.checkpoint(step, {"theta": np.full(2, float(step))})


def restored(path):
    with runs.reopen(path) as run:
        return run.restore()


def test_resuming_and_pruning_remove_nothing_that_the_run_did_not_write(saved):
    folder, elsewhere = saved / "checkpoints", saved / "elsewhere"
    users = [folder / name for name in ("best", "1", "0000000099x", "0000000099", "0000000050.orbax-checkpoint-tmp")]
    for path in [*users, elsewhere]:
        shutil.copytree(folder / "0000000001", path)
    links = [folder / "latest", folder / "0000000098"]
    for link in links:
        link.symlink_to(elsewhere)
    (folder / "0000000097").write_text("notes")
    before = content(*users, elsewhere)
    save_more(saved, 2, 3, 4)
    assert restored(saved)[0] == 4
    assert content(*users, elsewhere) == before
    assert all(link.is_symlink() for link in links)
    assert (folder / "0000000097").read_text() == "notes"
    assert not {"0000000001", "0000000002"} & {path.name for path in folder.iterdir()}  # its own are removed


def link_to_elsewhere(path):
    elsewhere = path.parent.parent / "elsewhere"
    elsewhere.mkdir()
    path.symlink_to(elsewhere)


STRAY = {
    "a file": lambda path: path.write_text("notes"),
    "a folder": lambda path: path.mkdir(),
    "a link": link_to_elsewhere,
    "a copy": lambda path: shutil.copytree(path.with_name("0000000001"), path),
    "an unfinished one": lambda path: path.with_name(f"{path.name}.orbax-checkpoint-tmp").mkdir(),
}


@pytest.mark.parametrize("kind", STRAY)
def test_what_has_the_name_of_a_later_step_is_left_alone_and_does_not_end_the_run(saved, kind):
    STRAY[kind](saved / "checkpoints" / "0000000002")
    strays = {path for path in (saved / "checkpoints").iterdir() if path.name != "0000000001"}
    save_more(saved, 2)
    step, arrays = restored(saved)
    assert (step, arrays["theta"].tolist()) == (2, [2.0, 2.0])
    assert strays < set((saved / "checkpoints").iterdir())


def test_a_folder_of_the_users_is_no_checkpoint_to_a_run_that_has_none(tmp_path):
    runs.create(tmp_path, {}).close()
    (tmp_path / "checkpoints" / "0000000002").mkdir(parents=True)
    assert restored(tmp_path) is None
    assert (tmp_path / "checkpoints" / "0000000002").is_dir()


def test_a_checkpoint_of_another_run_is_left_alone_by_a_run_that_has_none(saved, tmp_path_factory):
    path = tmp_path_factory.mktemp("other")
    with runs.create(path, {}) as run:
        run.append({"step": 0})
    shutil.copytree(saved / "checkpoints" / "0000000001", path / "checkpoints" / "0000000004")
    before = content(path / "checkpoints")
    assert restored(path) is None
    save_more(path, 1, 2, 3)
    assert restored(path)[0] == 3
    assert content(path / "checkpoints" / "0000000004") == before


def test_the_first_checkpoints_of_a_run_remove_none_of_another_run(saved, tmp_path_factory):
    path = tmp_path_factory.mktemp("other")
    users = [path / "checkpoints" / f"0000000{step}" for step in (500, 600, 700)]
    with runs.create(path, {}) as run:
        for copy in users:
            shutil.copytree(saved / "checkpoints" / "0000000001", copy)
        for step in (1, 2, 3):
            run.checkpoint(step, {"theta": np.zeros(2)})
        assert run.restore()[0] == 3
    assert all(copy.is_dir() for copy in users)


def test_a_checkpoint_that_was_put_back_is_found(saved):
    aside = saved.parent / f"{saved.name}-aside"
    shutil.copytree(saved / "checkpoints" / "0000000001", aside)
    save_more(saved, 2, 3)
    shutil.rmtree(saved / "checkpoints")
    shutil.copytree(aside, saved / "checkpoints" / "0000000001")
    assert restored(saved)[0] == 1


def test_a_checkpoint_under_the_name_of_another_is_not_taken_for_it(saved):
    save_more(saved, 2)
    first, second = (saved / "checkpoints" / f"000000000{step}" for step in (1, 2))
    shutil.rmtree(second)
    shutil.copytree(first, second)
    with pytest.warns(runs.RunWarning, match="step 2 .* can't be used: ValueError: it is that of step 1"):
        assert restored(saved)[0] == 1


def test_a_step_that_is_saved_again_counts(saved):
    with runs.reopen(saved) as run:
        run.checkpoint(1, {"theta": np.ones(2)})
        step, arrays = run.restore()
    assert (step, arrays["theta"].tolist()) == (1, [1.0, 1.0])


@pytest.mark.parametrize("record", [None, "[]", '{"written": 5}', "\0"])
def test_without_a_record_the_checkpoints_are_known_by_their_names(saved, record):
    (saved / "checkpoints" / "best").mkdir()
    path = saved / "checkpoints.json"
    path.unlink() if record is None else path.write_text(record)
    save_more(saved, 2, 3)
    assert restored(saved)[0] == 3
    assert sorted(path.name for path in (saved / "checkpoints").iterdir()) == ["0000000002", "0000000003", "best"]


def test_a_checkpoint_from_before_steps_and_digests_of_metrics_were_saved_still_counts(saved):
    shutil.rmtree(saved / "checkpoints")
    arrays = {"theta": np.ones(2), "metrics_length": np.array((saved / "metrics.jsonl").stat().st_size)}
    checkpointer = orbax.checkpoint.StandardCheckpointer()
    checkpointer.save(saved / "checkpoints" / "0000000007", {**arrays, "digest": _checkpoints._digest(arrays)})
    checkpointer.wait_until_finished()
    (saved / "checkpoints.json").unlink()
    assert restored(saved)[0] == 7


def test_a_record_that_leads_elsewhere_is_not_followed(saved):
    thesis = saved.parent / f"{saved.name}-thesis"
    thesis.mkdir()
    names = [f"../../{thesis.name}", str(thesis), "..", ".", "", 5, None, "0000000001"]
    (saved / "checkpoints.json").write_text(json.dumps({"written": names}))
    assert restored(saved)[0] == 1
    assert thesis.is_dir()


@pytest.mark.parametrize(
    "name",
    ["checkpoints", "metrics.jsonl", "lock", "status.json", "checkpoints.json", "status.json.tmp", "config.json.tmp"],
)
@pytest.mark.parametrize("kind", ["file", "folder", "nothing"])
def test_a_link_where_a_run_writes_is_refused(saved, tmp_path_factory, name, kind):
    target = tmp_path_factory.mktemp("other") / "target"
    {"file": lambda: target.write_text("mine"), "folder": target.mkdir, "nothing": lambda: None}[kind]()
    path = saved / name
    if path.exists():
        path.rename(saved / "aside")
    path.symlink_to(target)
    with pytest.raises(runs.RunError, match=f"{name} is a link"):
        runs.reopen(saved)
    assert not target.is_file() or target.read_text() == "mine"
    assert target.exists() == (kind != "nothing")


def test_a_config_that_is_a_link_is_not_written_to(saved):
    (saved / "config.json").rename(saved / "mine.json")
    (saved / "config.json").symlink_to(saved / "mine.json")
    with pytest.raises(runs.RunError, match=r"config\.json is a link"):
        runs.reopen(saved)
    assert runs.load(saved).attrs["config"] == {"learning_rate": 0.1}  # to read it is fine


def test_loading_does_not_open_a_link_in_the_place_of_the_lock(saved, monkeypatch):
    (saved / "status.json").write_text('{"status": "running", "message": ""}')
    (saved / "mine").write_text("mine")
    (saved / "lock").unlink()
    (saved / "lock").symlink_to(saved / "mine")
    monkeypatch.setattr(_directory, "FileLock", lambda path, timeout: path.open("w"))  # as older filelocks open it
    assert runs.load(saved).attrs["status"] == "interrupted"
    assert (saved / "mine").read_text() == "mine"


def test_a_new_run_does_not_write_through_a_link(tmp_path, tmp_path_factory):
    target = tmp_path_factory.mktemp("other") / "target"
    target.write_text("mine")
    (tmp_path / "config.json.tmp").symlink_to(target)
    with pytest.raises(runs.RunError, match="is a link"):
        runs.create(tmp_path, {})
    assert target.read_text() == "mine"


@pytest.fixture
def full_disk():
    """Gives a function after which no file can grow beyond 100 KB."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_checkpoint_that_the_disk_does_not_take_is_one_sentence_and_leaves_nothing(saved, full_disk, caplog, capfd):
    with runs.reopen(saved) as run:
        full_disk()
        with pytest.raises(runs.RunError, match=r"the checkpoint of step 2 can't be saved in .*: File too large\.$"):
            run.checkpoint(2, {"theta": np.random.default_rng(0).standard_normal(100_000)})
        assert [path.name for path in (saved / "checkpoints").iterdir()] == ["0000000001"]
        run.checkpoint(2, {"theta": np.zeros(2)})
    assert caplog.records == []
    assert capfd.readouterr().err == ""


def test_a_disk_that_is_full_once_the_checkpoint_is_there_is_one_sentence_too(saved, monkeypatch):
    save_more(saved, 2)
    with runs.reopen(saved) as run:
        records = iter([_checkpoints._record])

        def full(*arguments):
            next(records, no_space)(*arguments)

        monkeypatch.setattr(_checkpoints, "_record", full)
        with pytest.raises(runs.RunError, match=r"the checkpoint of step 3 can't be saved in .*: No space left"):
            run.checkpoint(3, {"theta": np.zeros(2)})
        monkeypatch.undo()
    assert restored(saved)[0] == 3


def no_space(*arguments):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_file_that_the_disk_does_not_take_leaves_nothing_of_it(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(OSError, match="No space left"):
        _files.write_json(tmp_path / "config.json", {})
    assert list(tmp_path.iterdir()) == []


def test_rows_that_the_disk_does_not_take_are_left_out_whole(saved, full_disk):
    with runs.reopen(saved) as run:
        full_disk()
        with pytest.raises(OSError, match="File too large"):
            run.append({"step": 1}, {"text": "x" * 200_000})
        run.append({"step": 1})
        run.checkpoint(2, {"theta": np.zeros(2)})
    assert restored(saved)[0] == 2
    assert runs.load(saved)["step"].tolist() == [0, 1]


KILLED = """
import os, signal, sys
import numpy as np
from principalflow import runs

path, event, name = sys.argv[1:]
run = runs.create(path, {})
for step in (1, 2, 3):
    run.append({"step": step - 1})
    if step == 3:
        kill = lambda heard, what: heard == event and name in str(what[0]) and os.kill(os.getpid(), signal.SIGKILL)
        sys.addaudithook(kill)
    run.checkpoint(step, {"theta": np.full(2, float(step))})
"""


@pytest.mark.parametrize(
    ("event", "name", "step"),
    [("os.rename", "0000000003.orbax-checkpoint-tmp", 2), ("os.rmdir", "", 3)],
    ids=["before it is whole", "while an old one is removed"],
)
def test_a_kill_during_a_checkpoint_leaves_nothing_that_resuming_does_not_remove(tmp_path, event, name, step):
    path = tmp_path / "run"
    process = subprocess.run([sys.executable, "-c", KILLED, str(path), event, name], stderr=subprocess.DEVNULL)
    assert process.returncode == -signal.SIGKILL
    left = {item.name for item in (path / "checkpoints").iterdir()}
    assert left > {"0000000001", "0000000002"}
    (path / "checkpoints" / "best").mkdir()
    assert restored(path)[0] == step
    assert {item.name for item in (path / "checkpoints").iterdir()} == {
        *(f"{kept:010d}" for kept in (step - 1, step)),
        "best",
    }
    assert not [name for name in os.listdir(path) if name.endswith(".tmp")]
    assert runs.load(path)["step"].tolist() == list(range(step))


@pytest.mark.parametrize("dtype", [">f8", ">i4", "complex64", "bfloat16", "bool", "uint64"])
def test_numbers_of_all_kinds_come_back(tmp_path, dtype):
    array = np.arange(3).astype(np.dtype(dtype))
    with runs.create(tmp_path, {}) as run:
        run.checkpoint(1, {"a": array})
        _, arrays = run.restore()
    np.testing.assert_array_equal(arrays["a"], array)
    assert arrays["a"].dtype == array.dtype.newbyteorder("=")
