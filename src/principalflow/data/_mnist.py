"""MNIST: handwritten digits, 28 x 28."""

import numpy as np

from principalflow.data._dataset import Dataset, Labelled, Request
from principalflow.data._digest import Digest
from principalflow.data._files import Files, Packed
from principalflow.data._images import from_images

# The original site serves them no more; the first of these is the mirror that TensorFlow and Keras use.
_MIRRORS = ("https://storage.googleapis.com/cvdf-datasets/mnist/", "https://ossci-datasets.s3.amazonaws.com/mnist/")
# Of each file size and digest gzipped, as it is downloaded, and unpacked.
_DIGESTS = {
    "train-images-idx3-ubyte": (
        Digest(9_912_422, "sha256:440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"),
        Digest(47_040_016, "sha256:ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"),
    ),
    "train-labels-idx1-ubyte": (
        Digest(28_881, "sha256:3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"),
        Digest(60_008, "sha256:65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"),
    ),
    "t10k-images-idx3-ubyte": (
        Digest(1_648_877, "sha256:8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"),
        Digest(7_840_016, "sha256:0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"),
    ),
    "t10k-labels-idx1-ubyte": (
        Digest(4_542, "sha256:f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"),
        Digest(10_008, "sha256:ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"),
    ),
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
