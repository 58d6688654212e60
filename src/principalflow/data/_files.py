"""The files of a data set: found, or downloaded, and checked."""

import gzip
import io
import os
import tarfile
import zlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from platformdirs import user_cache_path

from principalflow.data._digest import Digest
from principalflow.data._download import DataError, download

_DAMAGE = (EOFError, gzip.BadGzipFile, tarfile.TarError, zlib.error)


@dataclass(frozen=True)
class Packed:
    """A file to download, and what it holds, unpacked."""

    name: str
    urls: tuple[str, ...]
    digest: Digest
    holds: Mapping[str, Digest]


@dataclass(frozen=True)
class Files:
    """The files of a data set.

    They are looked for in its folder of `PRINCIPALFLOW_DATA`, then of the cache: plain, gzipped or as downloaded.

    Attributes:
        name: The data set's, and its folder's.
        packed: All there is to download.
        hint: What else helps where files are missing.
    """

    name: str
    packed: tuple[Packed, ...]
    hint: str = ""

    @property
    def names(self) -> list[str]:
        """All files, unpacked."""
        return [name for packed in self.packed for name in packed.holds]

    def read(self, wanted: Collection[str], shown: bool | None) -> dict[str, bytes]:
        """Returns the content of the files wanted, checked; what isn't there is downloaded."""
        paths = self.paths(wanted, shown)
        contents = {}
        for path in set(paths.values()):  # an archive is read once
            contents |= self._checked(path, [name for name in wanted if paths[name] == path])
        return contents

    def paths(self, wanted: Collection[str], shown: bool | None) -> dict[str, Path]:
        """Returns where the files wanted are, packed or not; what isn't there is downloaded."""
        missing = [name for name in wanted if self._find(name) is None]
        if missing:
            self._download(missing, shown)
        return {name: path for name in wanted if (path := self._find(name))}

    def where(self, names: Collection[str]) -> str:
        """Returns the folders that hold these files."""
        return " and ".join(sorted({str(path.parent) for name in names if (path := self._find(name))}))

    def _find(self, name: str) -> Path | None:
        forms = (name, f"{name}.gz", self._packed(name).name)
        candidates = (folder / self.name / form for folder in _folders() for form in forms)
        return next((path for path in candidates if path.is_file()), None)

    def _packed(self, name: str) -> Packed:
        return next(packed for packed in self.packed if name in packed.holds)

    def _download(self, missing: list[str], shown: bool | None) -> None:
        if os.environ.get("PRINCIPALFLOW_OFFLINE", "0") not in ("", "0"):
            raise DataError(self._advice(missing, "PRINCIPALFLOW_OFFLINE forbids to download"))
        for packed in self.packed:
            if packed.holds.keys() & missing:
                try:
                    download(packed.urls, _cache() / self.name / packed.name, packed.digest, shown)
                except DataError as error:
                    raise DataError(self._advice(missing, f"the download failed ({error})")) from error

    def _advice(self, missing: list[str], reason: str) -> str:
        looked = " and ".join(str(folder / self.name) for folder in _folders())
        return (
            f"{self.name} needs {', '.join(missing)}, not found in {looked}, and {reason}. "
            f"With a connection, `principalflow data {self.name}` downloads what is missing. Without one, put these "
            f"files, plain or gzipped, into a folder {self.name!r} and set the environment variable PRINCIPALFLOW_DATA "
            f"to the folder that holds it. {self.hint}"
        ).strip()

    def _checked(self, path: Path, names: list[str]) -> dict[str, bytes]:
        damaged = f"{path} is damaged"
        remedy = f"Move it away, and `principalflow data {self.name}` downloads it anew."
        packed = self._packed(names[0])
        if _is_archive(path):  # which is checked as a whole before anything of it is unpacked
            with path.open("rb") as file:
                if fault := packed.digest.fault(file):
                    raise DataError(f"{damaged}: it {fault}. {remedy}")
        try:
            contents = _unpacked(path, {name: packed.holds[name].size for name in names})
        except _DAMAGE as error:
            raise DataError(f"{damaged} and can't be unpacked: {error}. {remedy}") from error
        for name in names:
            if fault := packed.holds[name].fault(io.BytesIO(contents.get(name, b""))):
                raise DataError(f"{damaged}: {name} {fault}. {remedy}")
        return contents


def _folders() -> list[Path]:
    own = os.environ.get("PRINCIPALFLOW_DATA")
    if own and not Path(own).is_dir():
        raise DataError(f"PRINCIPALFLOW_DATA must be a folder, got {own!r}.")
    return [Path(own), _cache()] if own else [_cache()]


def _cache() -> Path:
    return user_cache_path("principalflow")


def _is_archive(path: Path) -> bool:
    return path.name.endswith(".tar.gz")


def _unpacked(path: Path, sizes: Mapping[str, int]) -> dict[str, bytes]:
    """Returns the files by name; of one that is larger than it must be no more is unpacked than shows that."""
    if _is_archive(path):
        with tarfile.open(path) as archive:
            wanted = ((name, archive.extractfile(member)) for member in archive if (name := _wanted(member, sizes)))
            return {name: file.read() for name, file in wanted if file}  # each in its turn: going back unpacks anew
    (name, size), *_ = sizes.items()
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        return {name: file.read(size + 1)}


def _wanted(member: tarfile.TarInfo, sizes: Mapping[str, int]) -> str | None:
    """The name of a member that is wanted; links, devices and files of other sizes are not."""
    name = PurePosixPath(member.name).name
    return name if member.isreg() and sizes.get(name) == member.size else None
