"""Serves an index on loopback for tests and laptops, with PEP 691's content negotiation."""

import contextlib
import functools
import http.server
import io
import threading
from collections.abc import Callable, Iterator
from http import HTTPStatus
from pathlib import Path
from typing import BinaryIO
from urllib.parse import urlsplit

from torchwheel_runtime.errors import UsageError

LOOPBACK = "127.0.0.1"
JSON = "application/vnd.pypi.simple.v1+json"
HTML = "application/vnd.pypi.simple.v1+html"
PLAIN = "text/html"
_OFFERED = {JSON: "index.json", HTML: "index.html", PLAIN: "index.html"}
_LATEST = {
    "application/vnd.pypi.simple.latest+json": JSON,
    "application/vnd.pypi.simple.latest+html": HTML,
}

Say = Callable[[str], None]


def negotiate(accept: str) -> str:
    """The content type that answers an Accept header; HTML for people by default."""
    best, weight = PLAIN, 0.0
    for part in accept.split(","):
        name, *parameters = (piece.strip().lower() for piece in part.split(";"))
        name = _LATEST.get(name, name)
        quality = _quality(parameters)
        if name in _OFFERED and quality > weight:
            best, weight = name, quality
    return best


def _quality(parameters: list[str]) -> float:
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                return float(value)
            except ValueError:
                return 0.0
    return 1.0


class _Handler(http.server.SimpleHTTPRequestHandler):
    """Answers a folder's address with its page or its document, as the client asks."""

    def __init__(self, *args: object, say: Say, directory: str) -> None:
        self._say = say
        super().__init__(*args, directory=directory)  # type: ignore[arg-type]

    def send_head(self) -> io.BytesIO | BinaryIO | None:
        """Negotiate the answer for a folder; any other address is a plain file."""
        address = urlsplit(self.path).path
        if not address.endswith("/"):
            return super().send_head()
        kind = negotiate(self.headers.get("Accept", ""))
        for answer in (kind, PLAIN):  # the root has a page for people only, no document
            file = Path(self.translate_path(address)) / _OFFERED[answer]
            if file.is_file():
                body = file.read_bytes()
                self.send_response(HTTPStatus.OK)
                self.send_header("Content-Type", answer)
                self.send_header("Content-Length", str(len(body)))
                self.send_header("Vary", "Accept")
                self.end_headers()
                return io.BytesIO(body)
        self.send_error(HTTPStatus.NOT_FOUND)
        return None

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        """Pass one line per request to the caller."""
        self._say(format % args)


def _server(folder: Path, port: int, say: Say) -> http.server.ThreadingHTTPServer:
    if not (folder / "index.html").is_file():
        raise UsageError(f"{folder} is not an index: no index.html in it")
    handler = functools.partial(_Handler, say=say, directory=str(folder))
    try:
        return http.server.ThreadingHTTPServer((LOOPBACK, port), handler)
    except OSError as error:
        raise UsageError(f"cannot listen on {LOOPBACK} port {port}: {error.strerror}") from error


@contextlib.contextmanager
def serve_in_background(folder: Path, say: Say = lambda _: None) -> Iterator[str]:
    """Serve while the block runs, and yield the address, e.g. http://127.0.0.1:41234."""
    with _server(folder, 0, say) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://{LOOPBACK}:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def serve(folder: Path, port: int) -> None:
    """Serve until interrupted."""
    with _server(folder, port, print) as server:
        print(f"serving {folder} at http://{LOOPBACK}:{server.server_address[1]}/ until Ctrl-C")
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()
