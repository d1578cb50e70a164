"""Reads what an index offers of a project: PEP 691's JSON, or the HTML of PEP 503.

The sdist of a release is found there without running code. pip would run its setup.py to learn its
requirements, which fails where torch is missing. So the file is downloaded by its hash, by the
rules of `fetch`.
"""

import dataclasses
import html.parser
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from packaging.utils import (
    InvalidSdistFilename,
    NormalizedName,
    canonicalize_name,
    parse_sdist_filename,
)
from packaging.version import InvalidVersion, Version

from torchwheel_runtime import process
from torchwheel_runtime.errors import MalformedError, TorchwheelError, UsageError
from torchwheel_runtime.fetch import Answer, Fetch, Fetcher, link
from torchwheel_runtime.files import sha256, write_atomically
from torchwheel_runtime.json_files import parse_json
from torchwheel_runtime.text import escape, quote, shorten_line

JSON = "application/vnd.pypi.simple.v1+json"
_ACCEPT = f"{JSON}, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"
SHA256 = re.compile("[0-9a-f]{64}")
_MOST_FILES = 20_000
DO = "report it to the authors of the index"


@dataclasses.dataclass(frozen=True)
class OfferedFile:
    """A file on a project's page. What is asked of it is checked then: a page may have odd others.

    Attributes:
        name: its name.
        entry: what the page says of it, in the form of PEP 691.
        page: the address of the page, or the one that its links start from.
        where: its place there, for messages.
    """

    name: str
    entry: Mapping[str, object]
    page: str
    where: str

    @property
    def url(self) -> str:
        """Its absolute address, which may be reached from the page."""
        return link(self.page, str(self.entry["url"])).partition("#")[0]

    @property
    def sha256(self) -> str | None:
        """Hex digest; None if the index gives none."""
        hashes = self.entry.get("hashes")
        digest = hashes.get("sha256") if isinstance(hashes, dict) else None
        if digest is None or (isinstance(digest, str) and SHA256.fullmatch(digest.lower())):
            return digest and digest.lower()
        reason = "hashes.sha256: expected 64 hex digits, found others"
        raise MalformedError(self.where, reason, DO)

    @property
    def size(self) -> int | None:
        """Bytes, if the index gives them."""
        size = self.entry.get("size")
        if size is None or (isinstance(size, int) and not isinstance(size, bool) and size >= 0):
            return size
        reason = "size: expected a number of bytes, found another value"
        raise MalformedError(self.where, reason, DO)

    def text(self, key: str) -> str | None:
        """The value of a key, if it is there."""
        return _text(self.entry, key, self.where)


@dataclasses.dataclass(frozen=True)
class ListedFiles:
    """All files on a project's page, and the address that it was read from.

    Attributes:
        url: of the page.
        files: in its order.
        note: what an index of ours says there of all of them.
    """

    url: str
    files: tuple[OfferedFile, ...]
    note: Mapping[str, object] = dataclasses.field(default_factory=dict)


def find_files(
    index: str, project: NormalizedName, fetch: Fetch, folders: Sequence[str] = ()
) -> ListedFiles | None:
    """The files that an index has of a project; None if it has no page of it.

    At a host of plain pages the document lies beside the page. It may also be in one of `folders`,
    which are those of an index of ours. Whoever names them may mean a page of links as well, as of
    pip's --find-links: the address itself is read then.
    """
    index = index.partition("#")[0]
    base, mark, query = index.partition("?")
    page = None
    for place in (
        f"{project}/",
        f"{project}/index.json",
        *(f"{folder}/{project}/index.json" for folder in folders),
    ):
        try:
            answer = fetch.page(f"{base.rstrip('/')}/{place}{mark}{query}", _ACCEPT)
            if answer and _is_json(answer):
                return _of_json(answer, project)
        except TorchwheelError:
            if page is None:
                raise
            continue  # What an index of others has there is nothing of ours.
        page = page or answer
    found = ListedFiles(page.url, tuple(_of_html(page))) if page else None
    if not folders or (found and found.files):
        return found
    try:
        links = fetch.page(index, _ACCEPT)
    except TorchwheelError:
        return found  # the root of a large index: its projects are no links to files
    if links is None or _is_json(links):
        return found
    named = re.compile(re.escape(project).replace(r"\-", "[-_.]+") + "-", re.IGNORECASE)
    files = tuple(file for file in _of_html(links) if named.match(file.name))
    return ListedFiles(links.url, files) if files else found


def _is_json(answer: Answer) -> bool:
    return answer.kind in (JSON, "application/json") or answer.body[:1] == b"{"


@dataclasses.dataclass(frozen=True)
class _Document:
    """PEP 691's document of a project, as far as it is read; an underscore marks an index's own."""

    name: str
    files: tuple[dict[str, object], ...]
    _torchwheel: dict[str, object] = dataclasses.field(default_factory=dict)


def _of_json(answer: Answer, project: NormalizedName) -> ListedFiles:
    document = parse_json(answer.body, _Document, answer.url, others=True, do=DO)
    if canonicalize_name(document.name) != project:
        reason = f"name: expected {project}, found {quote(document.name)}"
        raise MalformedError(answer.url, reason, DO)
    files = tuple(_files(document.files, answer.url, "files[{}]", 0))
    return ListedFiles(answer.url, files, document._torchwheel)


