"""The files of a project on the package index, and the sdist of a release, without running code.

pip would run its setup.py to learn its requirements, which fails where torch is missing. So the
page of the project is read (PEP 503 or 691), and the file is downloaded by its hash.
"""

import dataclasses
import hashlib
import http.client
import os
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path

from packaging.utils import InvalidSdistFilename, canonicalize_name, parse_sdist_filename
from packaging.version import InvalidVersion, Version

from torchwheel import process
from torchwheel.errors import MalformedError, TorchwheelError, UsageError
from torchwheel.files import sha256, write_atomically
from torchwheel.json_files import parse_json
from torchwheel.text import quote
from torchwheel.toolkit.anchors import anchors_of
from torchwheel.toolkit.index import ca_bundle
from torchwheel.toolkit.remote import trusting

PYPI = "https://pypi.org/simple"
_JSON = "application/vnd.pypi.simple.v1+json"
_ACCEPT = f"{_JSON}, text/html;q=0.5"
_TIMEOUT = 60
PAGE_BYTES, SDIST_BYTES = 64 << 20, 512 << 20
"""The largest page and the largest sdist that are read."""


@dataclasses.dataclass(frozen=True)
class ProjectFile:
    """A file that an index or a folder of PIP_FIND_LINKS offers; `sha256` is None if not said."""

    name: str
    url: str
    sha256: str | None


@dataclasses.dataclass(frozen=True)
class _File:
    filename: str
    url: str
    hashes: dict[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class _Page:
    """The part of a project's page in JSON that is used (PEP 691)."""

    files: tuple[_File, ...]


def find_sdist(name: str, version: str, environ: Mapping[str, str] = os.environ) -> ProjectFile:
    """The sdist of a release; that of a folder of PIP_FIND_LINKS precedes the index's."""
    for folder in environ.get("PIP_FIND_LINKS", "").split():
        for path in sorted(Path(folder).glob("*")) if Path(folder).is_dir() else ():
            if is_sdist_of(path.name, name, version):
                return ProjectFile(path.name, path.resolve().as_uri(), sha256(path))
    page = f"{index_address(environ)}/{canonicalize_name(name)}/"
    found = [file for file in read_project_page(page) if is_sdist_of(file.name, name, version)]
    if not found:
        raise UsageError(
            f"{name}=={version}: expected an sdist on {page}, found none; name another release, or "
            "a git reference"
        )
    # .tar.gz is what PEP 625 wants; older releases have others beside it.
    return min(found, key=lambda file: (not file.name.endswith(".tar.gz"), file.name))


def read_project_page(page: str) -> list[ProjectFile]:
    """All files on a project's page; an index in a folder has it in a file, as pip wants."""
    address = f"{page}index.html" if page.startswith("file:") else page
    body, kind = read_url(address, PAGE_BYTES, _ACCEPT)
    return list(_of_json(body, page) if kind == _JSON else _of_html(body, page))


def files_offered(project: str, environ: Mapping[str, str] = os.environ) -> list[ProjectFile]:
    """All files of a project on the indexes that pip uses; none of an index without the project."""
    files = []
    extra = _of_pip("PIP_EXTRA_INDEX_URL", "global.extra-index-url", environ).split()
    for address in (index_address(environ), *extra):
        try:
            files += read_project_page(f"{address.rstrip('/')}/{canonicalize_name(project)}/")
        except TorchwheelError as error:
            if not _is_absent(error.__cause__):
                raise
    return files


def _is_absent(cause: BaseException | None) -> bool:
    """Whether an address could not be read because nothing is there."""
    if isinstance(cause, urllib.error.HTTPError):
        return cause.code == http.HTTPStatus.NOT_FOUND
    return isinstance(cause, urllib.error.URLError) and isinstance(cause.reason, FileNotFoundError)


def is_sdist_of(file: str, name: str, version: str) -> bool:
    """Whether a file's name is that of a release's sdist."""
    try:
        found, release = parse_sdist_filename(file)
        return found == canonicalize_name(name) and release == Version(version)
    except (InvalidSdistFilename, InvalidVersion):
        return False


def index_address(environ: Mapping[str, str] = os.environ) -> str:
    """The package index that pip uses: PIP_INDEX_URL, else its configuration, else PyPI."""
    return (_of_pip("PIP_INDEX_URL", "global.index-url", environ) or PYPI).rstrip("/")


def _of_pip(variable: str, setting: str, environ: Mapping[str, str]) -> str:
    """A setting of pip's: its variable, else its configuration, else nothing."""
    if value := environ.get(variable):
        return value
    done = process.run(["pip", "config", "get", setting], env=dict(environ))
    return done.output.strip() if done.status == 0 else ""


def download_sdist(file: ProjectFile, expected: str | None, folder: Path) -> Path:
    """Download an sdist into `folder`; its hash is the index's and the expected one."""
    data, _ = read_url(file.url, SDIST_BYTES)
    digest = hashlib.sha256(data).hexdigest()
    for source, wanted in (("the index", file.sha256), ("project.sha256", expected)):
        if wanted and wanted != digest:
            raise TorchwheelError(
                f"hash mismatch: {file.name}: expected sha256 {wanted} by {source}, found "
                f"{digest}; nothing was taken"
            )
    with write_atomically(folder / file.name) as temporary:
        temporary.write_bytes(data)
    return folder / file.name


def read_url(address: str, limit: int, accept: str = "*/*") -> tuple[bytes, str]:
    """The bytes at an address, at most `limit`, and their type."""
    scheme = urllib.parse.urlsplit(address).scheme
    if scheme not in ("https", "http", "file"):
        raise UsageError(f"{address}: expected https, http or file, found {quote(scheme)}")
    request = urllib.request.Request(address, headers={"Accept": accept})  # noqa: S310 - checked
    try:
        with urllib.request.urlopen(  # noqa: S310 - checked
            request, timeout=_TIMEOUT, context=trusting(ca_bundle())
        ) as answer:
            data: bytes = answer.read(limit + 1)
            kind = str(answer.headers.get_content_type())
    except (http.client.HTTPException, OSError, ValueError) as error:
        raise TorchwheelError(f"{address}: cannot be read: {error}") from error
    if len(data) > limit:
        raise TorchwheelError(f"{address}: expected at most {limit} bytes, found more")
    return data, kind


def _of_json(body: bytes, page: str) -> Iterator[ProjectFile]:
    try:
        files = parse_json(body, _Page, page, others=True).files
    except MalformedError as error:
        raise TorchwheelError(str(error)) from error
    for file in files:
        url = urllib.parse.urljoin(page, file.url)
        yield ProjectFile(file.filename, url, file.hashes.get("sha256"))


def _of_html(body: bytes, page: str) -> Iterator[ProjectFile]:
    try:
        anchors = anchors_of(body.decode("utf-8", "replace"))
    except ValueError as error:
        raise TorchwheelError(
            f"{page}: expected a page in HTML, found {quote(str(error))}"
        ) from None
    for anchor in anchors:
        url, _, fragment = urllib.parse.urljoin(page, anchor["href"]).partition("#")
        name = urllib.parse.unquote(urllib.parse.urlsplit(url).path.rpartition("/")[2])
        digest = fragment.removeprefix("sha256=") if fragment.startswith("sha256=") else None
        yield ProjectFile(name, url, digest)
