"""MNIST: handwritten digits, 28 x 28."""

import numpy as np

from principalflow.data._dataset import Dataset, Labelled, Request
from principalflow.data._files import Files, Packed
from principalflow.data._images import from_images

# The original site serves them no more; the first of these is the mirror that TensorFlow and Keras use.
_MIRRORS = ("https://storage.googleapis.com/cvdf-datasets/mnist/", "https://ossci-datasets.s3.amazonaws.com/mnist/")
# Of each file the md5 gzipped, as it is downloaded, and unpacked.
_DIGESTS = {
    "train-images-idx3-ubyte": ("f68b3c2dcbeaaa9fbdd348bbdeb94873", "6bbc9ace898e44ae57da46a324031adb"),
    "train-labels-idx1-ubyte": ("d53e105ee54ea40749a09fcbcd1e9432", "a25bea736e30d166cdddb491f175f624"),
    "t10k-images-idx3-ubyte": ("9fb629c4189551a2d022fa330f9573f3", "2646ac647ad5339dbf082846283269ea"),
    "t10k-labels-idx1-ubyte": ("ec29112dd5afa0611ce80d1b7f02629c", "27ae3e4e09519cfbb04c329615203637"),
}
_MEAN, _DEVIATION = (0.13066,), (0.30811,)  # of all training images

FILES = Files(
    "mnist",
    tuple(
        Packed(f"{name}.gz", tuple(f"{mirror}{name}.gz" for mirror in _MIRRORS), packed, {name: unpacked})
        for name, (packed, unpacked) in _DIGESTS.items()
    ),
)


def mnist(request: Request) -> Dataset:
    """Returns what is asked for of MNIST."""
    contents = FILES.read(FILES.names, request.progress)
    source = f"MNIST by LeCun, Cortes and Burges, in {FILES.where(FILES.names)}"
    class_names = tuple(str(digit) for digit in range(10))
    train, test = _part(contents, "train"), _part(contents, "t10k")
    return from_images("mnist", source, class_names, [train], test, _MEAN, _DEVIATION, request)


def _part(contents: dict[str, bytes], part: str) -> Labelled:
    """The images and labels behind the headers of the idx files, of 16 and 8 bytes."""
    images = np.frombuffer(contents[f"{part}-images-idx3-ubyte"], np.uint8, offset=16)
    return images.reshape(-1, 28, 28, 1), np.frombuffer(contents[f"{part}-labels-idx1-ubyte"], np.uint8, offset=8)
