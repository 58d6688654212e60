"""Downloads over HTTPS that can be resumed and are checked."""

from collections.abc import Sequence
from http.client import HTTPException
from pathlib import Path
from urllib import request
from urllib.error import HTTPError

from filelock import FileLock

from principalflow._files import put
from principalflow._progress import progress
from principalflow.data._digest import Digest

_CHUNK = 2**18
_SECONDS = 30  # without an answer


class DataError(OSError):
    """The files of a data set are missing or damaged, or can't be downloaded."""


def https_opener() -> request.OpenerDirector:
    """Returns what opens addresses: an http:// one, or a redirect to one, is unknown to it."""
    opener = request.OpenerDirector()
    for handler in (
        request.ProxyHandler,
        request.HTTPSHandler,
        request.HTTPDefaultErrorHandler,
        request.HTTPRedirectHandler,
        request.HTTPErrorProcessor,
        request.UnknownHandler,
    ):
        opener.add_handler(handler())
    return opener


def download(urls: Sequence[str], target: Path, digest: Digest, shown: bool | None = None) -> None:
    """Downloads one file from the first address that has it; what breaks off is resumed by the next call.

    Args:
        urls: Where it is, one after the other.
        target: Where it goes, once it is complete; until then it is beside it with `.part` at the end.
        digest: Its size and digest; no more than that size is kept of what a server sends.
        shown: Whether progress is shown; None for where there is a terminal.

    Raises:
        DataError: If no address gave the file.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(target.with_name(f"{target.name}.lock")):  # two processes must not write one part
        if not target.exists():
            _download(urls, target, digest, shown)


def _download(urls: Sequence[str], target: Path, digest: Digest, shown: bool | None) -> None:
    part = target.with_name(f"{target.name}.part")
    failures = []
    for url in urls:
        try:
            _append(url, part, digest.size, shown)
        except (OSError, HTTPException, ValueError) as error:  # the last for a length that is no number
            failures.append(f"{url}: {error}")
            continue
        with part.open("rb") as file:
            fault = digest.fault(file)
        if not fault:
            put(part, target)
            return
        part.unlink()
        failures.append(f"{url}: the file {fault}; what was downloaded is removed")
    raise DataError("; ".join(failures))


def _append(url: str, part: Path, size: int, shown: bool | None) -> None:
    """Adds to the part what it lacks, until it is larger than it must be."""
    have = part.stat().st_size if part.exists() else 0
    asked = request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        response = https_opener().open(asked, timeout=_SECONDS)
    except HTTPError as error:
        if error.code == 416:  # nothing is left to send
            error.close()
            return
        raise
    with response:
        if response.status != 206:
            have = 0  # the server sends all of it
        total = have + int(response.headers.get("Content-Length", 0))
        with part.open("ab" if have else "wb") as file, progress(total // 1024, shown) as advance:
            while have <= size and (chunk := response.read(_CHUNK)):
                file.write(chunk)
                have += len(chunk)
                advance(have // 1024, f"KiB of {part.stem}")
    if have < min(total, size):
        raise ConnectionError(f"broke off after {have} of {total} bytes; the next attempt goes on from there")
