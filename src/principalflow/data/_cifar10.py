"""CIFAR-10: photographs of ten kinds of things, 32 x 32."""

import math

import numpy as np

from principalflow.data._dataset import Dataset, Labelled, Request
from principalflow.data._digest import Digest
from principalflow.data._files import Files, Packed
from principalflow.data._images import from_images

_RECORDS, _BYTES = 10_000, 1 + 3 * 32 * 32  # in each file, and of each record: its label, then its three planes


def _batch(digest: str) -> Digest:
    return Digest(_RECORDS * _BYTES, digest)


FILES = Files(
    "cifar10",
    (
        Packed(
            "cifar-10-binary.tar.gz",
            ("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",),
            Digest(170_052_171, "sha256:c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"),
            {
                "data_batch_1.bin": _batch("sha256:cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5"),
                # No two independent sources give the SHA-256 of these four by themselves; the archive's covers them.
                "data_batch_2.bin": _batch("md5:5ea93a67294ea407fff1d09f752e9692"),
                "data_batch_3.bin": _batch("md5:942cd6a4bcdd0dd3c604fbe906cb4421"),
                "data_batch_4.bin": _batch("md5:ae636b3ba5c66a11e91e8cb52e771fcb"),
                "data_batch_5.bin": _batch("md5:53f37980c15c3d472c316c40844f3f0d"),
                "test_batch.bin": _batch("sha256:8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b"),
            },
        ),
    ),
    "The archive cifar-10-binary.tar.gz will do too. samples=10000 needs no more than data_batch_1.bin and "
    "test_batch.bin, 20000 the first two, and so on.",
)
_NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_MEAN, _DEVIATION = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)  # of all training images


def cifar10(request: Request) -> Dataset:
    """Returns what is asked for of CIFAR-10, from no more files than that needs."""
    *batches, test = FILES.names
    if request.samples is not None:
        batches = batches[: math.ceil(request.samples / _RECORDS)]
    wanted = [*batches, test]
    contents = FILES.read(wanted, request.progress)
    source = f"CIFAR-10 by Krizhevsky, in {FILES.where(wanted)}"
    train = [_part(contents[name]) for name in batches]
    return from_images("cifar10", source, _NAMES, train, _part(contents[test]), _MEAN, _DEVIATION, request)


def _part(content: bytes) -> Labelled:
    """The images and labels of records of a byte for the label, then the red, green and blue planes."""
    records = np.frombuffer(content, np.uint8).reshape(-1, _BYTES)
    return records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), records[:, 0]
