"""Fetches pages and files of an index: bounded, from https, http on loopback, or file://.

Each answer has a deadline that no server can put off. A server may send a byte a second: of the
status line, of a header, of the body. The timeout of a socket begins anew with each of them, and
http.client reads whole lines. So the deadline is held at each read of the socket, below
http.client.
"""

import contextlib
import dataclasses
import errno
import functools
import hashlib
import http.client
import io
import ipaddress
import os
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, Protocol, cast
from urllib.parse import quote as quote_url
from urllib.parse import unquote, urljoin, urlsplit

from torchwheel_runtime import __version__
from torchwheel_runtime.errors import TorchwheelError, UsageError
from torchwheel_runtime.files import explain_full_disk
from torchwheel_runtime.json_files import MAX_BYTES
from torchwheel_runtime.os_errors import explain
from torchwheel_runtime.ownership import NotRegularError, open_regular
from torchwheel_runtime.text import hide_secrets, quote, shorten_line, size_text

MOST_OF_FILE = 8 << 30
"""Bytes of a wheel; the greatest of torch itself have 3 GB."""
SILENCE = 30.0
"""Seconds that a server may be silent."""
SECONDS = 120.0
"""Seconds of an answer, from the look-up of the name on, with redirects and headers …"""
BYTES_A_SECOND = 64 << 10
"""… and one second more for each so many bytes that were received."""
_BLOCK = 1 << 20
_REDIRECTS = 5
_AGENT = f"torchwheel/{__version__}"


@dataclasses.dataclass(frozen=True)
class Answer:
    """A page: where it came from after redirects, its content type, its bytes."""

    url: str
    kind: str
    body: bytes


