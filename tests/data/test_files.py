"""MNIST and CIFAR-10 in files: made up, and real ones where there are some."""

import gzip
import hashlib
import io
import os
import re
import tarfile
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from principalflow import data
from principalflow.data import DataError, _catalogue, _cifar10, _files, _mnist
from principalflow.data._digest import Digest

REAL = Path(os.environ.get("PRINCIPALFLOW_DATA", "none"))


def idx_files(samples=40, tests=20):
    """MNIST in small: the first pixel of an image is ten times its label, the second its number."""
    files = {}
    for part, count in (("train", samples), ("t10k", tests)):
        labels = np.arange(count, dtype=np.uint8) % 10
        images = np.zeros((count, 28, 28), np.uint8)
        images[:, 0, 0], images[:, 0, 1] = 10 * labels, np.arange(count)
        files[f"{part}-images-idx3-ubyte"] = bytes(16) + images.tobytes()
        files[f"{part}-labels-idx1-ubyte"] = bytes(8) + labels.tobytes()
    return files


def batches(count=20):
    """CIFAR-10 in small: red is ten times the label, green the number of the file, blue that of the image."""
    files = {}
    for number, name in enumerate(_cifar10.FILES.names):
        labels = np.arange(count) % 10
        planes = np.stack([10 * labels, np.full(count, number), np.arange(count)], axis=1)
        files[name] = np.column_stack([labels, np.repeat(planes, 1024, axis=1)]).astype(np.uint8).tobytes()
    return files


def archive(files, *others):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in {"readme.html": b"read me", **files}.items():
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
        for member in others:
            tar.addfile(member)
    return buffer.getvalue()


def digest(content):
    return Digest(len(content), f"sha256:{hashlib.sha256(content).hexdigest()}")


def with_digests(files, contents, packed=b""):
    """The same set of files, but with the digests of these contents, and of one that has them all packed."""
    of = {name: digest(content) for name, content in contents.items()}
    return replace(
        files,
        packed=tuple(
            replace(each, digest=digest(packed), holds={name: of[name] for name in each.holds}) for each in files.packed
        ),
    )


ARCHIVE = archive(batches())


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """A folder of data, the cache, and made up sets; nothing is downloaded."""
    own, cache = tmp_path / "own", tmp_path / "cache"
    for folder in (own, cache):
        (folder / "mnist").mkdir(parents=True)
        (folder / "cifar10").mkdir()
    monkeypatch.setenv("PRINCIPALFLOW_DATA", str(own))
    monkeypatch.setenv("PRINCIPALFLOW_OFFLINE", "1")
    monkeypatch.setattr(_files, "_cache", lambda: cache)
    monkeypatch.setattr(_cifar10, "_RECORDS", 20)
    monkeypatch.setattr(_mnist, "FILES", with_digests(_mnist.FILES, idx_files()))
    monkeypatch.setattr(_cifar10, "FILES", with_digests(_cifar10.FILES, batches(), ARCHIVE))
    for name, module in (("mnist", _mnist), ("cifar10", _cifar10)):
        monkeypatch.setitem(_catalogue._KNOWN, name, replace(_catalogue._KNOWN[name], files=module.FILES))
    return own, cache


def trust(monkeypatch, packed):
    """Has the archive's digest be that of this one."""
    monkeypatch.setattr(_cifar10, "FILES", with_digests(_cifar10.FILES, batches(), packed))


def write(folder, files, packed=()):
    for name, content in files.items():
        if name in packed:
            (folder / f"{name}.gz").write_bytes(gzip.compress(content))
        else:
            (folder / name).write_bytes(content)


