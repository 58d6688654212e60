import json

import pytest
from reproduce.cases import experiment, replace_catalogue

from principalflow import reproduce


@pytest.fixture
def saved(monkeypatch, tmp_path):
    """A folder with two results and a training, one of the results and the training made by other versions."""
    replace_catalogue(monkeypatch, experiment("ours"), experiment("old"))
    reproduce.run_all([], "quick", tmp_path, say=lambda sentence: None)
    file = tmp_path / "quick" / "old" / "result.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"jax": "0.0.1"}))
    (tmp_path / "quick" / "trainings").mkdir(exist_ok=True)
    (tmp_path / "quick" / "trainings" / "0123456789abcdef-1.npz").touch()
    return tmp_path / "quick"


def test_cleaning_removes_what_is_outdated_and_says_so(saved):
    said, outdated = [], [saved / "old", saved / "trainings" / "0123456789abcdef-1.npz"]
    assert reproduce.clean(saved.parent, say=said.append) == outdated
    assert said == [f"Removed {path}." for path in outdated]
    assert not any(path.exists() for path in outdated)
    assert (saved / "ours" / "result.json").exists()


def test_cleaning_again_finds_nothing(saved):
    said = []
    reproduce.clean(saved.parent, say=said.append)
    assert reproduce.clean(saved.parent, say=said.append) == []
    assert said[-1] == "Nothing is outdated."


def test_what_cannot_be_read_is_not_removed(saved):
    (saved / "old" / "result.json").write_text("[")
    reproduce.clean(saved.parent, say=lambda sentence: None)
    assert (saved / "old").exists()


def test_cleaning_needs_a_folder(tmp_path):
    with pytest.raises(ValueError, match="out must be a folder of results"):
        reproduce.clean(tmp_path / "nothing")
