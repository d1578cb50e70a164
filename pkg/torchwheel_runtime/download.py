"""Opens an address of the web, with a deadline that no server can put off.

A server may send a byte a second: of the status line, of a header, of the body. The timeout of a
socket begins anew with each of them, and http.client reads whole lines. So the deadline is held at
each read of the socket, below http.client.
"""

import errno
import functools
import http.client
import io
import socket
import ssl
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, cast

SILENCE = 30.0
"""Seconds that a server may be silent."""
SECONDS = 120.0
"""Seconds of an answer, from the look-up of the name on, with redirects and headers …"""
BYTES_A_SECOND = 64 << 10
"""… and one second more for each so many bytes that were received."""
_BLOCK = 1 << 20


def trusting(bundle: Path | None) -> ssl.SSLContext:
    """A context that trusts a file of certificates; the system's if there is none."""
    return ssl.create_default_context(cafile=bundle)


def open_url(
    request: urllib.request.Request,
    context: ssl.SSLContext,
    redirects: urllib.request.HTTPRedirectHandler | None = None,
) -> http.client.HTTPResponse:
    """Open an address of http, https or file; close the answer.

    Args:
        request: the address and what is asked of it.
        context: says which certificates are trusted.
        redirects: decides where a server may lead; by default to http and https.

    Raises:
        OSError: there is no answer, or none in time; the same holds for what reads the answer.
        http.client.HTTPException: it is no HTTP.
    """
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.UnknownHandler(),
        urllib.request.FileHandler(),
        _Connections(_Deadline(SECONDS), context),
        redirects or Redirects(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
    ):
        opener.add_handler(handler)
    return cast("http.client.HTTPResponse", opener.open(request, timeout=SILENCE))


def blocks_of(answer: IO[bytes] | http.client.HTTPResponse, most: int) -> Iterator[bytes]:
    """The bytes of an answer, block by block, and one byte more than `most` if it has more."""
    while most >= 0 and (block := answer.read(min(_BLOCK, most + 1))):
        most -= len(block)
        yield block
    # A read of so many bytes takes a line that was cut for the end.
    if most >= 0 and (missing := getattr(answer, "length", None)):
        raise http.client.IncompleteRead(b"", missing)


class Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects without their bodies, which the base reads whole: one may never end."""

    def redirect_request(self, req: Any, fp: Any, *rest: Any) -> urllib.request.Request | None:  # noqa: ANN401 - the base's
        """Let the base find no body, then do as it does."""
        fp.read = bytes
        return super().redirect_request(req, fp, *rest)


class _Deadline:
    """The end of a download, which comes later with what is received."""

    def __init__(self, seconds: float) -> None:
        self._begun = time.monotonic()
        self._seconds = seconds

    def left(self) -> float:
        """The seconds that the next operation of a socket may take."""
        left = self._begun + self._seconds - time.monotonic()
        if left <= 0:
            spent = f"{time.monotonic() - self._begun:.0f} s"
            raise TimeoutError(errno.ETIMEDOUT, f"too little in {spent}")
        return min(left, SILENCE)

    def received(self, count: int) -> None:
        """Move the end for so many bytes."""
        self._seconds += count / BYTES_A_SECOND

    def connect(self, address: tuple[str, int], *_: object) -> socket.socket:
        """As socket.create_connection, which gives each address of a name the whole time."""
        error: OSError | None = None
        for found in socket.getaddrinfo(*address, type=socket.SOCK_STREAM):
            host, port = found[4][:2]
            try:
                connected = socket.create_connection((str(host), int(port)), self.left())
                connected.settimeout(self.left())  # of TLS, and of what is sent
            except OSError as failed:
                error = failed
            else:
                return connected
        raise error or OSError(f"{address[0]}: no address")


class _Connections(urllib.request.HTTPSHandler, urllib.request.HTTPHandler):
    """Connects, and makes each answer one that holds the deadline."""

    def __init__(self, deadline: _Deadline, context: ssl.SSLContext) -> None:
        super().__init__()
        self._deadline = deadline
        self._trusting = context

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        """Open an address of http."""
        return self.do_open(self._held(http.client.HTTPConnection), req)

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        """Open an address of https."""
        held = self._held(http.client.HTTPSConnection)
        return self.do_open(held, req, context=self._trusting)

    def _held(
        self, kind: Callable[..., http.client.HTTPConnection]
    ) -> Callable[..., http.client.HTTPConnection]:
        def make(host: str, **options: object) -> http.client.HTTPConnection:
            connection: Any = kind(host, **options)
            connection.response_class = functools.partial(_Response, self._deadline)
            connection._create_connection = self._deadline.connect
            return cast("http.client.HTTPConnection", connection)

        return make


class _Response(http.client.HTTPResponse):
    """An answer, of a server or of a proxy, that is read before the deadline or not at all."""

    def __init__(self, deadline: _Deadline, sock: socket.socket, *rest: Any, **named: Any) -> None:  # noqa: ANN401 - the base's
        super().__init__(sock, *rest, **named)
        self.fp = io.BufferedReader(_Held(deadline, sock, cast("Any", self.fp).detach()))


class _Held(io.RawIOBase):
    """What a socket receives before the deadline."""

    def __init__(self, deadline: _Deadline, sock: socket.socket, source: io.RawIOBase) -> None:
        super().__init__()
        self._deadline = deadline
        self._socket = sock
        self._source = source

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: Any) -> int | None:  # noqa: ANN401 - the base's
        """Wait for a part, no longer than what is left."""
        self._socket.settimeout(self._deadline.left())
        count = cast("int | None", self._source.readinto(buffer))
        self._deadline.received(count or 0)
        return count

    def close(self) -> None:
        """Close the socket, unless others read it."""
        self._source.close()
        super().close()
