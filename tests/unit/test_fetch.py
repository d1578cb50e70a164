"""What is fetched from where: addresses, redirects, sizes, hashes."""

import contextlib
import errno
import hashlib
import http.server
import os
import re

import pytest

from loopback import serving
from torchwheel_runtime import fetch
from torchwheel_runtime.errors import DiskFullError, TorchwheelError, UsageError
from torchwheel_runtime.fetch import Fetcher, check_address, link
from torchwheel_runtime.text import hide_secrets


@pytest.mark.parametrize(
    "url",
    [
        *("https://host/x/", "http://127.0.0.1:8000", "http://localhost/x"),
        *("http://[::1]:80/x", "file:///srv/index"),
    ],
)
def test_an_address_that_may_be_read(url):
    check_address(url)


@pytest.mark.parametrize(
    "url",
    [
        *("http://host/x", "http://127.0.0.1.example.com/x", "http://10.0.0.1/x"),
        *("https://user:secret@host/x", "https://user@host/x", "https:///x", "file://host/x"),
        *("ftp://host/x", "git+https://host/x", "/srv/index", "https://host:x/", "https://[/x"),
        *("https://host/\nx", "", "//user:secret@host/x", "user:secret@host/x"),
    ],
)
def test_an_address_that_may_not(url):
    with pytest.raises(UsageError) as caught:
        check_address(url)
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://user:secret@host/x: not read", "https://****@host/x: not read"),
        ("a https://secret@host b redis://:secret@c:1", "a https://****@host b redis://****@c:1"),
        ("https://u:se/c?r#et@host/x", "https://****@host/x"),
        ("https://u:s@secret@host/x", "https://****@host/x"),
        ("git+https:/user:secret@host/x@v1", "git+https:/****@host/x@v1"),
        ("https://host:80/x@v1", "https://host:80/x@v1"),
        (
            "https://host/simple/?private_token=SECRET: not read",
            "https://host/simple/?****: not read",
        ),
        ("https://host/x?a=b,SEC;RET)x, then", "https://host/x?****, then"),
        ("'https://host/x?a=b&c=d', what?", "'https://host/x?****', what?"),
        ("https://user:secret@host/x?a=b#c", "https://****@host/x?****#c"),
        ("https://host/@x, /a:/b@1", "https://host/@x, /a:/b@1"),
        ("https://host:80\nimage@sha256", "https://host:80\nimage@sha256"),
    ],
)
def test_a_user_a_password_and_a_query_are_not_shown(text, shown):
    assert hide_secrets(text) == shown


@pytest.mark.parametrize(
    ("page", "target", "allowed"),
    [
        ("https://a/x/", "https://b/y", True),
        ("https://a/x/", "../y", True),
        ("https://a/x/", "//b/y", True),
        ("https://a/x/", "http://127.0.0.1/y", False),
        ("https://a/x/", "file:///etc/passwd", False),
        ("http://127.0.0.1/x/", "http://127.0.0.1:1/y", True),
        ("http://127.0.0.1/x/", "https://b/y", True),
        ("http://127.0.0.1/x/", "file:///etc/passwd", False),
        ("file:///srv/x/", "../../files/y", True),
        ("file:///srv/x/", "https://b/y", True),
        ("https://a/x/", "https://[", False),
    ],
)
def test_where_a_page_may_lead(page, target, allowed):
    if allowed:
        link(page, target)
    else:
        with pytest.raises(TorchwheelError):
            link(page, target)


