"""Data sets by name, their order, subsets and scale."""

import sys

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sklearn.datasets import load_breast_cancer, load_digits, load_iris

from principalflow import data
from principalflow._checks import shown
from principalflow.data._order import order, split
from principalflow.data._scale import by_training_part

BUNDLED = ["iris", "breast-cancer", "digits"]


@pytest.mark.parametrize("name", BUNDLED)
def test_bundled_sets_are_as_described(name):
    row = {column: values[list(data.names()).index(name)] for column, values in data.describe().items()}
    loaded = data.load(name)
    assert (loaded.inputs.dtype, loaded.labels.dtype) == (np.float32, np.int64)
    assert (len(loaded.inputs), len(loaded.test_inputs), loaded.classes) == (
        row["samples"],
        row["test_samples"],
        row["classes"],
    )
    assert " x ".join(map(str, loaded.input_shape)) == row["shape"]


@pytest.mark.parametrize(
    ("name", "original"), [("iris", load_iris), ("breast-cancer", load_breast_cancer), ("digits", load_digits)]
)
def test_training_and_test_part_together_are_all_samples(name, original):
    loaded = data.load(name, standardize=False)
    inputs, labels = original(return_X_y=True)
    scale = 16 if name == "digits" else 1
    ours = np.concatenate([loaded.inputs, loaded.test_inputs]).reshape(len(inputs), -1) * scale
    together = np.column_stack([ours, np.concatenate([loaded.labels, loaded.test_labels])])
    expected = np.column_stack([inputs.astype(np.float32), labels])
    np.testing.assert_array_equal(sorted(together.tolist()), sorted(expected.tolist()))


@pytest.mark.parametrize("name", BUNDLED)
def test_a_subset_is_the_beginning_of_the_whole(name):
    whole, part = data.load(name), data.load(name, samples=50, test_samples=7)
    np.testing.assert_array_equal(part.inputs, whole.inputs[:50])
    np.testing.assert_array_equal(part.labels, whole.labels[:50])
    np.testing.assert_array_equal(part.test_inputs, whole.test_inputs[:7])


def test_the_choice_is_the_same_whatever_the_global_generator():
    np.random.seed(1)
    first = data.load("iris", samples=10).inputs
    np.random.seed(2)
    np.testing.assert_array_equal(first, data.load("iris", samples=10).inputs)


def test_the_order_is_pinned():
    assert order(np.array([0, 1] * 5)).tolist() == [2, 9, 8, 1, 4, 7, 6, 3, 0, 5]


@given(st.lists(st.integers(0, 4), min_size=1, max_size=200), st.data())
def test_every_beginning_has_the_classes_in_proportion(labels, draw):
    labels = np.array(labels)
    size = draw.draw(st.integers(0, len(labels)))
    counts = np.bincount(labels[order(labels)[:size]], minlength=5)
    shares = np.bincount(labels, minlength=5) * size / len(labels)
    # Each class is at most a half from its share at the cut's quantile, so that the five put the cut 2.5 off at most.
    assert np.all(np.abs(counts - shares) <= 3 + 1e-9)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=60))
@example([0, 1, 2, 3, 4])  # the fifth to test on would be a whole class
def test_every_class_is_trained_on(labels):
    labels = np.array(labels)
    train, test = split(labels)
    assert sorted([*train, *test]) == list(range(len(labels)))
    assert {*labels[train]} == {*labels}


def test_the_test_part_has_the_classes_in_proportion():
    np.testing.assert_array_equal(np.bincount(data.load("iris").test_labels), [10, 10, 10])


@pytest.mark.parametrize("name", ["iris", "breast-cancer"])
def test_each_feature_is_standardised_by_the_training_part(name):
    raw, loaded = data.load(name, standardize=False), data.load(name)
    np.testing.assert_allclose(loaded.inputs.mean(0, np.float64), 0, atol=1e-6)  # float32
    np.testing.assert_allclose(loaded.inputs.std(0, np.float64), 1, rtol=1e-6)
    mean, deviation = raw.inputs.mean(0, np.float64), raw.inputs.std(0, np.float64)
    np.testing.assert_allclose(loaded.test_inputs, (raw.test_inputs - mean) / deviation, atol=1e-5)


def test_digits_are_standardised_by_all_pixels_together():
    raw, loaded = data.load("digits", standardize=False).inputs, data.load("digits").inputs
    assert (raw.min(), raw.max()) == (0, 1)
    np.testing.assert_allclose(loaded, (raw - raw.mean(dtype=np.float64)) / raw.std(dtype=np.float64), atol=1e-6)


