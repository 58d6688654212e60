"""Images of one's own, in folders."""

import os
import struct
import sys
import zlib

import numpy as np
import pytest
from PIL import Image

from principalflow import data
from principalflow._checks import shown

MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@pytest.fixture
def folder(tmp_path):
    """Ten red and five green images, of several kinds of files."""
    names = ["a.jpg", "b.jpeg", "c.JPEG", "d.png", "e.png"]
    for i, name in enumerate(names):
        save(tmp_path / "green" / name, (0, 255, 0))
        for copy in "12":
            save(tmp_path / "red" / f"{copy}{name}", (255, 0, 0), size=(60 + i, 50))
    (tmp_path / "red" / "notes.txt").write_text("no image")
    (tmp_path / "red" / "._a.jpg").write_text("what macOS leaves behind")
    (tmp_path / ".hidden").mkdir()
    return tmp_path


def save(path, colour, size=(50, 70), mode="RGB"):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, colour).save(path)


def test_images_have_the_class_of_their_folder(folder):
    loaded = data.image_folder(folder, size=16, standardize=False)
    assert loaded.class_names == ("green", "red")
    assert (loaded.inputs.shape, loaded.test_inputs.shape) == ((12, 16, 16, 3), (3, 16, 16, 3))
    colours = np.array([[0, 1, 0], [1, 0, 0]])[loaded.labels]
    np.testing.assert_allclose(loaded.inputs.mean((1, 2)), colours, atol=0.02)  # JPEG rounds colours
    assert loaded.inputs.dtype == np.float32
    assert loaded.labels.dtype == np.int64


def test_train_and_val_are_the_parts(tmp_path):
    for name in ("cat", "dog"):
        for i in range(3):
            save(tmp_path / "train" / name / f"{i}.png", (0, 0, 0))
        save(tmp_path / "val" / name / "0.png", (255, 255, 255))
    loaded = data.image_folder(tmp_path, size=8, standardize=False)
    assert (loaded.inputs.shape[0], loaded.inputs.max()) == (6, 0)
    assert (loaded.test_inputs.shape[0], loaded.test_inputs.min()) == (2, 1)
    assert sorted(loaded.test_labels) == [0, 1]


def test_a_subset_is_the_beginning_of_the_whole(folder):
    whole = data.image_folder(folder, size=8)
    part = data.load(str(folder), samples=6, test_samples=0)
    np.testing.assert_array_equal(part.labels, whole.labels[:6])
    assert np.bincount(part.labels).tolist() == [2, 4]
    assert part.inputs.shape == (6, 224, 224, 3)
    assert part.test_inputs is None


def test_the_centre_is_cut_from_the_resized_image(tmp_path):
    pixels = np.random.RandomState(0).randint(256, size=(40, 90, 3)).astype(np.uint8)
    save(tmp_path / "other" / "0.png", (0, 0, 0))
    (tmp_path / "noise").mkdir()
    Image.fromarray(pixels).save(tmp_path / "noise" / "0.png")
    loaded = data.image_folder(tmp_path, size=28, standardize=False)
    resized = np.asarray(Image.fromarray(pixels).resize((72, 32), Image.Resampling.BILINEAR))
    expected = resized[2:30, 22:50] / np.float32(255)
    np.testing.assert_array_equal(loaded.inputs[loaded.labels == 0][0], expected)


@pytest.mark.parametrize("mode", ["L", "1", "P", "RGBA", "CMYK"])
def test_other_modes_become_rgb(tmp_path, mode):
    for name in ("a", "b"):
        save(tmp_path / name / ("0.jpg" if mode == "CMYK" else "0.png"), 0, mode=mode)
    assert data.image_folder(tmp_path, size=8).inputs.shape == (2, 8, 8, 3)


def test_pixels_are_standardised_by_those_of_imagenet(folder):
    raw, loaded = (data.image_folder(folder, size=8, standardize=choice).inputs for choice in (False, True))
    np.testing.assert_allclose(loaded, (raw - np.array(MEAN)) / DEVIATION, atol=1e-6)


def test_a_broken_file_is_named(folder):
    file = folder / "green" / "a.jpg"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(ValueError, match=r"green.a\.jpg can't be decoded"):
        data.image_folder(folder, size=8)


@pytest.mark.parametrize("allowed", [None, 2000, 89_478_485])
@pytest.mark.parametrize(("width", "height"), [(8193, 8192), (9500, 9500), (30_000, 30_000), (2**31 - 1, 1)])
def test_an_image_of_too_many_pixels_is_refused_before_it_is_decoded(folder, monkeypatch, width, height, allowed):
    """Whatever Pillow allows in this process, and without a change of that."""
    (folder / "green" / "d.png").write_bytes(png_without_pixels(width, height))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", allowed)
    message = (
        r"green.d\.png can't be decoded: (it must have at most 67108864 pixels, got \d+ x \d+|Image size .* exceeds)"
    )
    with pytest.raises(ValueError, match=message):
        data.image_folder(folder, size=8)
    assert allowed == Image.MAX_IMAGE_PIXELS


def png_without_pixels(width, height):
    """The beginning of a file, of which a decoder would say that it is cut short."""

    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", b"") + chunk(b"IEND", b"")


@pytest.mark.parametrize("kind", ["pipe", "folder", "device"])
def test_what_is_no_regular_file_is_refused_unread(folder, kind):
    odd = folder / "green" / "f.png"
    {"pipe": os.mkfifo, "folder": os.mkdir, "device": lambda path: path.symlink_to("/dev/zero")}[kind](odd)
    with pytest.raises(ValueError, match=r"green.f\.png can't be decoded: it must be a file, got .*, which is a"):
        data.image_folder(folder, size=8)


@pytest.mark.parametrize("size", [0, -1, True, 1.5, None, "8", 65_536, 10**30, 10**5000], ids=shown)
def test_a_size_that_no_image_has_is_named(folder, size):
    with pytest.raises(ValueError, match=r"^size must be a whole number of at"):
        data.image_folder(folder, size=size)


def test_memory_is_checked_before_any_image_is_decoded(folder):
    for file in folder.rglob("*.png"):
        file.write_text("no image")
    message = (
        r"max_gib must be at least 0.67 for 15 images of 2000 x 2000, got 0.5\. "
        "Ask for fewer: samples and test_samples of 11 together fit"
    )
    with pytest.raises(ValueError, match=message):
        data.image_folder(folder, size=2000, max_gib=0.5)


def test_parts_with_different_classes_are_refused(folder, tmp_path):
    for name in ("train/cat", "train/dog", "val/cat", "val/dogs"):
        save(tmp_path / name / "0.png", (0, 0, 0))
    with pytest.raises(ValueError, match="must have the same classes, but only one of them has dog, dogs"):
        data.image_folder(tmp_path)


def test_a_folder_without_classes_is_refused(tmp_path):
    save(tmp_path / "0.png", (0, 0, 0))
    with pytest.raises(ValueError, match=r"must be in folders named after their classes.*two classes at least, got 0"):
        data.load(tmp_path)


def test_a_class_without_images_is_refused(folder):
    (folder / "blue").mkdir()
    with pytest.raises(ValueError, match=r"blue: images must be in .*got a folder without images"):
        data.image_folder(folder)


def test_what_is_no_folder_is_refused(tmp_path):
    with pytest.raises(ValueError, match="path must be a folder"):
        data.image_folder(tmp_path / "none")


def test_without_pillow_it_says_how_to_install_it(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ImportError, match=r"decoded with Pillow: pip install 'principalflow\[reproduce\]'"):
        data.image_folder(folder)
