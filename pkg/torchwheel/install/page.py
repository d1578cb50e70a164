"""Reads the page of a project in an index: PEP 691's JSON, or the HTML of PEP 503."""

import dataclasses
import re
from collections.abc import Iterator, Mapping
from urllib.parse import unquote, urlsplit

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.tags import Tag
from packaging.utils import (
    BuildTag,
    NormalizedName,
    canonicalize_name,
)
from packaging.version import Version

from torchwheel.errors import MalformedError, TorchwheelError
from torchwheel.index.note import ALL, KEY, IndexNote, Kernels, WheelNeeds, read_note
from torchwheel.inspect.archive import WheelError
from torchwheel.inspect.local_version import read_local_version
from torchwheel.inspect.wheel import parse_file_name
from torchwheel.install.fetch import Answer, Fetch, link
from torchwheel.json_files import parse_json
from torchwheel.text import escape, quote, shorten_line
from torchwheel.toolkit.anchors import anchors_of
from torchwheel.versions import has_long_number

JSON = "application/vnd.pypi.simple.v1+json"
_ACCEPT = f"{JSON}, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"
_SHA256 = re.compile("[0-9a-f]{64}")
_MOST_FILES = 20_000
_DO = "report it to the authors of the index"


@dataclasses.dataclass(frozen=True)
class OfferedWheel:
    """A wheel that an index offers.

    Attributes:
        file: its name.
        version: of the name.
        build: the build tag of the name.
        tags: the tags of the name.
        url: its absolute address.
        needs: what it needs, as the index says it; else as its name says it.
        described: whether the index says it.
        sha256: hex digest; None if the index gives none.
        size: bytes, if the index gives them.
        requires_python: e.g. ">=3.10".
        withdrawn: why it was withdrawn; None if it was not.
        metadata: the address of its METADATA, and the hash if the index gives it (PEP 658).
        provenance: the address of its provenance (PEP 740).
    """

    file: str
    version: Version
    build: BuildTag
    tags: frozenset[Tag]
    url: str
    needs: WheelNeeds
    described: bool
    sha256: str | None
    size: int | None = None
    requires_python: SpecifierSet | None = None
    withdrawn: str | None = None
    metadata: tuple[str, str | None] | None = None
    provenance: str | None = None


@dataclasses.dataclass(frozen=True)
class ProjectPage:
    """The wheels of a project, and the address that they were read from."""

    project: NormalizedName
    url: str
    candidates: tuple[OfferedWheel, ...]


def find_page(index: str, project: NormalizedName, fetch: Fetch) -> ProjectPage | None:
    """The page of a project; None if the index has none.

    At a host of plain pages the document lies beside the page. The root of our own index has groups
    in place of projects, and the folder `all` with the wheels of all of them.
    """
    base = index.rstrip("/")
    page = None
    for address in (
        f"{base}/{project}/",
        f"{base}/{project}/index.json",
        f"{base}/{ALL}/{project}/index.json",
    ):
        answer = fetch.page(address, _ACCEPT)
        if answer is None:
            continue
        if _is_json(answer):
            return ProjectPage(project, answer.url, tuple(_of_json(answer, project)))
        page = page or answer
    return ProjectPage(project, page.url, tuple(_of_html(page, project))) if page else None


def _is_json(answer: Answer) -> bool:
    return answer.kind in (JSON, "application/json") or answer.body[:1] == b"{"


@dataclasses.dataclass(frozen=True)
class _Document:
    """PEP 691's document of a project, as far as it is read."""

    name: str
    files: tuple[dict[str, object], ...]


def _of_json(answer: Answer, project: NormalizedName) -> Iterator[OfferedWheel]:
    document = parse_json(answer.body, _Document, answer.url, others=True, do=_DO)
    if canonicalize_name(document.name) != project:
        reason = f"name: expected {project}, found {quote(document.name)}"
        raise MalformedError(answer.url, reason, _DO)
    for at, entry in enumerate(_few(document.files, answer.url)):
        where = f"{answer.url}: files[{at}]"
        name, url = _text(entry, "filename", where), _text(entry, "url", where)
        if name is None or url is None:
            raise MalformedError(where, "expected a filename and a url, found none", _DO)
        yield from _candidate(entry, name, url, answer.url, project, where)


def _few(files: tuple[dict[str, object], ...], where: str) -> tuple[dict[str, object], ...]:
    if len(files) > _MOST_FILES:
        reason = f"files: expected at most {_MOST_FILES}, found {len(files)}"
        raise MalformedError(where, reason, _DO)
    return files


