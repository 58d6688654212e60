import pytest
from reproduce.cases import Config, Counting, experiment, replace_catalogue

from principalflow import reproduce, runs
from principalflow._lab import kept
from principalflow._lab.kept import clean, lock, place, trainings_in

OTHER = "0123456789abcdef-1"  # as a training by other versions is named


@pytest.fixture
def old(tmp_path):
    """The folder of a sweep with one run, made by other versions and finished."""
    with runs.create(tmp_path / OTHER / "seed=0", {}):
        pass
    return tmp_path / OTHER


def test_what_other_versions_made_is_removed_and_told(old, tmp_path):
    file = tmp_path / f"{OTHER}.npz"
    file.touch()
    assert clean(tmp_path) == [old, file]
    assert list(tmp_path.iterdir()) == []


def test_what_these_versions_made_stays(tmp_path):
    with trainings_in(tmp_path):
        ours = place(Config(), ".npz")
    unfinished = ours.with_name(f".{ours.name}")
    ours.touch()
    unfinished.touch()
    assert clean(tmp_path) == []
    assert ours.exists()
    assert unfinished.exists()


def test_what_is_being_made_stays(old, tmp_path):
    with lock(old):
        assert clean(tmp_path) == []
        assert (old / "seed=0").exists()
    assert clean(tmp_path) == [old]


def test_a_folder_that_is_not_there_is_clean(tmp_path):
    assert clean(tmp_path / "nothing") == []
    assert list(tmp_path.iterdir()) == []


def test_another_schema_or_other_settings_have_another_place(tmp_path, monkeypatch):
    with trainings_in(tmp_path):
        first, others = place(Config()), place(Config(seed=1))
        monkeypatch.setattr(kept, "_SCHEMA", 2)
        assert len({first, others, place(Config())}) == 3


class Placing(Counting):
    """Notes where its training would be kept."""

    def __call__(self, config):
        self.place = place(config)
        self.place.touch()
        return super().__call__(config)


@pytest.fixture
def placing(monkeypatch):
    item = experiment(run=Placing())
    replace_catalogue(monkeypatch, item)
    return item.run


def test_running_experiments_removes_nothing(placing, tmp_path):
    old = tmp_path / "quick" / "trainings" / f"{OTHER}.npz"
    old.parent.mkdir(parents=True)
    old.touch()
    reproduce.run_all(["counting"], "quick", tmp_path, say=lambda sentence: None)
    assert sorted(old.parent.iterdir()) == sorted([old, placing.place])


def test_without_a_folder_trainings_are_kept_for_as_long_as_it_runs(placing):
    reproduce.run("counting")
    assert not placing.place.parent.exists()
