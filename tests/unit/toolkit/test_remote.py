"""A real server on loopback that answers ranges, ignores them, or cuts the line."""

import contextlib
import http.server
import io
import zipfile

import pytest

from loopback import serving
from torchwheel.errors import TorchwheelError
from torchwheel.toolkit.remote import NoRangesError, RemoteArchive


def archive() -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as made:
        # Larger than the tail that is always fetched, and incompressible.
        made.writestr("first.h", b"first")
        made.writestr("noise.bin", bytes(range(256)) * (24 << 12), zipfile.ZIP_STORED)
        made.writestr("last.h", b"last")
    return data.getvalue()


class Server(http.server.BaseHTTPRequestHandler):
    data = archive()
    mode = "ranges"
    sent: list[int] = []

    def do_GET(self):
        span = self.headers["Range"].removeprefix("bytes=")
        first, _, last = span.partition("-")
        size = len(self.data)
        begin = int(first) if first else max(0, size - int(last))
        end = min(int(last), size - 1) if first else size - 1
        body = self.data[begin : end + 1]
        if self.mode == "away":
            self.send_response(302)
            self.send_header("Location", "ftp://127.0.0.1:9/a.zip")
        elif self.mode == "whole":
            self.send_response(200)
            body = self.data
        else:
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {begin}-{end}/{size}")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        body = body[: len(body) // 2] if self.mode == "cut" else body
        self.sent.append(len(body))
        # A client that has seen enough hangs up.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.wfile.write(body)

    def log_message(self, *_):
        pass


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
