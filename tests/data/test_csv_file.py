"""A table of one's own."""

import os

import numpy as np
import pytest

from principalflow import _checks, data
from principalflow.data._dataset import Request


@pytest.fixture
def write(tmp_path):
    def write(text, encoding="utf-8"):
        path = tmp_path / "own.csv"
        path.write_text(text, encoding=encoding)
        return path

    return write


def rows(*labels, feature="1.5"):
    return "".join(f"{i},{feature},{label}\n" for i, label in enumerate(labels))


def all_labels(loaded):
    return sorted([*loaded.labels, *loaded.test_labels])


def test_text_labels_are_classes_in_sorted_order(write):
    loaded = data.csv(write("a,b,kind\n" + rows(*["pear", "apple"] * 5)))
    assert loaded.class_names == ("apple", "pear")
    assert all_labels(loaded) == [0] * 5 + [1] * 5
    assert (loaded.name, loaded.input_shape) == ("own", (2,))


def test_whole_labels_are_classes_in_the_order_of_numbers(write):
    loaded = data.csv(write("a,b,kind\n" + rows(*[10, 9, -1] * 4)))
    assert loaded.class_names == ("-1", "9", "10")


def test_labels_with_a_point_are_targets_of_a_regression(write):
    loaded = data.csv(write("a,b,target\n" + rows(*[1.5, 2.0, 3, 4, 5])))
    assert loaded.classes is None
    assert loaded.labels.dtype == np.float32
    assert all_labels(loaded) == [1.5, 2, 3, 4, 5]


def test_the_label_may_be_any_column(write):
    loaded = data.csv(write("kind,a\n" + "x,1\ny,2\n" * 3), label="kind", standardize=False)
    assert loaded.class_names == ("x", "y")
    np.testing.assert_array_equal(loaded.inputs[:, 0], loaded.labels + 1)


def test_a_byte_order_mark_blank_lines_and_spaces_do_not_count(write):
    loaded = data.csv(write("a , kind\n\n" + "1, x\n\n2,y \n" * 3 + "\n", encoding="utf-8-sig"), label="kind")
    assert loaded.class_names == ("x", "y")


def test_the_delimiter_may_be_another(write):
    assert data.csv(write("a;kind\n" + "1;x\n2;y\n" * 3), delimiter=";").input_shape == (1,)


def test_load_takes_the_path_of_a_table(write):
    path = write("a,b,kind\n" + rows(*["x", "y"] * 5))
    for given in (path, str(path)):
        loaded = data.load(given, samples=3, test_samples=1, one_hot=True)
        assert loaded.labels.shape == (3, 2)
        assert loaded.source == str(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"line 1: two columns are needed at least, got \[\]"),
        ("a;kind\n1;x\n", "line 1: two columns are needed at least, .* Is the delimiter right"),
        ("1,2,3\n" + rows(*"xyxyxy"), "line 1: the columns' names are needed"),
        (",b,kind\n" + rows(*"xyxyxy"), "line 1: the columns' names are needed"),
        ("a,a,kind\n" + rows(*"xyxyxy"), "line 1: the columns' names are needed, all different"),
        ("a,b,kind\n1,2,x\n1,2\n", "line 3: 3 columns are needed as in line 1, got 2"),
        ("a,b,kind\n1,2,x\n1,,y\n", "line 3, column 'b': a value is missing, got ''"),
        ("a,b,kind\n1,2,x\n1,NaN,y\n", "line 3, column 'b': a value is missing, got 'NaN'"),
        ("a,b,kind\n1,2,x\n1,2,\n", "line 3, column 'kind': a value is missing, got ''"),
        ("a,b,kind\nred,2,x\n", "line 2, column 'a': a feature must be a number, got 'red'"),
        ("a,b,kind\n1,2,x\n1,1e999,y\n", "line 3, column 'b': numbers must be finite in float32, got '1e999'"),
        ("a,b,kind\n1,2,x\n1,-nan,y\n", "line 3, column 'b': numbers must be finite in float32, got '-nan'"),
        ("a,b,kind\n1,2,x\n1,1_5,y\n", "line 3, column 'b': a feature must be a number, got '1_5'"),
        ("a,b,kind\r1,2,x\r1,red,y\r", "line 3, column 'b': a feature must be a number, got 'red'"),
        ("a,b,kind\n1,2,x\n1,\0,y\n", "line 3: it must be a table in UTF-8 text, got a NUL at character 3"),
        ('a,b,kind\n1,2,x\n1,2,"y\n' + "1,2,z\n" * 30_000, "line 21849: it can't be read as cells: field larger"),
        ("a,b,kind\n1,2," + "x" * 140_000, "line 2: it can't be read as cells: field larger than field limit"),
        ("a,b,kind\n1,2,x\n1," + "9" * 5000 + ",y\n", r"column 'b': numbers must be finite .*\(5002 characters\)"),
        ("a,b,kind\ninf,2,x\n", "line 2, column 'a': numbers must be finite in float32, got 'inf'"),
        ("a,b,kind\n1,2,1e39\n", "line 2, column 'kind': numbers must be finite in float32, got '1e39'"),
        ("a,b,kind\n" + rows(*"xyxy"), "must have at least 5 rows below its header, got 4"),
        ("a,b,kind\n" + rows(*"xxxxx"), "two classes at least and twice as many rows, got 1 classes in 5 rows"),
        ("a,b,kind\n" + rows(*range(6)), "got 6 classes in 6 rows. For regression write whole numbers with a decimal"),
    ],
)
def test_a_table_that_will_not_do_is_refused_with_its_place(write, text, message):
    with pytest.raises(ValueError, match=message):
        data.csv(write(text))