def test_mnist_is_read_plain_and_gzipped(folders):
    write(folders[0] / "mnist", idx_files(), packed=["train-images-idx3-ubyte", "t10k-labels-idx1-ubyte"])
    loaded = data.load("mnist", standardize=False)
    assert (loaded.inputs.shape, loaded.test_inputs.shape) == ((40, 28, 28, 1), (20, 28, 28, 1))
    np.testing.assert_allclose(loaded.inputs[:, 0, 0, 0], loaded.labels * 10 / 255, rtol=1e-6)
    np.testing.assert_allclose(np.sort(loaded.inputs[:, 0, 1, 0]), np.arange(40) / 255, rtol=1e-6)
    assert loaded.source == f"MNIST by LeCun, Cortes and Burges, in {folders[0] / 'mnist'}"


@pytest.mark.parametrize("kind", ["plain", "gzipped", "archive"])
def test_cifar10_is_read_in_each_form(folders, kind):
    files = {"cifar-10-binary.tar.gz": ARCHIVE} if kind == "archive" else batches()
    write(folders[0] / "cifar10", files, packed=files if kind == "gzipped" else ())
    loaded = data.load("cifar10", standardize=False)
    assert (loaded.inputs.shape, loaded.test_inputs.shape) == ((100, 32, 32, 3), (20, 32, 32, 3))
    red, green, blue = (loaded.inputs * 255).round().astype(int).transpose(3, 0, 1, 2)
    np.testing.assert_array_equal(red[:, 5, 7], 10 * loaded.labels)
    np.testing.assert_array_equal(green[:, 0, 0], np.repeat(np.arange(5), 20))
    np.testing.assert_array_equal(np.sort(blue[:20, 31, 31]), np.arange(20))
    np.testing.assert_allclose(loaded.test_inputs[..., 1], 5 / 255, rtol=1e-6)


def test_fewer_samples_of_cifar10_need_fewer_files_and_are_the_same(folders):
    write(folders[0] / "cifar10", batches())
    whole = data.load("cifar10")
    for name in ("data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin"):
        (folders[0] / "cifar10" / name).unlink()
    for samples in (1, 20, 21, 40):
        np.testing.assert_array_equal(data.load("cifar10", samples=samples).inputs, whole.inputs[:samples])
    with pytest.raises(DataError, match=r"needs data_batch_3\.bin, not found .*samples=10000 needs no more than"):
        data.load("cifar10", samples=41)


def test_channels_are_standardised_by_those_of_the_full_set(folders):
    write(folders[0] / "cifar10", batches())
    raw, loaded = (data.load("cifar10", standardize=choice).inputs for choice in (False, True))
    np.testing.assert_allclose(loaded, (raw - [0.4914, 0.4822, 0.4465]) / [0.2470, 0.2435, 0.2616], atol=1e-6)


def test_the_folder_of_the_environment_is_before_the_cache(folders):
    own, cache = (folder / "mnist" for folder in folders)
    write(own, {name: content for name, content in idx_files().items() if name.startswith("train")})
    write(cache, idx_files())
    parents = {path.parent for path in data.fetch("mnist")}
    assert parents == {own, cache}
    assert (own / "train-images-idx3-ubyte") in data.fetch("mnist")


def test_a_damaged_file_is_named_and_kept(folders):
    files = idx_files()
    write(folders[0] / "mnist", files)
    file = folders[0] / "mnist" / "t10k-labels-idx1-ubyte"
    other = bytes(len(files[file.name]))
    file.write_bytes(other)
    needed, found = (hashlib.sha256(content).hexdigest() for content in (files[file.name], other))
    message = f"ubyte is damaged: {file.name} must have the sha256 {needed}, got {found}. Move it away"
    with pytest.raises(DataError, match=message):
        data.load("mnist")
    assert file.read_bytes() == other


