"""The package index on loopback: a real pypiserver, and before it PyPI's check and the faults."""

import contextlib
import hashlib
import http.client
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler
from pathlib import Path

from loopback import serving
from rehearsal.forge import Forge

REFUSED = "The digest supplied does not match a digest calculated from the uploaded file."
"""What PyPI answers, in the line of status 400."""
_FILE = re.compile(rb'filename="([^"]+)"\r\n(?:[^\r\n]+\r\n)*\r\n')
_DIGEST = re.compile(rb'name="sha256_digest"\r\n(?:[^\r\n]+\r\n)*\r\n([0-9a-f]{64})\r\n')
_HOP = {"connection", "transfer-encoding", "content-length", "server", "date"}


class _Front(BaseHTTPRequestHandler):
    """Passes requests on. An upload of NAME meets the faults of the request "POST /pypi/NAME"."""

    forge: Forge
    behind: int
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer(*self._pass_on(b""))

    def do_POST(self) -> None:
        left = int(self.headers["Content-Length"])
        body = b""
        while (found := _FILE.search(body)) is None:
            part = self.rfile.read(min(left, 4096))
            if not part:
                return self._answer(400, {}, b"Missing 'content' file-field!")
            body += part
            left -= len(part)
        request = f"POST /pypi/{found[1].decode()}"
        fault = self.forge.take_fault(request, ("500", "cut", "lost", "flip"))
        body += self.rfile.read(left // 2 if fault == "cut" else left)
        if fault == "cut":
            return self._break()
        if fault == "500":
            return self._answer(500, {}, b"Server Error")
        content = slice(found.end(), body.rindex(b"\r\n--"))
        if fault == "flip":
            body = (
                body[: content.start] + bytes([body[content.start] ^ 1]) + body[found.end() + 1 :]
            )
        digest = _DIGEST.search(body)
        if digest is None or hashlib.sha256(body[content]).hexdigest() != digest[1].decode():
            return self._answer(400, {}, b"", REFUSED)
        answer = self._pass_on(body)
        # A runner that is lost at this request has sent all of it.
        self.forge.seen(request)
        return self._break() if fault == "lost" else self._answer(*answer)

    def _pass_on(self, body: bytes) -> tuple[int, Mapping[str, str], bytes]:
        server = http.client.HTTPConnection("127.0.0.1", self.behind, timeout=60)
        server.request(self.command, self.path, body or None, dict(self.headers))
        answer = server.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()

    def _answer(
        self, status: int, headers: Mapping[str, str], body: bytes, reason: str | None = None
    ) -> None:
        self.send_response(status, reason)
        for name, value in headers.items():
            if name.lower() not in _HOP:
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _break(self) -> None:
        self.close_connection = True
        self.connection.close()

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@contextlib.contextmanager
def index_server(packages: Path, forge: Forge) -> Iterator[str]:
    """An index that takes uploads, and no file of a name that it has; yields its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "pypiserver", "run", "--port", str(port)]
    command += ["--interface", "127.0.0.1", "--disable-fallback", "-P", ".", "-a", "."]
    command += ["--hash-algo", "sha256", str(packages)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    handler = type("Handler", (_Front,), {"forge": forge, "behind": port})
    try:
        for _ in range(200):
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", port), timeout=5).close()
                break
            time.sleep(0.1)
        with serving(handler) as address:
            yield address
    finally:
        process.terminate()
        process.wait()
