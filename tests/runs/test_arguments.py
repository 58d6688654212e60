"""Arguments of all kinds: a right result, or an error that names the argument."""

import fractions
import re
from pathlib import Path

import jax
import numpy as np
import pytest

from principalflow import Monitor, functions, runs

ITSELF = {}
ITSELF["again"] = ITSELF
NO_PATHS = [None, 5, 1.5, True, "", "\0", "a\0b", b"bytes", [], {}, object(), np.zeros(2), "\ud800", 10**5000]
LONG = "x" * 300


def kind_of(value):
    """What pytest calls a value that it can't print."""
    return type(value).__name__


@pytest.fixture
def run(tmp_path):
    with runs.create(tmp_path / "run", {}) as run:
        yield run


@pytest.mark.parametrize("path", NO_PATHS, ids=kind_of)
@pytest.mark.parametrize(
    "use",
    [runs.reopen, runs.load, runs.find, lambda path: runs.create(path, {}), lambda path: runs.export(path, "x.csv")],
    ids=["reopen", "load", "find", "create", "export"],
)
def test_what_is_no_path_is_refused_by_name(tmp_path, monkeypatch, path, use):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"^path must be the path of a file or folder, got "):
        use(path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("to", NO_PATHS, ids=kind_of)
def test_a_target_that_is_no_path_is_refused_by_name(run, to):
    with pytest.raises(ValueError, match=r"^to must be the path of a file or folder, got "):
        runs.export(run.path, to)


@pytest.mark.parametrize("path", [LONG, f"file/{LONG}", "file", "file/below", "a/" * 3000], ids=lambda path: path[:8])
@pytest.mark.parametrize("use", [runs.reopen, runs.load, runs.find, lambda path: runs.create(path, {})])
def test_a_path_where_no_run_can_be_is_a_run_error(tmp_path, monkeypatch, path, use):
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    with pytest.raises(runs.RunError, match=re.escape(path[:5])):
        use(path)


@pytest.mark.parametrize("name", ["folder.csv", "folder.parquet", "file/x.csv", "file", f"{LONG}.csv"])
def test_where_nothing_can_be_written_export_says_so(run, tmp_path, name):
    run.append({"step": 0})
    for folder in ("folder.csv", "folder.parquet"):
        (tmp_path / folder).mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(runs.RunError, match=r"the metrics of .* can't be written to"):
        runs.export(run.path, tmp_path / name)


@pytest.mark.parametrize("format_", [5, "", b"csv", [], np.zeros(2), True])
def test_what_is_no_format_is_refused_by_name(run, tmp_path, format_):
    with pytest.raises(ValueError, match=r"^format must be one of"):
        runs.export(run.path, tmp_path / "x", format=format_)


@pytest.mark.parametrize(
    ("rows", "to"),
    [
        ([{"x": 1}, {"x": "text"}], "x.parquet"),
        ([{"x": {}}], "x.parquet"),
        ([{"loss": 1.0}], "logs"),
        ([{"step": "first", "loss": 1.0}], "logs"),
        ([{"step": None, "loss": 1.0}], "logs"),
    ],
)
def test_metrics_that_a_format_has_no_place_for_are_a_run_error(run, tmp_path, rows, to):
    run.append(*rows)
    with pytest.raises(runs.RunError, match=r"the metrics of .* can't be written to"):
        runs.export(run.path, tmp_path / to)


@pytest.mark.parametrize("events", [5, "a sentence", {"a": 1}, [1, None]])
@pytest.mark.parametrize("to", ["x.csv", "x.parquet", "logs"])
def test_events_of_all_kinds_are_exported_as_text(run, tmp_path, events, to):
    run.append({"step": 0, "events": events})
    assert runs.export(run.path, tmp_path / to).exists()


def test_a_column_that_hides_the_names_of_runs_is_a_run_error(run, tmp_path):
    run.append({"step": 0, "run": 1})
    runs.create(tmp_path / "other", {}).close()
    with pytest.raises(runs.RunError, match="has a column run"):
        runs.load(tmp_path)


NO_MAPPINGS = [None, 5, "text", b"bytes", [], [("a", 1)], {1, 2}, object(), np.zeros(2), jax.random.key(0)]


@pytest.mark.parametrize("value", NO_MAPPINGS, ids=kind_of)
def test_what_is_no_mapping_is_refused_by_name(run, tmp_path, value):
    with pytest.raises(ValueError, match=r"^config must be a mapping"):
        runs.create(tmp_path / "new", value)
    with pytest.raises(ValueError, match=r"^rows\[1\] must be a mapping"):
        run.append({"step": 0}, value)
    with pytest.raises(ValueError, match=r"^arrays must be a mapping"):
        run.checkpoint(1, value)
    assert not (tmp_path / "new").exists()
    assert (run.path / "metrics.jsonl").read_bytes() == b""


NOT_JSON = {
    "set": {1, 2},
    "bytes": b"x",
    "object": object(),
    "complex": 1j,
    "complex array": np.ones(2, complex),
    "objects": np.array([object()]),
    "dates": np.zeros(1, "M8[s]"),
    "key": jax.random.key(0),
    "huge": 10**5000,
    "huge fraction": fractions.Fraction(10**400, 3),
    "itself": ITSELF,
    "name that is no text": {None: 1},
    "one name twice": {1: 1, "1": 2},
}


@pytest.mark.parametrize("kind", NOT_JSON)
def test_what_json_has_no_form_for_is_refused_by_its_place(run, tmp_path, kind):
    with pytest.raises(ValueError, match=r"^config(\['a'\])?(\[0\])? (must|is nested)"):
        runs.create(tmp_path / "new", {"a": NOT_JSON[kind]})
    with pytest.raises(ValueError, match=r"^rows\[0\](\['a'\])?(\[0\])? (must|is nested)"):
        run.append({"a": NOT_JSON[kind]})
    assert not (tmp_path / "new").exists()
    assert (run.path / "metrics.jsonl").read_bytes() == b""


def test_numbers_of_all_kinds_can_be_rows(run):
    row = {
        "long": np.longdouble(0.5),
        "half": np.float16(0.5),
        "fraction": fractions.Fraction(1, 2),
        "brain": jax.numpy.bfloat16(0.5),
        "path": Path("x"),
        "big": 10**30,
        "text": "\ud800",
        "layers": {0: True},
    }
    run.append(row)
    loaded = runs.load(run.path).to_dict("records")[0]
    expected = dict.fromkeys(("long", "half", "fraction", "brain"), 0.5)
    assert loaded == {**expected, "path": "x", "big": 10**30, "text": "\\ud800", "layers": {"0": True}}


@pytest.mark.parametrize("step", [None, -1, 1.0, True, "1", 10**30, -(10**5000), np.zeros(1, int), [1]], ids=kind_of)
def test_what_is_no_step_is_refused_by_name(run, step):
    with pytest.raises(ValueError, match=r"^step must be a whole number"):
        run.checkpoint(step, {"a": np.ones(1)})


@pytest.mark.parametrize(
    "array",
    [
        *(None, "x", {}, object(), b"x", np.array([None]), np.array(["x"]), np.longdouble(1)),
        *(jax.random.key(0), [[1], [1, 2]], np.zeros(1, "M8[s]"), np.zeros(1, [("x", "f4")])),
    ],
    ids=kind_of,
)
def test_what_is_no_array_of_numbers_is_refused_by_name(run, array):
    with pytest.raises(ValueError, match=r"^arrays\['a'\] must be an array of numbers"):
        run.checkpoint(1, {"a": array})


def test_an_empty_array_is_refused_by_name(run):
    with pytest.raises(ValueError, match=r"^arrays\['a'\] must not be empty, got shape \(2, 0\)"):
        run.checkpoint(1, {"a": np.zeros((2, 0))})


@pytest.mark.parametrize("name", ["", "\0", "\ud800", 5, None, "digest", "metrics_length", "metrics_digest"])
def test_names_that_arrays_can_not_have_are_refused(run, name):
    with pytest.raises(ValueError, match=r"^arrays must"):
        run.checkpoint(1, {name: np.ones(1)})


@pytest.mark.parametrize("status", [None, 5, "", "won", [], np.zeros(2), b"completed"])
def test_an_unknown_status_is_refused_and_leaves_the_run_open(run, status):
    with pytest.raises(ValueError, match=r"^status must be one of"):
        run.close(status)
    run.append({"step": 0})


@pytest.mark.parametrize("message", [None, 5, b"x", ["x"]])
def test_a_message_that_is_no_text_is_refused_and_leaves_the_run_open(run, message):
    with pytest.raises(ValueError, match=r"^message must be text"):
        run.close("completed", message)
    run.append({"step": 0})


@pytest.mark.parametrize("use", [lambda run: run.checkpoint(1, {}), lambda run: run.restore()])
def test_a_closed_run_neither_saves_nor_restores(run, use):
    run.close()
    with pytest.raises(runs.RunError, match="is closed"):
        use(run)


@pytest.mark.parametrize("to", ["", "\0"])
def test_a_monitor_names_its_own_argument(to):
    with pytest.raises(ValueError, match=r"^to must be the path"):
        Monitor(functions.banana(), to=to)


def test_a_monitor_that_was_closed_with_a_wrong_status_can_be_closed_again(tmp_path):
    monitor = Monitor(functions.banana(), to=tmp_path)
    with pytest.raises(ValueError, match=r"^status must be"):
        monitor.close("won")
    monitor.close()
    assert runs.load(tmp_path).attrs["status"] == "completed"