@pytest.mark.parametrize("form", ["data_batch_1.bin.gz", "cifar-10-binary.tar.gz"])
@pytest.mark.parametrize("damage", [lambda packed: packed[: len(packed) // 2], lambda packed: b"no gzip"])
def test_a_packed_file_cut_short_is_named(folders, form, damage, monkeypatch):
    contents = batches()
    packed = archive(contents) if form == "cifar-10-binary.tar.gz" else gzip.compress(contents.pop("data_batch_1.bin"))
    write(folders[0] / "cifar10", {"test_batch.bin": contents["test_batch.bin"], form: damage(packed)})
    trust(monkeypatch, damage(packed))
    with pytest.raises(DataError, match=rf"{form} is damaged and can't be unpacked"):
        data.load("cifar10", samples=1)


def test_an_archive_that_lacks_a_file_is_damaged(folders, monkeypatch):
    packed = archive({})
    trust(monkeypatch, packed)
    write(folders[0] / "cifar10", {"cifar-10-binary.tar.gz": packed})
    with pytest.raises(DataError, match=r"tar.gz is damaged: data_batch_1.bin must have 61460 bytes, got 0"):
        data.load("cifar10", samples=1)


def test_an_archive_is_compared_with_its_digest_before_it_is_unpacked(folders, monkeypatch):
    forged = bytearray(ARCHIVE)
    forged[-1] ^= 1
    monkeypatch.setattr(_files.tarfile, "open", lambda *_: pytest.fail("it is unpacked"))
    for content, message in ((bytes(forged), "it must have the sha256 .*, got"), (ARCHIVE + b"x", "bytes, got more")):
        write(folders[0] / "cifar10", {"cifar-10-binary.tar.gz": content})
        with pytest.raises(DataError, match=f"cifar-10-binary.tar.gz is damaged: .*{message}"):
            data.load("cifar10", samples=1)


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.DIRTYPE])
def test_a_member_that_is_no_file_is_not_read(folders, monkeypatch, tmp_path, kind):
    (tmp_path / "secret").write_bytes(batches()["data_batch_1.bin"])
    files = batches()
    del files["data_batch_1.bin"]
    odd = tarfile.TarInfo("cifar-10-batches-bin/data_batch_1.bin")
    odd.type, odd.linkname = kind, str(tmp_path / "secret") if kind == tarfile.SYMTYPE else "readme.html"
    packed = archive(files, odd)
    trust(monkeypatch, packed)
    write(folders[0] / "cifar10", {"cifar-10-binary.tar.gz": packed})
    with pytest.raises(DataError, match=r"data_batch_1.bin must have 61460 bytes, got 0"):
        data.load("cifar10", samples=1)


@pytest.mark.parametrize("form", ["plain", "gzipped"])
def test_of_a_file_that_is_too_large_no_more_is_unpacked_than_shows_that(folders, form):
    size = len(batches()["data_batch_1.bin"])
    files = batches() | {"data_batch_1.bin": bytes(2**26)}  # gzipped, 64 KB
    write(folders[0] / "cifar10", files, packed=files if form == "gzipped" else ())
    tracemalloc.start()
    with pytest.raises(DataError, match=f"data_batch_1.bin must have {size} bytes, got more"):
        data.load("cifar10", samples=1)
    assert tracemalloc.get_traced_memory()[1] < 2**24  # a fourth of what it would unpack to
    tracemalloc.stop()


@pytest.mark.parametrize("name", ["train-images-idx3-ubyte", "train-images-idx3-ubyte.gz"])
def test_a_pipe_in_the_place_of_a_file_is_not_opened(folders, name):
    write(folders[0] / "mnist", {name: content for name, content in idx_files().items() if name[:12] != "train-images"})
    os.mkfifo(folders[0] / "mnist" / name)
    with pytest.raises(DataError, match="mnist needs train-images-idx3-ubyte, not found"):
        data.load("mnist")


def test_every_digest_is_a_sha256_but_for_those_that_the_archive_covers():
    digests = {
        name: known.checksum
        for files in (_mnist.FILES, _cifar10.FILES)
        for known in files.packed
        for name, known in {**known.holds, known.name: known.digest}.items()
    }
    weak = sorted(name for name, digest in digests.items() if not re.fullmatch("sha256:[0-9a-f]{64}", digest))
    assert weak == [f"data_batch_{i}.bin" for i in (2, 3, 4, 5)]


def test_without_a_connection_it_says_what_would_help(folders, monkeypatch):
    monkeypatch.setenv("PRINCIPALFLOW_OFFLINE", "0")

    def no_network(urls, *_):
        raise DataError(f"{urls[0]}: no route to host")

    monkeypatch.setattr(_files, "download", no_network)
    with pytest.raises(DataError) as caught:
        data.load("mnist")
    for words in (
        "mnist needs train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte, t10k-labels-idx1-ubyte",
        "storage.googleapis.com/cvdf-datasets/mnist/train-images-idx3-ubyte.gz: no route to host",
        "`principalflow data mnist`",
        "into a folder 'mnist' and set the environment variable PRINCIPALFLOW_DATA",
    ):
        assert words in str(caught.value)


def test_offline_nothing_is_downloaded(folders, monkeypatch):
    monkeypatch.setattr(_files, "download", lambda *_: pytest.fail("a download"))
    with pytest.raises(DataError, match="PRINCIPALFLOW_OFFLINE forbids to download"):
        data.fetch("cifar10")


def test_what_is_missing_alone_is_downloaded_into_the_cache(folders, monkeypatch):
    monkeypatch.delenv("PRINCIPALFLOW_OFFLINE")
    files = idx_files()
    write(folders[0] / "mnist", {"train-images-idx3-ubyte": files.pop("train-images-idx3-ubyte")})
    downloaded = []

    def from_nowhere(urls, target, digest, shown):
        downloaded.append(target)
        target.write_bytes(gzip.compress(files[target.stem]))

    monkeypatch.setattr(_files, "download", from_nowhere)
    paths = data.fetch("mnist")
    assert downloaded == [folders[1] / "mnist" / f"{name}.gz" for name in files]
    assert sorted([*downloaded, folders[0] / "mnist" / "train-images-idx3-ubyte"]) == paths
    assert len(data.load("mnist").inputs) == 40


def test_a_variable_that_is_no_folder_is_refused(folders, monkeypatch):
    monkeypatch.setenv("PRINCIPALFLOW_DATA", str(folders[0] / "none"))
    with pytest.raises(DataError, match="PRINCIPALFLOW_DATA must be a folder, got"):
        data.load("mnist")


@pytest.mark.parametrize(("name", "samples"), [("mnist", 60_001), ("cifar10", 50_001)])
def test_too_many_samples_are_refused_before_a_download(folders, name, samples):
    with pytest.raises(ValueError, match=f"samples must be at most {samples - 1}"):
        data.load(name, samples=samples)


@pytest.mark.skipif(not (REAL / "mnist").is_dir(), reason="PRINCIPALFLOW_DATA has no MNIST")
def test_the_real_mnist_has_mean_0_and_deviation_1():
    loaded = data.load("mnist")
    assert (loaded.inputs.shape, loaded.test_inputs.shape) == ((60_000, 28, 28, 1), (10_000, 28, 28, 1))
    assert abs(loaded.inputs.mean(dtype=np.float64)) < 5e-5  # the constants have five digits
    assert abs(loaded.inputs.std(dtype=np.float64) - 1) < 5e-5
    assert loaded.labels[:10].tolist() != [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]  # which is the order in the file


@pytest.mark.skipif(not (REAL / "cifar10").is_dir(), reason="PRINCIPALFLOW_DATA has no CIFAR-10")
def test_the_real_cifar10_has_the_known_means():
    loaded = data.load("cifar10", samples=10_000, standardize=False)
    assert loaded.inputs.shape == (10_000, 32, 32, 3)
    # A fifth of the images: their mean is within a hundredth of that of all.
    np.testing.assert_allclose(loaded.inputs.mean((0, 1, 2), np.float64), [0.4914, 0.4822, 0.4465], atol=0.01)
