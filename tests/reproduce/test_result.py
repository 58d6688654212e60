import json

import pytest
from pandas.testing import assert_frame_equal
from reproduce.cases import Config, experiment

from principalflow.reproduce import Result
from principalflow.reproduce._result import load


@pytest.fixture
def result():
    item = experiment()
    tables = item.run(Config())
    return Result(item, "quick", Config(), tables, item.claims(Config(), tables), seconds=1.5)


def test_a_saved_result_comes_back(result, tmp_path):
    result.save(tmp_path)
    loaded, why = load(tmp_path, result.experiment, "quick")
    assert not why
    assert (loaded.config, list(loaded.claims), loaded.seconds) == (result.config, list(result.claims), 1.5)
    assert_frame_equal(loaded.tables["table"], result.tables["table"])


def test_figure_and_tables_stand_in_the_folder_of_profile_and_experiment(result, tmp_path):
    folder = result.save(tmp_path).folder
    assert folder == tmp_path / "quick" / "counting"
    assert {file.name for file in folder.iterdir()} == {"figure.png", "table.parquet", "result.json"}


def test_saving_again_replaces_the_folder_and_leaves_nothing_else(result, tmp_path):
    folder = result.save(tmp_path).folder
    (folder / "old.parquet").touch()
    result.save(tmp_path)
    assert not (folder / "old.parquet").exists()
    assert [item.name for item in folder.parent.iterdir()] == ["counting"]


@pytest.mark.parametrize("stamp", ["version", "code"])
def test_a_result_of_other_code_is_not_taken(result, tmp_path, stamp):
    file = result.save(tmp_path).folder / "result.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {stamp: "other"}))
    loaded, why = load(tmp_path, result.experiment, "quick")
    assert loaded is None
    assert f"another {stamp}" in why


def test_a_result_of_other_code_is_taken_when_asked_for_and_keeps_its_stamp(result, tmp_path):
    file = result.save(tmp_path).folder / "result.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"version": "0.0.1"}))
    loaded, _ = load(tmp_path, result.experiment, "quick", by_any_code=True)
    loaded.save(tmp_path)
    assert json.loads(file.read_text())["version"] == "0.0.1"


@pytest.mark.parametrize("damage", [lambda text: text[:40], lambda text: "[]", lambda text: "{}"])
def test_a_damaged_result_is_not_taken(result, tmp_path, damage):
    file = result.save(tmp_path).folder / "result.json"
    file.write_text(damage(file.read_text()))
    loaded, why = load(tmp_path, result.experiment, "quick")
    assert loaded is None
    assert "can't be read" in why


def test_a_missing_table_is_told_from_no_result(result, tmp_path):
    (result.save(tmp_path).folder / "table.parquet").unlink()
    loaded, why = load(tmp_path, result.experiment, "quick")
    assert loaded is None
    assert "can't be read" in why


def test_where_nothing_is_saved_there_is_nothing_to_say(tmp_path):
    assert load(tmp_path, experiment(), "quick") == (None, "")


def test_the_figure_says_what_stands_in(result):
    assert result.draw()._supxlabel.get_text() == "Counting stands in for an experiment."
