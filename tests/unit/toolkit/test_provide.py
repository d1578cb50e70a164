"""Toolkits that are provided: their place, and what comes from other machines."""

import contextlib
import io
import zipfile
from pathlib import Path

import pytest

from loopback import Handler, serving
from torchwheel_runtime.errors import TorchwheelError
from torchwheel_runtime.machine.discovery import find_host
from torchwheel_runtime.toolkit.cache import cache_folder, cache_path
from torchwheel_runtime.toolkit.host import NoCompilerError, host_compiler
from torchwheel_runtime.toolkit.index import NoRangesError, RemoteArchive

# Where the cache is: as platformdirs says, without its cost.


@pytest.mark.parametrize("users", [None, "", " ", "/elsewhere", "relative", "~/not-a-home"])
def test_it_is_in_the_users_cache_folder(users, monkeypatch):
    platformdirs = pytest.importorskip("platformdirs", reason="platformdirs is not installed")
    monkeypatch.delenv("TORCHWHEEL_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    if users is not None:
        monkeypatch.setenv("XDG_CACHE_HOME", users)
    assert cache_path() == platformdirs.user_cache_path("torchwheel").resolve()


def test_the_user_can_name_another_and_only_the_user_may_read_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TORCHWHEEL_CACHE", "mine/cache")
    assert cache_path() == tmp_path / "mine" / "cache"
    assert not (tmp_path / "mine").exists()
    assert cache_folder() == Path(tmp_path, "mine", "cache")
    assert cache_folder().stat().st_mode & 0o777 == 0o700


def test_a_ring_of_links_is_told_in_one_line(tmp_path, monkeypatch):
    (tmp_path / "ring").symlink_to("ring")
    monkeypatch.setenv("TORCHWHEEL_CACHE", str(tmp_path / "ring" / "cache"))
    with pytest.raises(TorchwheelError, match="Too many levels of symbolic links; set TORCH"):
        cache_folder()


# The C++ compiler that is found, and what is said where there is none.


@pytest.mark.parametrize(
    ("environ", "found"),
    [
        ({"PATH": "/nothing"}, "no C++ compiler (g++, c++ or clang++) on the PATH"),
        ({"PATH": "/nothing", "CXX": "gxx"}, "CXX=gxx: not found"),
        ({"PATH": "/bin:/usr/bin", "CXX": "true"}, "neither gcc nor clang"),
    ],
)
def test_the_advice_is_in_the_error_and_not_in_the_reason(environ, found):
    with pytest.raises(NoCompilerError, match=r"; (install|name|set)") as error:
        host_compiler(environ)
    assert found in error.value.reason
    # A finding has advice of its own.
    assert find_host(environ).reason == error.value.reason


# A real server on loopback that answers ranges, ignores them, or cuts the line.


def archive() -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as made:
        # Larger than the tail that is always fetched, and incompressible.
        made.writestr("first.h", b"first")
        made.writestr("noise.bin", bytes(range(256)) * (24 << 12), zipfile.ZIP_STORED)
        made.writestr("last.h", b"last")
    return data.getvalue()


class Server(Handler):
    data = archive()
    mode = "ranges"
    sent: list[int] = []

    def respond(self):
        if self.mode == "away":
            self.answer(302, b"", location="ftp://127.0.0.1:9/a.zip", content_length=0)
            return
        span = self.headers["Range"].removeprefix("bytes=")
        first, _, last = span.partition("-")
        size = len(self.data)
        begin = int(first) if first else max(0, size - int(last))
        end = min(int(last), size - 1) if first else size - 1
        whole = self.mode == "whole"
        body = self.data if whole else self.data[begin : end + 1]
        sent = body[: len(body) // 2] if self.mode == "cut" else body
        self.sent.append(len(sent))
        span = {} if whole else {"content_range": f"bytes {begin}-{end}/{size}"}
        self.answer(200 if whole else 206, sent, content_length=len(body), **span)


@pytest.fixture
def serve():
    def start(mode: str, data: bytes = Server.data):
        handler = type("Handler", (Server,), {"mode": mode, "data": data, "sent": []})
        return f"{servers.enter_context(serving(handler))}/a.zip", handler

    with contextlib.ExitStack() as servers:
        yield start


def test_only_the_tail_and_what_is_read_travels(serve):
    url, handler = serve("ranges")
    remote = RemoteArchive(url)
    assert remote.members(lambda name: name.endswith(".h")) == ["first.h", "last.h"]
    assert (remote.read("first.h"), remote.read("last.h")) == (b"first", b"last")
    assert sum(handler.sent) < len(handler.data) * 3 / 4


def test_a_missing_member_is_named(serve):
    url, _ = serve("ranges")
    with pytest.raises(TorchwheelError, match=r"a\.zip: other\.h is missing"):
        RemoteArchive(url).read("other.h")


@pytest.mark.parametrize(
    ("mode", "says"), [("whole", "ignores"), ("cut", "IncompleteRead"), ("away", "expected https")]
)
def test_a_server_without_ranges_a_cut_line_and_a_bad_redirect_ask_for_the_fallback(
    serve, mode, says
):
    url, _ = serve(mode)
    with pytest.raises(NoRangesError, match=says):
        RemoteArchive(url)


def test_what_is_no_zip_is_named(serve):
    url, _ = serve("ranges", b"not a zip" * 1000)
    with pytest.raises(TorchwheelError, match=r"a\.zip: not a zip file"):
        RemoteArchive(url)
