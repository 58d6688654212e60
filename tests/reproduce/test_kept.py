import pytest
from reproduce.cases import Config, Counting, experiment

from principalflow import reproduce, runs
from principalflow.reproduce import _run
from principalflow.reproduce._kept import clear, lock, place, trainings_in

OTHER = "0123456789abcdef-1"  # as a training by other code is named


@pytest.fixture
def old(tmp_path):
    """The folder of a sweep with one run, made by other code and finished."""
    with runs.create(tmp_path / OTHER / "seed=0", {}):
        pass
    return tmp_path / OTHER


def test_what_other_code_made_is_cleared(old, tmp_path):
    (tmp_path / f"{OTHER}.npz").touch()
    clear(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_what_this_code_made_stays(tmp_path):
    with trainings_in(tmp_path):
        ours = place(Config(), ".npz")
    unfinished = ours.with_name(f".{ours.name}")
    ours.touch()
    unfinished.touch()
    clear(tmp_path)
    assert ours.exists()
    assert unfinished.exists()


def test_what_is_being_made_stays(old, tmp_path):
    with lock(old):
        clear(tmp_path)
        assert (old / "seed=0").exists()
    clear(tmp_path)
    assert not old.exists()


def test_a_folder_that_is_not_there_is_clear(tmp_path):
    clear(tmp_path / "nothing")
    assert list(tmp_path.iterdir()) == []


def test_asking_for_a_place_removes_nothing(old, tmp_path):
    with trainings_in(tmp_path):
        place(Config())
    assert old.exists()


class Placing(Counting):
    """Notes where its training would be kept."""

    def __call__(self, config):
        self.place = place(config)
        self.place.touch()
        return super().__call__(config)


@pytest.fixture
def placing(monkeypatch):
    item = experiment(run=Placing())
    monkeypatch.setattr(_run, "EXPERIMENTS", {item.id: item})
    return item.run


def test_running_experiments_clears_what_other_code_made(placing, tmp_path):
    old = tmp_path / "quick" / "trainings" / f"{OTHER}.npz"
    old.parent.mkdir(parents=True)
    old.touch()
    reproduce.run_all(["counting"], "quick", tmp_path, say=lambda sentence: None)
    assert list(old.parent.iterdir()) == [placing.place]


def test_without_a_folder_trainings_are_kept_for_as_long_as_it_runs(placing):
    reproduce.run("counting")
    assert not placing.place.parent.exists()
