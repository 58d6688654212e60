"""Downloads, from a server on this machine."""

import hashlib
from contextlib import contextmanager
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from threading import Thread
from urllib.error import URLError
from urllib.request import ProxyHandler, Request, build_opener

import pytest

from principalflow.data import DataError, _download
from principalflow.data._digest import Digest
from principalflow.data._download import download, https_opener

CONTENT = bytes(range(256)) * 4096
SHA256 = hashlib.sha256(CONTENT).hexdigest()
KNOWN = Digest(len(CONTENT), f"sha256:{SHA256}")
HALF = len(CONTENT) // 2


class Server(ThreadingHTTPServer):
    """Serves CONTENT and notes the ranges asked for; it may ignore these, or break off."""

    def __init__(self, resumes=True, breaks_off=False, content=CONTENT, length=None):
        super().__init__(("127.0.0.1", 0), Handler)
        self.resumes, self.breaks_off, self.content, self.length = resumes, breaks_off, content, length
        self.ranges = []
        self.url = f"http://127.0.0.1:{self.server_port}/file.gz"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        asked = self.headers["Range"]
        self.server.ranges.append(asked)
        start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked and self.server.resumes else 0
        if start >= len(self.server.content):
            return self.send_error(416)
        body = self.server.content[start:]
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", self.server.length or str(len(body)))
        self.end_headers()
        self.wfile.write(body[: HALF // 2] if self.server.breaks_off else body)

    def log_message(self, *_):
        pass


@contextmanager
def serving(**behaviour):
    with Server(**behaviour) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def plain_http(monkeypatch):
    monkeypatch.setattr(_download, "https_opener", lambda: build_opener(ProxyHandler({})))


@pytest.fixture
def target(tmp_path):
    return tmp_path / "new folder" / "file.gz"


@pytest.fixture
def part(target):
    target.parent.mkdir()
    return target.with_name("file.gz.part")


@pytest.mark.usefixtures("plain_http")
def test_a_download_is_the_whole_file_and_leaves_no_part(target):
    with serving() as server:
        download([server.url], target, KNOWN)
    assert target.read_bytes() == CONTENT
    assert not list(target.parent.glob("*.part"))
    assert server.ranges == [None]


@pytest.mark.usefixtures("plain_http")
def test_a_part_is_resumed(target, part):
    part.write_bytes(CONTENT[:HALF])
    with serving() as server:
        download([server.url], target, KNOWN)
    assert target.read_bytes() == CONTENT
    assert server.ranges == [f"bytes={HALF}-"]


@pytest.mark.usefixtures("plain_http")
def test_a_server_that_cannot_resume_sends_all(target, part):
    part.write_bytes(b"something else")
    with serving(resumes=False) as server:
        download([server.url], target, KNOWN)
    assert target.read_bytes() == CONTENT


@pytest.mark.usefixtures("plain_http")
def test_a_part_that_is_complete_is_taken(target, part):
    part.write_bytes(CONTENT)
    with serving() as server:
        download([server.url], target, KNOWN)
    assert target.read_bytes() == CONTENT


@pytest.mark.usefixtures("plain_http")
def test_a_broken_connection_leaves_a_part_to_resume(target):
    with serving(breaks_off=True) as server, pytest.raises(DataError, match=f"broke off after {HALF // 2} of"):
        download([server.url], target, KNOWN)
    assert not target.exists()
    with serving() as server:
        download([server.url], target, KNOWN)
    assert target.read_bytes() == CONTENT
    assert server.ranges == [f"bytes={HALF // 2}-"]


@pytest.mark.usefixtures("plain_http")
def test_the_second_mirror_goes_on_where_the_first_broke_off(target):
    with serving(breaks_off=True) as first, serving() as second:
        download([first.url, second.url], target, KNOWN)
    assert target.read_bytes() == CONTENT
    assert second.ranges == [f"bytes={HALF // 2}-"]


@pytest.mark.usefixtures("plain_http")
def test_a_wrong_digest_leaves_nothing_of_the_file(target):
    forged = bytes(len(CONTENT))
    message = f"the file must have the sha256 {SHA256}, got {hashlib.sha256(forged).hexdigest()}; .* is removed"
    with serving(content=forged) as server, pytest.raises(DataError, match=message):
        download([server.url], target, KNOWN)
    assert [path.suffix for path in target.parent.iterdir()] == [".lock"]


@pytest.mark.usefixtures("plain_http")
def test_a_file_that_is_too_short_is_removed(target):
    message = f"the file must have {len(CONTENT)} bytes, got 6; .* is removed"
    with serving(content=b"forged") as server, pytest.raises(DataError, match=message):
        download([server.url], target, KNOWN)
    assert not target.exists()


@pytest.mark.usefixtures("plain_http")
def test_a_server_that_sends_too_much_is_not_heard_out(target, monkeypatch):
    kept = []
    monkeypatch.setattr(Path, "unlink", lambda path: kept.append(path.stat().st_size))
    message = f"the file must have {len(CONTENT)} bytes, got more"
    with serving(content=CONTENT * 4) as server, pytest.raises(DataError, match=message):
        download([server.url], target, KNOWN)
    assert kept[0] <= len(CONTENT) + _download._CHUNK


@pytest.mark.usefixtures("plain_http")
def test_a_length_that_is_no_number_is_a_failed_download(target):
    with serving(length="long") as server, pytest.raises(DataError, match="invalid literal"):
        download([server.url], target, KNOWN)


@pytest.mark.usefixtures("plain_http")
def test_after_a_wrong_digest_the_next_mirror_is_asked_for_all(target):
    with serving(content=b"forged") as first, serving() as second:
        download([first.url, second.url], target, KNOWN)
    assert target.read_bytes() == CONTENT
    assert second.ranges == [None]


@pytest.mark.usefixtures("plain_http")
def test_progress_is_shown_on_request(target, capsys):
    with serving() as server:
        download([server.url], target, KNOWN, shown=True)
    assert "1024/1024" in capsys.readouterr().err


def test_plain_http_is_refused(target):
    with serving() as server, pytest.raises(DataError, match="unknown url type: http"):
        download([server.url], target, KNOWN)
    assert server.ranges == []


def test_a_redirect_to_plain_http_is_refused():
    asked, headers = Request("https://localhost/"), Message()
    asked.timeout = 1
    with serving() as server:
        headers["Location"] = server.url
        with pytest.raises(URLError, match="unknown url type: http"):
            https_opener().error("https", asked, BytesIO(), 302, "Found", headers)
    assert server.ranges == []
