import pytest

from principalflow._files import put, whole


def test_a_file_takes_its_place_when_it_is_whole(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    with whole(path, "file.tmp") as unfinished:
        unfinished.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_takes_the_place_of_another(tmp_path):
    path = tmp_path / "folder"
    path.mkdir()
    (path / "old").touch()
    with whole(path, ".unfinished") as unfinished:
        unfinished.mkdir()
        (unfinished / "new").touch()
    assert [item.name for item in path.iterdir()] == ["new"]
    assert list(tmp_path.iterdir()) == [path]


def test_an_error_leaves_what_was_there_and_nothing_else(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(KeyboardInterrupt):
        _interrupted(path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_nothing_is_written_through_a_link(tmp_path):
    target = tmp_path / "target"
    target.write_text("the user's")
    (tmp_path / "file.tmp").symlink_to(target)
    with whole(tmp_path / "file", "file.tmp") as unfinished:
        unfinished.write_text("ours")
    assert target.read_text() == "the user's"


def test_a_finished_file_is_put_in_the_place_of_another(tmp_path):
    (tmp_path / "part").write_text("new")
    (tmp_path / "file").write_text("old")
    put(tmp_path / "part", tmp_path / "file")
    assert (tmp_path / "file").read_text() == "new"
    assert not (tmp_path / "part").exists()


def _interrupted(path):
    with whole(path, "file.tmp") as unfinished:
        unfinished.write_text("half of the n")
        raise KeyboardInterrupt