def _files(
    entries: Sequence[Mapping[str, object]], page: str, place: str, first: int, base: str = ""
) -> Iterator[OfferedFile]:
    if len(entries) > _MOST_FILES:
        reason = f"files: expected at most {_MOST_FILES}, found {len(entries)}"
        raise MalformedError(page, reason, DO)
    for at, entry in enumerate(entries, first):
        where = f"{page}: {place.format(at)}"
        name, url = _text(entry, "filename", where), _text(entry, "url", where)
        if name is None or url is None:
            raise MalformedError(where, "expected a filename and a url, found none", DO)
        yield OfferedFile(name, entry, base or page, where)


def _text(entry: Mapping[str, object], key: str, where: str) -> str | None:
    value = entry.get(key)
    if value is not None and not isinstance(value, str):
        raise MalformedError(where, f"{key}: expected text, found another value", DO)
    return value


def _of_html(answer: Answer) -> Iterator[OfferedFile]:
    try:
        text = answer.body.decode("utf-8")
    except UnicodeDecodeError:
        raise TorchwheelError(f"{answer.url}: expected UTF-8, found other bytes; {DO}") from None
    parser = _Anchors()
    try:
        parser.feed(text)
    # It raises an AssertionError for a declaration such as "<![" with no name after it.
    except (AssertionError, ValueError) as error:
        says = f"expected HTML, found {shorten_line(escape(str(error)))}"
        raise MalformedError(answer.url, says, DO) from None
    entries = [dict(_entry_of_anchor(one)) for one in parser.found[: _MOST_FILES + 1]]
    base = link(answer.url, parser.base) if parser.base else answer.url
    return _files(entries, answer.url, "link {}", 1, base)


class _Anchors(html.parser.HTMLParser):
    """The attributes of each link that has an address, in the order of the page, and its base."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[dict[str, str]] = []
        self.base = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a link, or the address that links start from: the first of them counts."""
        values = {name: value or "" for name, value in attrs}
        if tag == "base":
            self.base = self.base or values.get("href", "")
        if tag == "a" and values.get("href"):
            self.found.append(values)


def _entry_of_anchor(values: Mapping[str, str]) -> Iterator[tuple[str, object]]:
    """The entry that PEP 691 would have for a link of PEP 503."""
    href = values["href"].strip()
    address, _, fragment = href.partition("#")
    try:
        path = urlsplit(address).path
    except ValueError:
        path = ""
    yield "filename", unquote(path.rpartition("/")[2])
    yield "url", address
    digests = [one[7:] for one in fragment.split("&") if one.startswith("sha256=")]
    if digests:
        yield "hashes", {"sha256": digests[0]}
    if "data-requires-python" in values:
        yield "requires-python", values["data-requires-python"]
    if "data-yanked" in values:
        yield "yanked", values["data-yanked"] or True
    metadata = values.get("data-core-metadata", values.get("data-dist-info-metadata"))
    if metadata:
        digest = metadata.removeprefix("sha256=") if metadata.startswith("sha256=") else None
        yield "core-metadata", {"sha256": digest} if digest else True
    if "data-provenance" in values:
        yield "provenance", values["data-provenance"]


PYPI = "https://pypi.org/simple"
SDIST_BYTES = 512 << 20
"""The largest sdist that is read."""


def find_sdist(name: str, version: str, environ: Mapping[str, str] = os.environ) -> OfferedFile:
    """The sdist of a release; that of a folder of PIP_FIND_LINKS precedes the index's."""
    for folder in environ.get("PIP_FIND_LINKS", "").split():
        for path in sorted(Path(folder).glob("*")) if Path(folder).is_dir() else ():
            if is_sdist_of(path.name, name, version) and path.is_file():
                address = path.resolve().as_uri()
                entry = {"url": address, "hashes": {"sha256": sha256(path)}}
                return OfferedFile(path.name, entry, address, str(path))
    index = index_address(environ)
    listed = find_files(index, canonicalize_name(name), Fetcher())
    files = listed.files if listed else ()
    found = [file for file in files if is_sdist_of(file.name, name, version)]
    if not found:
        page = listed.url if listed else f"{index}/{canonicalize_name(name)}/"
        raise UsageError(
            f"{name}=={version}: expected an sdist on {page}, found none; name another release, or "
            "a git reference"
        )
    # .tar.gz is what PEP 625 wants; older releases have others beside it.
    return min(found, key=lambda file: (not file.name.endswith(".tar.gz"), file.name))


def files_offered(project: str, environ: Mapping[str, str] = os.environ) -> list[OfferedFile]:
    """All files of a project on the indexes that pip uses; none of an index without the project."""
    extra = _of_pip("PIP_EXTRA_INDEX_URL", "global.extra-index-url", environ).split()
    listed = (
        find_files(address, canonicalize_name(project), Fetcher())
        for address in (index_address(environ), *extra)
    )
    return [file for one in listed if one for file in one.files]


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


def download_sdist(file: OfferedFile, expected: str | None, folder: Path) -> Path:
    """Download an sdist into `folder`; its hash is the index's and the expected one."""
    hashes = [("the index", file.sha256), ("project.sha256", expected)]
    if not any(wanted for _, wanted in hashes):
        raise TorchwheelError(
            f"{file.where}: {file.name}: expected a sha256, found none, so its bytes cannot be "
            "verified; download it yourself and name the file"
        )
    with write_atomically(folder / file.name) as temporary:
        digest = Fetcher().download(file.url, temporary, SDIST_BYTES)
        for source, wanted in hashes:
            if wanted and wanted != digest:
                raise TorchwheelError(
                    f"hash mismatch: {file.name}: expected sha256 {wanted} by {source}, found "
                    f"{digest}; nothing was taken"
                )
    return folder / file.name
