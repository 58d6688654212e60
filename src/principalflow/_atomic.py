"""Files and folders that are there whole or not at all, and outlast a power cut."""

import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole(path: Path, unfinished: str) -> Iterator[Path]:
    """Gives where to write a file or folder, which takes the place of `path` once the block has ended without an error.

    Until then it has the other name, and after an error it is removed.
    """
    temporary = path.with_name(unfinished)
    # What a killed process left, or a link: removed and made anew, nothing is written through it.
    _remove(temporary)
    try:
        yield temporary
        put(temporary, path)
    except BaseException:
        _remove(temporary)
        raise


def put(finished: Path, path: Path) -> None:
    """Puts a file or folder that is whole in the place of another one."""
    sync([*finished.rglob("*"), finished])
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    os.replace(finished, path)
    sync([path.parent])


def sync(items: Iterable[Path]) -> None:
    """Makes files, and the names in folders, outlast a power cut."""
    for item in items:
        try:
            handle = os.open(item, os.O_RDONLY)
        except PermissionError:  # Windows opens no folders, and needs no such call for them
            continue
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