def test_a_constant_feature_becomes_zero():
    constant = np.full((7, 1), 0.1)  # whose deviation is not zero, by rounding
    train, test = by_training_part(constant, constant + 1, axis=0, standardize=True)
    assert not train.any()
    assert not test.any()


def test_one_hot_labels_have_a_one_for_each_class():
    plain, one_hot = data.load("iris"), data.load("iris", one_hot=True)
    assert one_hot.labels.dtype == np.float32
    np.testing.assert_array_equal(one_hot.labels, np.eye(3)[plain.labels])
    np.testing.assert_array_equal(one_hot.test_labels, np.eye(3)[plain.test_labels])


def test_without_test_samples_there_is_no_test_part():
    loaded = data.load("iris", test_samples=0)
    assert loaded.test_inputs is None
    assert loaded.test_labels is None


def test_a_data_set_says_what_it_is():
    loaded = data.load("iris", samples=60)
    assert repr(loaded) == "Dataset('iris': 60 samples and 30 for testing, (4,), 3 classes)"
    assert loaded.class_names == ("setosa", "versicolor", "virginica")
    assert loaded.source == "scikit-learn, datasets.load_iris"


@pytest.mark.parametrize(
    ("given", "meant"), [("minst", "mnist"), ("CIFAR-10", "cifar10"), ("breast_cancer", "breast-cancer")]
)
@pytest.mark.parametrize("function", [data.load, data.fetch])
def test_an_unknown_name_is_answered_with_the_nearest(function, given, meant):
    with pytest.raises(ValueError, match=f"name must be one of 'iris', .*got '{given}'. Did you mean '{meant}'"):
        function(given)


def test_a_name_far_from_all_is_answered_with_all():
    with pytest.raises(ValueError, match=r"'cifar10' or the path of a .csv file or of a folder of images, got 'xyz'.$"):
        data.load("xyz")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(samples=0), "samples must be a whole number of at least 1, got 0"),
        (dict(samples=121), "samples must be at most 120, which is all there are, got 121"),
        (dict(test_samples=31), "test_samples must be at most 30, which is all there are, got 31"),
    ],
)
def test_samples_that_are_not_there_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        data.load("iris", **arguments)


@pytest.mark.parametrize("function", [data.load, data.fetch])
def test_without_scikit_learn_it_says_how_to_install_it(monkeypatch, function):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(ImportError, match=r"iris comes with scikit-learn: pip install 'principalflow\[reproduce\]'"):
        function("iris")


def test_bundled_sets_need_no_files():
    assert data.fetch("digits") == []


ANY = [None, 5, 10**30, 10**5000, 1.5, True, b"iris", "a\0b", "\ud800", [], {}, np.ones(2), "x" * 10**6, ""]
NO_COUNTS = [-1, True, 1.5, "5", [1], np.ones(2), float("nan"), 10**30, 10**5000]


@pytest.mark.parametrize("name", ANY, ids=shown)
@pytest.mark.parametrize("function", [data.load, data.fetch])
def test_what_is_no_name_is_named_in_short(function, name):
    with pytest.raises(ValueError, match=r"^name must be ") as caught:
        function(name)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("path", [*ANY, "~nobody/none", "x/" * 3000], ids=shown)
@pytest.mark.parametrize("function", [data.csv, data.image_folder])
def test_what_is_no_path_is_named_in_short(function, path):
    with pytest.raises((ValueError, FileNotFoundError), match=r"^path must be ") as caught:
        function(path)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("name", ["samples", "test_samples"])
@pytest.mark.parametrize("value", NO_COUNTS, ids=shown)
def test_what_is_no_number_of_samples_is_named(name, value):
    with pytest.raises(ValueError, match=f"^{name} must be "):
        data.load("iris", **{name: value})


@pytest.mark.parametrize("name", ["standardize", "one_hot", "progress"])
@pytest.mark.parametrize("value", [0, 1, "no", [], np.ones(2)])
def test_what_is_neither_true_nor_false_is_named(name, value):
    with pytest.raises(ValueError, match=f"^{name} must be True or False"):
        data.load("iris", **{name: value})


@pytest.mark.parametrize(("name", "value"), [("label", 5), ("label", ["kind"]), ("size", 10**30), ("size", "8")])
def test_what_a_bundled_set_does_not_take_is_named(name, value):
    with pytest.raises(ValueError, match=f"^{name} is for a "):
        data.load("iris", **{name: value})
