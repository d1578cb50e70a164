"""Servers that never come to an end: whatever drips, each download ends within its deadline."""

import contextlib
import socketserver
import threading
import time

import pytest

from torchwheel.image.debian import require_snapshot
from torchwheel_runtime import fetch
from torchwheel_runtime.errors import TorchwheelError
from torchwheel_runtime.fetch import Fetcher
from torchwheel_runtime.toolkit.index import RemoteArchive

SECONDS = 0.1
"""Of each download here."""
PAUSE = 0.02
OK = b"HTTP/1.1 200 OK\r\n"
RANGES = b"HTTP/1.1 206 Partial\r\nContent-Range: bytes 0-9/10\r\n"
CHUNKS = OK + b"Transfer-Encoding: chunked\r\n\r\n"

# What each server sends: at once, then again and again with a pause.
SERVERS = {
    "says nothing": (b"", b""),
    "status line": (b"HTTP/1.1 200 ", b"x"),
    "a header": (OK + b"X-Long: ", b"x"),
    "headers": (OK, b"X-More: x\r\n"),
    "answers that another follows": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "body": (RANGES + b"Content-Length: 1000000\r\n\r\n", b"x"),
    "body without a length": (b"HTTP/1.0 200 OK\r\n\r\n", b"x"),
    "chunks": (CHUNKS, b"1\r\nx\r\n"),
    "size of a chunk": (CHUNKS + b"1;", b"x"),
    "trailers of chunks": (CHUNKS + b"1\r\nx\r\n0\r\n", b"x: x\r\n"),
    "body of a redirect": (b"HTTP/1.1 302 To\r\nLocation: /\r\n\r\n", b"x"),
    "body of a refusal": (b"HTTP/1.1 404 No\r\nContent-Length: 1000000\r\n\r\n", b"x"),
}
READERS = {
    "page": lambda address, _: Fetcher().page(f"{address}/x/", "*/*"),
    "wheel": lambda address, folder: Fetcher().file(f"{address}/x", folder / "x", "0" * 64, None),
    "sdist": lambda address, folder: Fetcher().download(f"{address}/x", folder / "x", 1 << 20),
    "members of torch": lambda address, _: RemoteArchive(f"{address}/x.zip"),
    "snapshot": lambda address, _: require_snapshot(address, "20260101T000000Z", "bookworm"),
}


class _Slow(socketserver.BaseRequestHandler):
    """The first part of the path names the server; one who speaks TLS gets a record of 16 KiB."""

    def handle(self):
        asked = self.request.recv(1 << 16)
        first, again = b"\x16\x03\x03\x40\x00", b"\x02"
        if asked.startswith(b"GET") or asked.startswith(b"HEAD"):
            first, again = list(SERVERS.values())[int(asked.split(b"/")[1])]
        with contextlib.suppress(OSError):
            self.request.sendall(first)
            while not self.server.stopped.wait(PAUSE):
                self.request.sendall(again)


@pytest.fixture(scope="module")
def slow():
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Slow) as server:
        server.daemon_threads, server.stopped = True, threading.Event()
        threading.Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.stopped.set()
        server.shutdown()


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("server", SERVERS)
def test_it_ends_in_time(slow, tmp_path, monkeypatch, server, reader):
    monkeypatch.setattr(fetch, "SECONDS", SECONDS)
    begun, error = time.monotonic(), None
    try:
        READERS[reader](f"{slow}/{list(SERVERS).index(server)}", tmp_path)
    except TorchwheelError as caught:
        error = caught
    assert time.monotonic() - begun < SECONDS + 1
    # Without one it does not read the body.
    assert str(error).isprintable() if error else "body" in server or "chunk" in server


def test_a_handshake_ends_in_time(slow, monkeypatch):
    monkeypatch.setattr(fetch, "SECONDS", SECONDS)
    begun = time.monotonic()
    with pytest.raises(TorchwheelError, match="timed out"):
        Fetcher().page(slow.replace("http", "https"), "*/*")
    assert time.monotonic() - begun < SECONDS + 1


def test_a_slow_line_is_no_slow_server(slow, monkeypatch):
    monkeypatch.setattr(fetch, "SECONDS", PAUSE)
    monkeypatch.setattr(fetch, "BYTES_A_SECOND", 10)
    monkeypatch.setitem(SERVERS, "body", (OK + b"Content-Length: 30\r\n\r\n", b"x"))
    address = f"{slow}/{list(SERVERS).index('body')}/"
    assert Fetcher().page(address, "*/*").body == b"x" * 30