def _text(entry: Mapping[str, object], key: str, where: str) -> str | None:
    value = entry.get(key)
    if value is not None and not isinstance(value, str):
        raise MalformedError(where, f"{key}: expected text, found another value", _DO)
    return value


def _candidate(
    entry: Mapping[str, object],
    name: str,
    url: str,
    page: str,
    project: NormalizedName,
    where: str,
) -> Iterator[OfferedWheel]:
    """The wheel of an entry; nothing if it is no wheel of the project, e.g. an sdist."""
    try:
        named, version, build, tags = parse_file_name(name)
    except WheelError:
        return
    if named != project:
        return
    hashes = entry.get("hashes")
    digest = hashes.get("sha256") if isinstance(hashes, dict) else None
    if digest is not None and not (isinstance(digest, str) and _SHA256.fullmatch(digest)):
        raise MalformedError(where, "hashes.sha256: expected 64 hex digits, found others", _DO)
    size = entry.get("size")
    if size is not None and (type(size) is not int or size < 0):
        raise MalformedError(where, "size: expected a number of bytes, found another value", _DO)
    note: IndexNote | None = read_note(entry.get(KEY), where)
    address = link(page, url)
    provenance = _text(entry, "provenance", where)
    yield OfferedWheel(
        file=name,
        version=version,
        build=build,
        tags=tags,
        url=address.partition("#")[0],
        needs=note.needs if note else needs_of_name(version),
        described=note is not None,
        sha256=digest,
        size=size,
        requires_python=_specifiers(_text(entry, "requires-python", where)),
        withdrawn=_withdrawn(entry.get("yanked"), note),
        metadata=_metadata(entry, address.partition("#")[0]),
        provenance=link(page, provenance) if provenance else None,
    )


def needs_of_name(version: Version) -> WheelNeeds:
    """What a wheel needs, by its local version."""
    said = read_local_version(version)
    kernels = [Kernels("cuda", said.cuda)] if said.cuda else []
    kernels += [Kernels("rocm", said.rocm)] if said.rocm else []
    return WheelNeeds(
        abi="aten" if said.torch else None,
        torch=(f"=={said.torch}.*",) if said.torch else (),
        kernels=tuple(kernels),
        for_cpu=said.cpu,
        old_abi=None if said.new_strings is None else not said.new_strings,
    )


def _withdrawn(yanked: object, note: IndexNote | None) -> str | None:
    if note is not None and not note.withdrawn:
        return None
    if yanked is None or yanked is False:
        return None
    return yanked if isinstance(yanked, str) and yanked else "no reason given"


def _metadata(entry: Mapping[str, object], url: str) -> tuple[str, str | None] | None:
    value = entry.get("core-metadata", entry.get("data-dist-info-metadata"))
    if not value:
        return None
    digest = value.get("sha256") if isinstance(value, dict) else None
    known = isinstance(digest, str) and _SHA256.fullmatch(digest)
    return f"{url}.metadata", digest if known and isinstance(digest, str) else None


def _specifiers(text: str | None) -> SpecifierSet | None:
    # As pip does: what cannot be read excludes nothing.
    if not text or has_long_number(text):
        return None
    try:
        return SpecifierSet(text)
    except InvalidSpecifier:
        return None


def _of_html(answer: Answer, project: NormalizedName) -> Iterator[OfferedWheel]:
    try:
        text = answer.body.decode("utf-8")
    except UnicodeDecodeError:
        raise TorchwheelError(f"{answer.url}: expected UTF-8, found other bytes; {_DO}") from None
    try:
        anchors = anchors_of(text)
    except ValueError as error:
        says = f"expected HTML, found {shorten_line(escape(str(error)))}"
        raise MalformedError(answer.url, says, _DO) from None
    found = anchors[: _MOST_FILES + 1]
    entries = _few(tuple(dict(_entry_of_anchor(one)) for one in found), answer.url)
    for at, entry in enumerate(entries):
        where = f"{answer.url}: link {at + 1}"
        name, url = str(entry["filename"]), str(entry["url"])
        yield from _candidate(entry, name, url, answer.url, project, where)


def _entry_of_anchor(values: Mapping[str, str]) -> Iterator[tuple[str, object]]:
    """The entry that PEP 691 would have for a link of PEP 503."""
    href = values["href"]
    address, _, fragment = href.partition("#")
    try:
        path = urlsplit(address).path
    except ValueError:
        path = ""
    yield "filename", unquote(path.rpartition("/")[2])
    yield "url", address
    if fragment.startswith("sha256="):
        yield "hashes", {"sha256": fragment.removeprefix("sha256=").partition("&")[0]}
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
