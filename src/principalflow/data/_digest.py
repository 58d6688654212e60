"""The known size and digest of a file."""

import hashlib
import os
from dataclasses import dataclass
from io import BufferedIOBase


@dataclass(frozen=True)
class Digest:
    """What a file must have.

    Attributes:
        size: Its bytes.
        checksum: The algorithm and the hexadecimal digest, as in "sha256:9f86d0...".
    """

    size: int
    checksum: str

    def fault(self, file: BufferedIOBase) -> str:
        """Returns what is wrong with a file, "" if nothing is; one of another size isn't read."""
        size = file.seek(0, os.SEEK_END)
        if size != self.size:
            return f"must have {self.size} bytes, got {'more' if size > self.size else size}"
        file.seek(0)
        algorithm, _, needed = self.checksum.partition(":")
        found = hashlib.file_digest(file, algorithm).hexdigest()
        return "" if found == needed else f"must have the {algorithm} {needed}, got {found}"
