"""Files of a run directory that hold something else: a sentence for the config, an interruption for the status."""

import os

import numpy as np
import pytest

from principalflow import report, runs

NO_OBJECTS = [
    b'{"a": 1, "a": 2}',
    b"[]",
    b"null",
    b"5",
    b'"text"',
    b"",
    b"{",
    b"\xff\xfe\xff",
    b"\x80",
    b"[" * 100_000,
    b"1" * 5000,
]


@pytest.mark.parametrize("text", NO_OBJECTS, ids=lambda text: str(text[:8]))
@pytest.mark.parametrize("use", [runs.load, runs.reopen, lambda path: runs.export(path, path / "x.csv")])
def test_a_config_that_is_no_object_is_an_error_that_names_the_file(saved, text, use):
    (saved / "config.json").write_bytes(text)
    with pytest.raises(runs.RunError, match=r"config\.json can't be read: "):
        use(saved)


def test_an_empty_config_is_one(saved):
    (saved / "config.json").write_text("{}")
    assert runs.load(saved).attrs["config"] == {}


STATUSES = [b"{}", b'{"status": "done"}', b'{"status": 5, "message": ""}', b'{"status": "won", "message": ""}']


@pytest.mark.parametrize("text", [*NO_OBJECTS, *STATUSES], ids=lambda text: str(text[:20]))
def test_a_status_that_can_not_be_read_counts_as_interrupted(saved, text):
    (saved / "status.json").write_bytes(text)
    frame = runs.load(saved)
    assert (frame.attrs["status"], frame.attrs["message"]) == ("interrupted", "its status.json can't be read")
    report.write({"run": frame.assign(loss=1.0)}, saved / "report.html")
    runs.reopen(saved).close()
    assert runs.load(saved).attrs["status"] == "completed"


@pytest.mark.parametrize("process", ["[1]", "null", '"x"'])
def test_a_run_in_use_is_refused_whatever_its_status_says(saved, process):
    with runs.reopen(saved):
        (saved / "status.json").write_text(f'{{"status": "running", "message": "", "process": {process}}}')
        with pytest.raises(runs.RunError, match=r"is in use by another process\.$"):
            runs.reopen(saved)


@pytest.mark.parametrize("name", ["config.json", "status.json", "metrics.jsonl", "checkpoints.json", "lock"])
@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_what_is_no_file_is_refused_and_not_waited_for(saved, name, make):
    (saved / name).unlink()
    make(saved / name)
    with pytest.raises(runs.RunError, match=f"{name} "):
        runs.reopen(saved)


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_metrics_that_are_no_file_can_not_be_loaded(saved, make):
    (saved / "metrics.jsonl").unlink()
    make(saved / "metrics.jsonl")
    with pytest.raises(runs.RunError, match=r"metrics\.jsonl can't be read: it must be a file"):
        runs.load(saved)


@pytest.mark.parametrize("line", [b"[]", b"null", b"5", b"\x80", b"[" * 100_000], ids=lambda line: str(line[:8]))
def test_a_row_that_is_no_object_is_damage(saved, line):
    metrics = saved / "metrics.jsonl"
    metrics.write_bytes(line + b"\n" + metrics.read_bytes())
    with pytest.raises(runs.RunError, match=r"line 1 of .*metrics\.jsonl can't be read"):
        runs.load(saved)


def test_text_that_is_no_unicode_is_damage(saved):
    (saved / "metrics.jsonl").write_text('{"step":0,"text":"\\ud800"}\n')
    with pytest.raises(runs.RunError, match=r"metrics\.jsonl can't be made a table"):
        runs.load(saved)


@pytest.fixture
def two(saved):
    """A run with two rows and a checkpoint after each."""
    with runs.reopen(saved) as run:
        run.append({"step": 1})
        run.checkpoint(2, {"theta": np.ones(2)})
    return saved


def test_metrics_changed_after_a_checkpoint_was_saved_make_it_unusable(two):
    metrics = two / "metrics.jsonl"
    metrics.write_text(metrics.read_text().replace('{"step":1}', '{"step":7}'))
    with runs.reopen(two) as run, pytest.warns(runs.RunWarning, match="step 2 .* metrics file is not what it was"):
        assert run.restore()[0] == 1
    assert metrics.read_text() == '{"step":0}\n'


@pytest.mark.filterwarnings("ignore:the checkpoint of step")
def test_metrics_changed_before_all_checkpoints_are_refused_and_kept(two):
    metrics = two / "metrics.jsonl"
    metrics.write_text(metrics.read_text().replace('{"step":0}', '{"step":7}'))
    before = metrics.read_bytes()
    with runs.reopen(two) as run, pytest.raises(runs.RunError, match=r"the newest, because the metrics file is not"):
        run.restore()
    assert metrics.read_bytes() == before


def test_rows_appended_by_others_after_the_checkpoint_do_not_matter(two):
    with (two / "metrics.jsonl").open("a") as file:
        file.write('{"step":2}\n')
    with runs.reopen(two) as run:
        assert run.restore()[0] == 2
        run.append({"step": 2})
        run.checkpoint(3, {"theta": np.ones(2)})
        assert run.restore()[0] == 3