def ca_bundle(environ: Mapping[str, str] = os.environ) -> Path | None:
    """The file of certificates that pip's variables name, if any."""
    for name in ("PIP_CERT", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"):
        if environ.get(name):
            return Path(environ[name])
    return None


class Fetch(Protocol):
    """Where the pages and files of an index come from."""

    def page(self, url: str, accept: str) -> Answer | None:
        """A page; None if there is none."""

    def file(self, url: str, target: Path, sha256: str, size: int | None) -> None:
        """Write a file to `target`; it has this hash and size, or nothing is written."""


def check_address(url: str, via: str | None = None) -> None:
    """Raise unless an address may be read, and may be reached from `via`.

    A page of a server must not lead to a file of this machine or to a service on loopback.
    """
    scheme = _scheme(url)
    if scheme is None:
        folder = url.startswith("/") and Path(url).is_dir()
        fix = (
            f"did you mean file://{_place(url)}?"
            if folder
            else "name such an address, without a user"
        )
        raise UsageError(
            f"{_place(url)}: expected https://, file:// or, on loopback, http://; {fix}"
        )
    if via is None:
        return
    came = _scheme(via)
    allowed = {"https": {"https"}, "http": {"https", "http"}, "file": {"https", "http", "file"}}
    if scheme not in allowed[came or "https"]:
        raise TorchwheelError(
            f"{_place(via)}: expected links to {' or '.join(sorted(allowed[came or 'https']))}, "
            f"found {_place(url)}; report it to the authors of the index"
        )


def _scheme(url: str) -> str | None:
    """The scheme of an address that may be read; None of another."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return None
    if not url.isprintable() or parts.username is not None or parts.password is not None:
        return None
    if parts.scheme == "https":
        return "https" if host else None
    if parts.scheme == "http":
        return "http" if _is_loopback(host) else None
    is_file = parts.scheme == "file" and host in ("", "localhost") and port is None
    return "file" if is_file else None


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _place(url: str) -> str:
    # Without a scheme nothing says where a user begins.
    text = url if ":/" in url or "@" not in url else f"****@{url.rpartition('@')[2]}"
    return quote(shorten_line(hide_secrets(text)))[1:-1]


def open_url(
    request: urllib.request.Request,
    context: ssl.SSLContext,
    check: Callable[[str, str], None] | None = None,
) -> http.client.HTTPResponse:
    """Open an address of http, https or file; close the answer.

    Args:
        request: the address and what is asked of it.
        context: says which certificates are trusted.
        check: raises unless an address may be reached from another one; by default a server may
            lead to any address of http and https.

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
        _Redirects(check),
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


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows few redirects, each to an address that `check` lets the page before lead to."""

    max_redirections = _REDIRECTS

    def __init__(self, check: Callable[[str, str], None] | None) -> None:
        self._check = check

    def redirect_request(self, req: Any, fp: Any, *rest: Any) -> urllib.request.Request | None:  # noqa: ANN401 - the base's
        """Check the address, then do as the base does, but for the body, which may never end."""
        if self._check:
            self._check(rest[-1], req.full_url)
        fp.read = bytes
        return super().redirect_request(req, fp, *rest)


class Fetcher:
    """Fetches over the network and from files."""

    @functools.cached_property
    def _context(self) -> ssl.SSLContext:
        """Reads the certificates, which takes longer than all else where the index is a folder."""
        return ssl.create_default_context(cafile=ca_bundle())

    def open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        """Open a request to an address that was checked."""
        return open_url(request, self._context, check_address)

    def page(self, url: str, accept: str) -> Answer | None:
        """A page; None if there is none.

        Raises:
            TorchwheelError: one line: it cannot be had, or is too large.
        """
        check_address(url)
        if _scheme(url) == "file":
            return _page_of_folder(url)
        with _explain_failure(url):
            try:
                with self._open(url, accept) as answer:
                    body = b"".join(_blocks(answer, url, MAX_BYTES))
                    return Answer(answer.geturl(), answer.headers.get_content_type(), body)
            except urllib.error.HTTPError as error:
                # A store such as S3 answers 403 for what is missing, and others 400 or 405.
                if error.code not in (400, 403, 404, 405, 406, 410):
                    raise
                error.close()
                return None

    def file(self, url: str, target: Path, sha256: str, size: int | None) -> None:
        """Write a file to `target`, a new file in a folder of ours.

        Raises:
            TorchwheelError: one line: it cannot be had, or is not the file that the index names.
        """
        most = size if size is not None else MOST_OF_FILE
        found = self.download(url, target, min(most, MOST_OF_FILE))
        if found != sha256:
            target.unlink()
            says = f"expected sha256 {sha256}, as the index says, found {found}"
            raise TorchwheelError(f"{_place(url)}: {says}; nothing was installed")

    def download(self, url: str, target: Path, most: int) -> str:
        """Write a file of at most so many bytes to `target`; returns its sha256, to be compared.

        Raises:
            TorchwheelError: one line: it cannot be had.
        """
        check_address(url)
        digest = hashlib.sha256()
        with (
            _explain_failure(url),
            explain_full_disk(target.parent),
            self._source(url) as source,
            target.open("wb") as file,
        ):
            for block in _blocks(source, url, most):
                digest.update(block)
                file.write(block)
        return digest.hexdigest()

    def _source(self, url: str) -> IO[bytes] | http.client.HTTPResponse:
        if _scheme(url) == "file":
            return os.fdopen(open_regular(_path(url)), "rb")
        return self._open(url, "*/*")

    def _open(self, url: str, accept: str) -> http.client.HTTPResponse:
        headers = {"Accept": accept, "User-Agent": _AGENT}
        return self.open(urllib.request.Request(_quoted(url), headers=headers))  # noqa: S310 - checked


_IN_ADDRESSES = "%/:@!$&'()*,;=~[]"


def _quoted(url: str) -> str:
    """An address as a server gets it: pip quotes the + of a path, too, which is a blank to S3."""
    parts = urlsplit(url)
    path, query = quote_url(parts.path, _IN_ADDRESSES), quote_url(parts.query, f"{_IN_ADDRESSES}?+")
    return parts._replace(path=path, query=query).geturl()


def link(page: str, address: str) -> str:
    """The absolute address of a link on a page; it must be one that may be reached from there.

    A query of the page's address, such as a token, goes with what the same server has.
    """
    try:
        target = urljoin(page, address)
        at, to = urlsplit(page), urlsplit(target)
        if at.query and not to.query and (at.scheme, at.netloc) == (to.scheme, to.netloc):
            target = to._replace(query=at.query).geturl()
    except ValueError:
        target = address
    check_address(target, page)
    return target


def _blocks(source: IO[bytes] | http.client.HTTPResponse, url: str, most: int) -> Iterator[bytes]:
    """The blocks of a source of at most so many bytes."""
    left = most
    for block in blocks_of(source, most):
        left -= len(block)
        if left < 0:
            raise TorchwheelError(f"{_place(url)}: expected at most {size_text(most)}, found more")
        yield block


def _path(url: str) -> Path:
    return Path(unquote(urlsplit(url).path))


def _page_of_folder(url: str) -> Answer | None:
    """The document or the page of a folder, or a file."""
    path = _path(url)
    names = ("index.json", "index.html") if url.endswith("/") else ("",)
    for name in names:
        file = path / name if name else path
        try:
            with os.fdopen(open_regular(file), "rb") as source:
                body = b"".join(_blocks(source, url, MAX_BYTES))
        except (FileNotFoundError, NotADirectoryError, NotRegularError):
            continue
        except OSError as error:
            raise TorchwheelError(explain(error)) from None
        kind = "application/json" if file.suffix == ".json" else "text/html"
        return Answer(url, kind, body)
    return None


@contextlib.contextmanager
def _explain_failure(url: str) -> Iterator[None]:
    """Raise one line for whatever keeps an answer from being read."""
    try:
        yield
    except urllib.error.HTTPError as error:
        with error:
            found = f"status {error.code}"
        if error.code == http.client.UNAUTHORIZED:
            found += ", which asks for a user or a token; only a query of the address is sent"
    except (OSError, http.client.HTTPException, ValueError) as error:
        found = _reason(error)
    else:
        return
    raise TorchwheelError(f"{_place(url)}: expected an answer, found {found}; try again later")


def _reason(error: Exception) -> str:
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(cause, Exception):
        return explain(cause)
    return shorten_line(quote(str(cause))[1:-1])


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
        return self.do_open(self._connections_of(http.client.HTTPConnection), req)

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        """Open an address of https."""
        kind = self._connections_of(http.client.HTTPSConnection)
        return self.do_open(kind, req, context=self._trusting)

    def _connections_of(
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
        self.fp = io.BufferedReader(_TimedReader(deadline, sock, cast("Any", self.fp).detach()))


class _TimedReader(io.RawIOBase):
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
