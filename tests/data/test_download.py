"""Downloads, from a server on this machine."""

import hashlib
from contextlib import contextmanager
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from threading import Thread
from urllib.error import URLError
from urllib.request import ProxyHandler, Request, build_opener

import pytest

from principalflow.data import DataError, _download
from principalflow.data._download import download, https_opener

CONTENT = bytes(range(256)) * 4096
MD5 = hashlib.md5(CONTENT).hexdigest()
HALF = len(CONTENT) // 2


class Server(ThreadingHTTPServer):
    """Serves CONTENT and notes the ranges asked for; it may ignore these, or break off."""

    def __init__(self, resumes=True, breaks_off=False, content=CONTENT):
        super().__init__(("127.0.0.1", 0), Handler)
        self.resumes, self.breaks_off, self.content = resumes, breaks_off, content
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
        self.send_header("Content-Length", str(len(body)))
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
        download([server.url], target, MD5)
    assert target.read_bytes() == CONTENT
    assert not list(target.parent.glob("*.part"))
    assert server.ranges == [None]


@pytest.mark.usefixtures("plain_http")
def test_a_part_is_resumed(target, part):
    part.write_bytes(CONTENT[:HALF])
    with serving() as server:
        download([server.url], target, MD5)
    assert target.read_bytes() == CONTENT
    assert server.ranges == [f"bytes={HALF}-"]


@pytest.mark.usefixtures("plain_http")
def test_a_server_that_cannot_resume_sends_all(target, part):
    part.write_bytes(b"something else")
    with serving(resumes=False) as server:
        download([server.url], target, MD5)
    assert target.read_bytes() == CONTENT


@pytest.mark.usefixtures("plain_http")
def test_a_part_that_is_complete_is_taken(target, part):
    part.write_bytes(CONTENT)
    with serving() as server:
        download([server.url], target, MD5)
    assert target.read_bytes() == CONTENT


@pytest.mark.usefixtures("plain_http")
def test_a_broken_connection_leaves_a_part_to_resume(target):
    with serving(breaks_off=True) as server, pytest.raises(DataError, match=f"broke off after {HALF // 2} of"):
        download([server.url], target, MD5)
    assert not target.exists()
    with serving() as server:
        download([server.url], target, MD5)
    assert target.read_bytes() == CONTENT
    assert server.ranges == [f"bytes={HALF // 2}-"]


@pytest.mark.usefixtures("plain_http")
def test_the_second_mirror_goes_on_where_the_first_broke_off(target):
    with serving(breaks_off=True) as first, serving() as second:
        download([first.url, second.url], target, MD5)
    assert target.read_bytes() == CONTENT
    assert second.ranges == [f"bytes={HALF // 2}-"]


@pytest.mark.usefixtures("plain_http")
def test_a_wrong_digest_leaves_nothing_of_the_file(target):
    found = hashlib.md5(b"forged").hexdigest()
    with serving(content=b"forged") as server, pytest.raises(DataError, match=f"md5 {found} instead of {MD5}"):
        download([server.url], target, MD5)
    assert [path.suffix for path in target.parent.iterdir()] == [".lock"]


@pytest.mark.usefixtures("plain_http")
def test_after_a_wrong_digest_the_next_mirror_is_asked_for_all(target):
    with serving(content=b"forged") as first, serving() as second:
        download([first.url, second.url], target, MD5)
    assert target.read_bytes() == CONTENT
    assert second.ranges == [None]


@pytest.mark.usefixtures("plain_http")
def test_progress_is_shown_on_request(target, capsys):
    with serving() as server:
        download([server.url], target, MD5, shown=True)
    assert "1024/1024" in capsys.readouterr().err


def test_plain_http_is_refused(target):
    with serving() as server, pytest.raises(DataError, match="unknown url type: http"):
        download([server.url], target, MD5)
    assert server.ranges == []


def test_a_redirect_to_plain_http_is_refused():
    asked, headers = Request("https://localhost/"), Message()
    asked.timeout = 1
    with serving() as server:
        headers["Location"] = server.url
        with pytest.raises(URLError, match="unknown url type: http"):
            https_opener().error("https", asked, BytesIO(), 302, "Found", headers)
    assert server.ranges == []
