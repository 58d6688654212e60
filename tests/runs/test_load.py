"""Runs as tables, and in the formats of other programs."""

import struct

import numpy as np
import pandas
import pytest

from principalflow import runs

ROWS = (
    {"step": 0, "loss": 2.0, "events": ["lambda_0 crossed 2/h", "the loss rises"]},
    {"step": 1, "loss": 1.5},
    {"step": 2, "loss": float("inf"), "regime_0": "unstable"},
)


@pytest.fixture
def run(tmp_path):
    with runs.create(tmp_path / "run", {"seed": 3}) as run:
        run.append(*ROWS)
    return run.path


@pytest.fixture
def sweep(tmp_path):
    for seed in (1, 0):
        with runs.create(tmp_path / "sweep" / f"seed={seed}", {"seed": seed}) as run:
            run.append({"step": 0, "loss": float(seed)})
    return tmp_path / "sweep"


def test_a_run_is_a_table_with_its_config_and_status(run):
    frame = runs.load(run)
    assert frame["step"].tolist() == [0, 1, 2]
    np.testing.assert_array_equal(frame["loss"], [2.0, 1.5, np.nan])
    assert frame["events"].tolist() == [list(ROWS[0]["events"]), None, None]
    assert frame.attrs == {"config": {"seed": 3}, "status": "completed", "message": "", "path": str(run)}


def test_a_sweep_is_one_table_with_the_names_of_its_runs(sweep):
    frame = runs.load(sweep)
    assert frame["run"].tolist() == ["seed=0", "seed=1"]
    assert frame.attrs["runs"]["seed=1"]["config"] == {"seed": 1}


def test_a_sweep_with_a_run_without_rows_or_events_can_be_loaded_and_exported(run, tmp_path):
    for name in ("quiet", "empty"):
        with runs.create(tmp_path / name, {}) as other:
            other.append(*([{"step": 0, "loss": 1.0}] if name == "quiet" else []))
    frame = runs.load(tmp_path)
    assert frame["run"].tolist() == ["quiet"] + ["run"] * 3
    assert frame["events"].tolist()[0] is None
    assert frame["step"].dtype == int
    runs.export(tmp_path, tmp_path / "all.csv")


def test_a_torn_last_line_is_left_out_with_a_message(run):
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": 3, "lo')
    with pytest.warns(runs.RunWarning, match="line 4 .* torn"):
        assert len(runs.load(run)) == 3


def test_a_last_line_without_its_end_is_torn_even_where_it_reads_well(run):
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": 31}')  # of 310, perhaps
    with pytest.warns(runs.RunWarning, match="torn"):
        assert len(runs.load(run)) == 3


def test_damage_before_the_last_line_is_an_error(run):
    text = (run / "metrics.jsonl").read_text()
    (run / "metrics.jsonl").write_text(text.replace('{"step":1', '{"st'))
    with pytest.raises(runs.RunError, match="line 2"):
        runs.load(run)


def test_what_has_no_runs_is_refused(tmp_path):
    with pytest.raises(runs.RunError, match="is not a run directory, and has none"):
        runs.load(tmp_path)


@pytest.mark.parametrize(("suffix", "read"), [(".csv", pandas.read_csv), (".parquet", pandas.read_parquet)])
def test_exported_tables_hold_the_run(run, tmp_path, suffix, read):
    frame = read(runs.export(run, tmp_path / "new" / f"metrics{suffix}"))
    np.testing.assert_array_equal(frame["loss"], [2.0, 1.5, np.nan])
    assert frame["events"].iloc[0] == "lambda_0 crossed 2/h; the loss rises"


def tensorboard_events(folder):
    """Reads TensorBoard's records: a length, its checksum, an event, its checksum."""
    from tensorboardX.proto.event_pb2 import Event

    content = next(folder.iterdir()).read_bytes()
    position = 0
    while position < len(content):
        (length,) = struct.unpack_from("<Q", content, position)
        yield Event.FromString(content[position + 12 : position + 12 + length])
        position += 16 + length


def test_tensorboard_gets_finite_numbers_and_events(run, tmp_path):
    runs.export(run, tmp_path / "logs")
    values = [(e.step, v.tag, v.simple_value) for e in tensorboard_events(tmp_path / "logs") for v in e.summary.value]
    numbers = [(step, number) for step, tag, number in values if tag == "principalflow/loss"]
    assert numbers == [(0, 2.0), (1, 1.5)]
    assert any("events" in tag for _, tag, _ in values)


def test_tensorboard_gets_a_folder_for_each_run_of_a_sweep(sweep, tmp_path):
    runs.export(sweep, tmp_path / "logs")
    assert sorted(path.name for path in (tmp_path / "logs").iterdir()) == ["seed=0", "seed=1"]


def test_a_name_that_does_not_tell_the_format_is_refused(run, tmp_path):
    with pytest.raises(ValueError, match=r"must end in \.parquet or \.csv"):
        runs.export(run, tmp_path / "run.xlsx")


def test_an_unknown_format_is_refused(run, tmp_path):
    with pytest.raises(ValueError, match="Did you mean 'parquet'"):
        runs.export(run, tmp_path / "x", format="parket")