@pytest.mark.parametrize(
    ("address", "target"),
    [
        ("demo.whl", "https://a/x/demo.whl?token=t"),
        ("/y/demo.whl", "https://a/y/demo.whl?token=t"),
        ("demo.whl?own=1", "https://a/x/demo.whl?own=1"),
        ("https://b/demo.whl", "https://b/demo.whl"),
    ],
)
def test_a_token_goes_to_its_own_server_alone(address, target):
    assert link("https://a/x/?token=t", address) == target


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        parts = self.path.split("?")
        if parts[0] in ("/to", "/loop"):
            self.send_response(302)
            self.send_header("Location", parts[-1])
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if parts[0] == "/gone":
            self.send_error(404)
            return
        self.send_response(500 if parts[0] == "/broken" else 200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        with contextlib.suppress(OSError):
            for _ in range(16 if parts[0] == "/endless" else 1):
                said = self.path.encode() if parts[0].startswith("/said") else b"hello"
                self.wfile.write(b"x" * (1 << 20) if parts[0] == "/endless" else said)

    def log_message(self, *args):
        pass


@pytest.fixture(scope="module")
def server():
    with serving(Handler) as address:
        yield address


def test_a_page(server):
    answer = Fetcher().page(f"{server}/x", "text/html")
    assert (answer.kind, answer.body) == ("text/html", b"hello")
    assert Fetcher().page(f"{server}/gone", "text/html") is None
    # As pip asks: a + of a path is a blank to S3, and some pages name files as they are.
    said = Fetcher().page(f"{server}/said/a b+é%2B?x=a+b", "text/html")
    assert said.body == b"/said/a%20b%2B%C3%A9%2B?x=a+b"
    redirected = Fetcher().page(f"{server}/to?{server}/x", "text/html")
    assert (redirected.url, redirected.body) == (f"{server}/x", b"hello")


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("/broken", "found status 500"),
        ("/endless", "expected at most 8.0 MiB, found more"),
        ("/to?file:///etc/passwd", "found status 302"),
        ("/to?http://10.0.0.1/x", "expected https://, file:// or, on loopback, http://"),
        ("/loop", "found status 302"),
    ],
)
def test_a_page_that_cannot_be_had_is_one_line(server, path, says):
    with pytest.raises(TorchwheelError) as caught:
        Fetcher().page(f"{server}{path}", "text/html")
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_answer():
    with pytest.raises(TorchwheelError, match="expected an answer, found Connection refused"):
        Fetcher().page("http://127.0.0.1:9/x", "text/html")


def test_a_full_disk_is_no_fault_of_the_index(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(fetch, "_bounded", full)
    (tmp_path / "file").touch()
    says = f"^no space left on the disk of {re.escape(str(tmp_path))} or the temporary folder: free"
    with pytest.raises(DiskFullError, match=says):
        Fetcher().file((tmp_path / "file").as_uri(), tmp_path / "x", "0" * 64, None)


def test_a_file_has_the_hash_and_the_size_that_the_index_names(server, tmp_path):
    good = hashlib.sha256(b"hello").hexdigest()
    Fetcher().file(f"{server}/x", tmp_path / "x", good, 5)
    assert (tmp_path / "x").read_bytes() == b"hello"
    with pytest.raises(TorchwheelError, match=f"expected sha256 {'0' * 64}, as the index says"):
        Fetcher().file(f"{server}/x", tmp_path / "y", "0" * 64, 5)
    assert not (tmp_path / "y").exists()
    with pytest.raises(TorchwheelError, match="found more"):
        Fetcher().file(f"{server}/x", tmp_path / "z", good, 4)
    with pytest.raises(TorchwheelError, match="status 404"):
        Fetcher().file(f"{server}/gone", tmp_path / "a", good, 4)


def test_a_folder(tmp_path):
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo" / "index.html").write_text("page")
    address = f"{tmp_path.as_uri()}/demo/"
    assert Fetcher().page(address, "").body == b"page"
    (tmp_path / "demo" / "index.json").write_text("{}")
    assert Fetcher().page(address, "").kind == "application/json"
    assert Fetcher().page(f"{tmp_path.as_uri()}/other/", "") is None


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "index.json")
    assert Fetcher().page(f"{tmp_path.as_uri()}/index.json", "") is None
    with pytest.raises(TorchwheelError):
        Fetcher().file(f"{tmp_path.as_uri()}/index.json", tmp_path / "x", "0" * 64, None)


def test_a_slow_page_is_given_up(server, monkeypatch):
    monkeypatch.setattr(fetch, "SECONDS", -1.0)
    with pytest.raises(TorchwheelError, match="expected an answer, found too little in 0 s; try"):
        Fetcher().page(f"{server}/x", "text/html")
