import dataclasses
import json

import numpy as np
import pytest
from matplotlib.figure import Figure
from pandas.testing import assert_frame_equal
from PIL import Image
from reproduce.cases import Config, experiment

from principalflow._lab.result import load
from principalflow.reproduce import Result


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


@pytest.mark.parametrize("stamp", ["version", "jax", "jaxlib", "schema"])
def test_a_result_of_another_version_or_schema_is_not_taken(result, tmp_path, stamp):
    file = result.save(tmp_path).folder / "result.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {stamp: "other"}))
    loaded, why = load(tmp_path, result.experiment, "quick")
    assert loaded is None
    assert "what is saved was made by" in why
    assert "other, and this is" in why


def test_an_outdated_result_is_taken_when_asked_for_and_keeps_its_stamp(result, tmp_path):
    file = result.save(tmp_path).folder / "result.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"version": "0.0.1"}))
    loaded, _ = load(tmp_path, result.experiment, "quick", outdated=True)
    loaded.save(tmp_path)
    assert json.loads(file.read_text())["version"] == "0.0.1"


def test_a_result_of_the_same_versions_outlasts_edits_of_the_code(result, tmp_path):
    edited = dataclasses.replace(result.experiment, claims=lambda *_: [], draw=lambda *_: Figure())
    result.save(tmp_path)
    assert load(tmp_path, edited, "quick")[0] is not None


def test_a_raised_schema_outdates_what_is_saved(result, tmp_path):
    result.save(tmp_path)
    loaded, why = load(tmp_path, dataclasses.replace(result.experiment, schema=2), "quick")
    assert loaded is None
    assert why == "what is saved was made by the experiment's schema 1, and this is 2"


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


def test_colours_of_lines_survive_saving(result, tmp_path):
    colours = ["#D55E00", "#E69F00", "#0072B2", "#56B4E9", "#009E73", "#CC79A7", "#7B3294"]
    figure = Figure()
    ax = figure.add_subplot()
    ax.imshow(np.random.default_rng(0).random((50, 50)), extent=(0, 1, 0, 8), aspect="auto")  # takes colours, too
    for place, colour in enumerate(colours):
        ax.plot([0, 1], [place, place + 1], color=colour)
    item = dataclasses.replace(result, experiment=dataclasses.replace(result.experiment, draw=lambda *_: figure))
    saved = np.asarray(Image.open(item.save(tmp_path).folder / "figure.png").convert("RGB"), int).reshape(-1, 3)
    for colour in colours:
        wanted = np.array(Image.new("RGB", (1, 1), colour).getpixel((0, 0)))
        assert np.abs(saved - wanted).max(1).min() <= 4  # to the eye


def test_the_figure_says_what_stands_in(result):
    assert result.draw()._supxlabel.get_text() == "Counting stands in for an experiment."
