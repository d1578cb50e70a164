"""Fetches pages and files of an index: bounded, from https, http on loopback, or file://."""

import dataclasses
import hashlib
import http.client
import ipaddress
import os
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from email.message import Message
from pathlib import Path
from typing import IO, Protocol
from urllib.parse import unquote, urljoin, urlsplit

from torchwheel_runtime import __version__
from torchwheel_runtime.download import Redirects, blocks_of, open_url, trusting
from torchwheel_runtime.errors import TorchwheelError, UsageError
from torchwheel_runtime.files import explain_full_disk
from torchwheel_runtime.json_files import MAX_BYTES
from torchwheel_runtime.os_errors import explain
from torchwheel_runtime.ownership import NotRegularError, open_regular
from torchwheel_runtime.text import hide_users, quote, shorten_line, size_text

MOST_OF_FILE = 8 << 30
"""Bytes of a wheel; the greatest of torch itself have 3 GB."""
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
        raise UsageError(
            f"{_shown(url)}: expected https://, file:// or, on loopback, http://; name such an "
            "address, without a user"
        )
    if via is None:
        return
    came = _scheme(via)
    allowed = {"https": {"https"}, "http": {"https", "http"}, "file": {"https", "http", "file"}}
    if scheme not in allowed[came or "https"]:
        raise TorchwheelError(
            f"{_shown(via)}: expected links to {' or '.join(sorted(allowed[came or 'https']))}, "
            f"found {_shown(url)}; report it to the authors of the index"
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


def _shown(url: str) -> str:
    return quote(shorten_line(hide_users(url)))[1:-1]


class _Redirects(Redirects):
    """Follows few redirects, each to an address that the page before may lead to."""

    max_redirections = _REDIRECTS

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage | Message,
        newurl: str,
    ) -> urllib.request.Request | None:
        """Check the address, then do as the base does."""
        check_address(newurl, req.full_url)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


class Fetcher:
    """Fetches over the network and from files."""

    def __init__(self) -> None:
        self._context = trusting(ca_bundle())

    def open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        """Open a request to an address that was checked."""
        return open_url(request, self._context, _Redirects())

    def page(self, url: str, accept: str) -> Answer | None:
        """A page; None if there is none.

        Raises:
            TorchwheelError: one line: it cannot be had, or is too large.
        """
        check_address(url)
        if _scheme(url) == "file":
            return _page_of_folder(url)
        try:
            with self._open(url, accept) as answer:
                body = b"".join(_bounded(answer, url, MAX_BYTES))
                kind = answer.headers.get_content_type()
                return Answer(answer.geturl(), kind, body)
        except urllib.error.HTTPError as error:
            with error:
                if error.code in (404, 410):
                    return None
                raise _failed(url, f"status {error.code}") from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise _failed(url, _reason(error)) from None

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
            raise TorchwheelError(f"{_shown(url)}: {says}; nothing was installed")

    def download(self, url: str, target: Path, most: int) -> str:
        """Write a file of at most so many bytes to `target`; returns its sha256, to be compared.

        Raises:
            TorchwheelError: one line: it cannot be had.
        """
        check_address(url)
        digest = hashlib.sha256()
        try:
            with (
                explain_full_disk(target.parent),
                self._source(url) as source,
                target.open("wb") as file,
            ):
                for block in _bounded(source, url, most):
                    digest.update(block)
                    file.write(block)
        except urllib.error.HTTPError as error:
            with error:
                raise _failed(url, f"status {error.code}") from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise _failed(url, _reason(error)) from None
        return digest.hexdigest()

    def _source(self, url: str) -> IO[bytes] | http.client.HTTPResponse:
        if _scheme(url) == "file":
            return os.fdopen(open_regular(_path(url)), "rb")
        return self._open(url, "*/*")

    def _open(self, url: str, accept: str) -> http.client.HTTPResponse:
        request = urllib.request.Request(url, headers={"Accept": accept, "User-Agent": _AGENT})  # noqa: S310 - checked
        return self.open(request)


def link(page: str, address: str) -> str:
    """The absolute address of a link on a page; it must be one that may be reached from there."""
    try:
        target = urljoin(page, address)
    except ValueError:
        target = address
    check_address(target, page)
    return target


def _bounded(source: IO[bytes] | http.client.HTTPResponse, url: str, most: int) -> Iterator[bytes]:
    """The blocks of a source of at most so many bytes."""
    left = most
    for block in blocks_of(source, most):
        left -= len(block)
        if left < 0:
            raise TorchwheelError(f"{_shown(url)}: expected at most {size_text(most)}, found more")
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
                body = b"".join(_bounded(source, url, MAX_BYTES))
        except (FileNotFoundError, NotADirectoryError, NotRegularError):
            continue
        except OSError as error:
            raise TorchwheelError(explain(error)) from None
        kind = "application/json" if file.suffix == ".json" else "text/html"
        return Answer(url, kind, body)
    return None


def _failed(url: str, found: str) -> TorchwheelError:
    return TorchwheelError(f"{_shown(url)}: expected an answer, found {found}; try again later")


def _reason(error: Exception) -> str:
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(cause, Exception):
        return explain(cause)
    return shorten_line(quote(str(cause))[1:-1])