def test_a_label_that_is_no_column_is_answered_with_the_nearest(write):
    with pytest.raises(ValueError, match=r"label must be a column of .*'b', 'kind', got 'knid'. Did you mean 'kind'"):
        data.csv(write("a,b,kind\n" + rows(*"xyxyxy")), label="knid")


def test_one_hot_targets_are_refused(write):
    with pytest.raises(ValueError, match="one_hot must be False for regression"):
        data.csv(write("a,b,kind\n" + rows(*[0.5] * 5)), one_hot=True)


def test_other_encodings_are_refused(write):
    with pytest.raises(ValueError, match="line 1: it must be a table in UTF-8 text"):
        data.csv(write("ä,kind\n1,x\n", encoding="latin-1"))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"name must be a file, and there is none at '.*none.csv'"):
        data.load(tmp_path / "none.csv")


def test_bytes_that_are_no_utf_8_are_named_with_their_place(tmp_path):
    (tmp_path / "own.csv").write_bytes(b"a,kind\n1,x\n2,\xff\n")
    with pytest.raises(ValueError, match="line 3: it must be a table in UTF-8 text, got byte 0xff at character 3"):
        data.csv(tmp_path / "own.csv")


@pytest.mark.parametrize("ends", ["\n", "\r\n", "\r"])
def test_lines_may_end_as_on_any_system(write, ends):
    path = write("")
    path.write_bytes(("a,b,kind\n" + rows(*"xyxyxy")).replace("\n", ends).encode())
    assert data.csv(path).inputs.shape == (5, 2)


def test_a_million_columns_are_read_and_an_error_lists_some_of_them(write):
    names = [f"c{i}" for i in range(10**6)]
    path = write(",".join(names) + "\n" + (",".join(["1"] * (len(names) - 1)) + ",x\n"))
    with pytest.raises(
        ValueError, match=r"label must be a column of .*: 'c0', .*'c19', \.\.\., got 'kind'\.$"
    ) as caught:
        data.csv(path, label="kind")
    assert len(str(caught.value)) < 1000
    with pytest.raises(ValueError, match="must have at least 5 rows below its header, got 1"):
        data.csv(path)


def test_a_line_without_an_end_is_not_read_to_its_end(write):
    with pytest.raises(ValueError, match="line 2: a line must be of at most 16777216 characters, got more"):
        data.csv(write("a,kind\n1," + "x" * 2**24))


def test_what_is_no_regular_file_is_refused_unread(tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "device.csv").symlink_to("/dev/zero")
    for name, kind in (("pipe", "a pipe or a device"), ("folder", "a folder"), ("device", "a pipe or a device")):
        with pytest.raises(ValueError, match=rf"^path must be a file, got '.*{name}.csv', which is {kind}"):
            data.csv(tmp_path / f"{name}.csv")


def test_a_table_beyond_memory_is_refused_unread(write, monkeypatch):
    path = write("a,b,kind\n" + rows(*"xyxyxy"))
    os.truncate(path, 2**30)  # a hole, which takes no space
    monkeypatch.setattr(_checks, "_host_memory", lambda: 2**30)
    with pytest.raises(ValueError, match=r"^path must be a table that fits in memory; .*own.csv needs 3 GiB of memory"):
        data.csv(path)


def test_one_hot_labels_beyond_memory_are_refused(monkeypatch):
    monkeypatch.setattr(_checks, "_host_memory", lambda: 2**30)
    with pytest.raises(
        ValueError, match=r"one_hot asks for labels of 8 samples in 1000000000 classes, which take 29\.8 GiB"
    ):
        Request(one_hot=True)._labels(np.zeros(8, int), range(10**9))


@pytest.mark.parametrize("delimiter", ["", ",,", "\n", '"', "\0", None, 5, b","])
def test_a_delimiter_that_is_no_character_is_named(write, delimiter):
    with pytest.raises(ValueError, match=r"^delimiter must be a single character"):
        data.csv(write("a,b,kind\n" + rows(*"xyxyxy")), delimiter=delimiter)


@pytest.mark.parametrize("label", [5, b"kind", ["kind"], np.ones(2), "kind\0"])
def test_a_label_of_another_type_is_named(write, label):
    with pytest.raises(ValueError, match=r"^label must be a column of"):
        data.csv(write("a,b,kind\n" + rows(*"xyxyxy")), label=label)
