"""The catalogue of a release: one file that says what was published.

An index is made of catalogues alone, without the wheels. Catalogues of old releases are read for
ever, so a new field needs a default, and keys that are not known are skipped.
"""

import dataclasses
import hashlib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

from packaging.metadata import InvalidMetadata, Metadata
from packaging.utils import canonicalize_name, parse_sdist_filename

from torchwheel.evidence.files import Believed, verify_published
from torchwheel.index.needs import plain
from torchwheel.inspect.wheel import Wheel, parse_file_name
from torchwheel_runtime import claims as claims_file
from torchwheel_runtime import files
from torchwheel_runtime.arch.model import Arch, parse
from torchwheel_runtime.claims import Claims
from torchwheel_runtime.errors import MalformedError, TorchwheelError, UsageError
from torchwheel_runtime.inspect.window import WheelError
from torchwheel_runtime.json_files import FileName, read_json
from torchwheel_runtime.os_errors import explain
from torchwheel_runtime.text import quote
from torchwheel_runtime.versions import is_requirement, is_specifier

T = TypeVar("T")
FILE = "catalogue.json"
SCHEMA = 1

_SHA256 = re.compile(r"[0-9a-f]{64}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", re.ASCII)
_TAG = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,127}")
_OF_EXTRA = re.compile(r"\bextra\b")
_DO = "download the catalogue again"


@dataclasses.dataclass(frozen=True)
class SmokeRun:
    """One run of a wheel's smoke tests, as far as people ask for it.

    Attributes:
        record: the asset with the whole record.
        verdict: "passed" or "passed, not run on a GPU".
        on_gpu: whether it ran on a GPU that the wheel has code for.
        gpu: its name, e.g. "NVIDIA H200".
        passed: how many tests passed.
    """

    record: FileName
    date: str
    verdict: str
    on_gpu: bool
    python: str
    platform: str
    torch: str
    gpu: str | None
    arch: str | None
    driver: str | None
    passed: int
    skipped: int


@dataclasses.dataclass(frozen=True)
class About:
    """What a wheel tells people of its project; a text is empty if the wheel has none.

    Attributes:
        summary: one line.
        license: an SPDX expression, or the name that older metadata has.
        documentation: its address.
        source: the address of the sources.
        module: what Python imports, e.g. "flash_attn".
        doctor: whether `python -m` of the module is torchwheel's doctor.
    """

    summary: str = ""
    license: str = ""
    documentation: str = ""
    source: str = ""
    module: str = ""
    doctor: bool = False


@dataclasses.dataclass(frozen=True)
class CatalogueWheel:
    """A published wheel.

    Attributes:
        project: the normalised name of its project.
        version: with the local part, e.g. "1.0.0+cu130".
        tags: the tags of its name, sorted.
        metadata_sha256: hex digest of its METADATA, which is published beside it (PEP 658).
        uploaded: when the file was first published, as PEP 700 writes it.
        claims: what the wheel says of itself; None for a bundled package.
        requires: its requirements, without those of extras, as METADATA writes them.
        provenance: the asset with its PEP 740 provenance.
        gates: what each gate says, by the gate's name.
        smoke: the runs of its smoke tests.
        record: the asset with its build record.
        about: what it tells people.
    """

    file: FileName
    project: str
    version: str
    tags: tuple[str, ...]
    sha256: str
    size: int
    metadata_sha256: str
    requires_python: str | None
    uploaded: str
    claims: Claims | None
    requires: tuple[str, ...] = ()
    provenance: FileName | None = None
    gates: dict[str, str] = dataclasses.field(default_factory=dict)
    smoke: tuple[SmokeRun, ...] = ()
    record: FileName | None = None
    about: About = About()


@dataclasses.dataclass(frozen=True)
class CatalogueSdist:
    """A published sdist. PyPI offers it; an index has wheels alone."""

    file: FileName
    version: str
    sha256: str
    size: int


@dataclasses.dataclass(frozen=True)
class Catalogue:
    """What a release has published.

    Attributes:
        project: the project's name, as the matrix writes it.
        tag: the release's tag, e.g. "v1.0.0"; the version if it was assembled without one.
        wheels: of the project, then of the bundled packages.
        sdists: of the project, then of the bundled packages.
    """

    project: str
    tag: str
    wheels: tuple[CatalogueWheel, ...]
    sdists: tuple[CatalogueSdist, ...] = ()

    @property
    def taken(self) -> frozenset[str]:
        """The bundled packages that were not built here, by file: their authors publish them."""
        built = {parse_sdist_filename(sdist.file)[0] for sdist in self.sdists}
        bundled = (wheel for wheel in self.wheels if wheel.claims is None)
        return frozenset(wheel.file for wheel in bundled if wheel.project not in built)


def catalogue_wheel(wheel: Wheel, sha256: str, uploaded: str) -> CatalogueWheel:
    """The entry of a wheel that was read and verified."""
    python = wheel.metadata.requires_python
    return CatalogueWheel(
        file=wheel.path.name,
        project=wheel.name,
        version=str(wheel.version),
        tags=tuple(sorted(map(str, wheel.tags))),
        sha256=sha256,
        size=wheel.size,
        metadata_sha256=hashlib.sha256(wheel.metadata_bytes).hexdigest(),
        requires_python=str(python) if python is not None else None,
        uploaded=uploaded,
        claims=wheel.claims,
        requires=tuple(
            str(one)
            for one in wheel.metadata.requires_dist or ()
            if not _OF_EXTRA.search(str(one.marker or ""))
        ),
        about=about_of(wheel),
    )


_LINKS = {
    "documentation": ("documentation", "docs"),
    "source": ("source", "sourcecode", "repository", "github", "homepage"),
}
"""Labels of Project-URL, as PyPI reads them; the first that is there counts."""
_LONGEST = {"summary": 512, "license": 80}
"""Characters. Older metadata has the whole text of a license in that field."""


def about_of(wheel: Wheel) -> About:
    """What a wheel tells people of its project, as far as it is well-formed."""
    metadata, members = wheel.metadata, frozenset(wheel.members)
    labels = {
        re.sub(r"[^a-z]", "", label.lower()): address
        for label, address in (_field(metadata, lambda of: of.project_urls) or {}).items()
        if is_address(address)
    }
    links = {
        name: next((labels[label] for label in of_each if label in labels), "")
        for name, of_each in _LINKS.items()
    }
    texts = {
        "summary": _field(metadata, lambda of: of.summary),
        "license": _field(metadata, lambda of: of.license_expression or of.license),
    }
    short = {
        name: text or "" if len(text or "") <= _LONGEST[name] and (text or "").isprintable() else ""
        for name, text in texts.items()
    }
    tops = {member.partition("/")[0].partition(".")[0] for member in members}
    modules = sorted(top for top in tops if f"{top}/__init__.py" in members and top.isidentifier())
    own = [top for top in modules if canonicalize_name(top) == wheel.name]
    module = next(iter(own or modules), "")
    requires = {canonicalize_name(one.name) for one in metadata.requires_dist or ()}
    doctor = f"{module}/__main__.py" in members and "torchwheel-runtime" in requires
    return About(**short, **links, module=module, doctor=doctor)


def _field(metadata: Metadata, read: Callable[[Metadata], T]) -> T | None:
    """A field of METADATA; None if it is malformed."""
    try:
        return read(metadata)
    except InvalidMetadata:
        return None


def is_address(text: str) -> bool:
    """Whether a text is an address of http or https."""
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.netloc) and text.isprintable()


def catalogue_text(catalogue: Catalogue) -> str:
    """Byte-stable JSON."""
    return json.dumps({"schema": SCHEMA, **plain(catalogue)}, indent=1) + "\n"


def read_catalogue(path: Path) -> Catalogue:
    """Read and check a catalogue.

    Raises:
        OSError: it cannot be read.
        MalformedError: one line: what was expected, what was found.
    """
    catalogue = read_json(
        path,
        Catalogue,
        schema=SCHEMA,
        others=True,
        do=_DO,
        readers={Arch: parse},
        shared=frozenset({Claims, About}),
    )
    for problem in _problems(catalogue):
        raise MalformedError(str(path), problem, _DO)
    return catalogue


def read_catalogues(
    places: Sequence[Path], believed: Believed | None = None
) -> tuple[Catalogue, ...]:
    """Read the catalogues at `places`: each a file, a release's folder, or a folder of these.

    Args:
        places: the files or folders.
        believed: if given, every catalogue must be signed by the workflow that releases.

    Raises:
        TorchwheelError: a line for each catalogue that is malformed or not to be believed.
    """
    found: list[Catalogue] = []
    faults: list[str] = []
    paths = [path for place in places for path in _catalogues_at(place)]
    if believed:
        verify_published(paths, believed)
    for path in paths:
        try:
            found.append(read_catalogue(path))
        except (OSError, TorchwheelError) as error:
            faults.append(explain(error))
    if faults:
        raise TorchwheelError(*faults)
    return tuple(found)


def _catalogues_at(place: Path) -> list[Path]:
    if not place.is_dir():
        return [place]
    own = place / FILE
    return [own] if own.exists() else sorted(place.glob(f"*/{FILE}"))


def _problems(catalogue: Catalogue) -> Iterator[str]:
    """What the types of the fields do not say."""
    if not _TAG.fullmatch(catalogue.tag):
        yield f'tag: expected e.g. "v1.0.0", found {quote(catalogue.tag)}'
    for at, wheel in enumerate(catalogue.wheels):
        for field, expected, found in _wheel_problems(wheel):
            yield f"wheels[{at}].{field}: expected {expected}, found {quote(found)}"


def _wheel_problems(wheel: CatalogueWheel) -> Iterator[tuple[str, str, str]]:
    """The field, what was expected, what was found."""
    try:
        project, version, _, tags, _ = parse_file_name(wheel.file)
    except WheelError:
        yield "file", "the name of a wheel", wheel.file
        return
    for field, expected, found in (
        ("project", project, wheel.project),
        ("version", str(version), wheel.version),
        ("tags", " ".join(sorted(map(str, tags))), " ".join(wheel.tags)),
    ):
        if expected != found:
            yield field, f"{quote(expected)}, as its name says", found
    for field, digest in (("sha256", wheel.sha256), ("metadata_sha256", wheel.metadata_sha256)):
        if not _SHA256.fullmatch(digest):
            yield field, "64 hex digits", digest
    if not _TIME.fullmatch(wheel.uploaded):
        yield "uploaded", 'e.g. "2026-11-24T08:00:00Z"', wheel.uploaded
    if wheel.requires_python is not None and not is_specifier(wheel.requires_python):
        yield "requires_python", 'e.g. ">=3.10"', wheel.requires_python
    for text in wheel.requires:
        if not is_requirement(text):
            yield "requires", 'requirements such as "einops>=0.7"', text
    yield from _about_problems(wheel.about)
    if wheel.size < 0:
        yield "size", "a number of bytes", str(wheel.size)
    if wheel.claims and (problem := claims_file.problem_of(wheel.claims)):
        yield "claims", "those of a wheel", problem


def _about_problems(about: About) -> Iterator[tuple[str, str, str]]:
    for field in ("documentation", "source"):
        if (found := getattr(about, field)) and not is_address(found):
            yield f"about.{field}", "an address of http or https", found
    if about.module and not about.module.isidentifier():
        yield "about.module", "the name of a module", about.module


def check_published(catalogues: Sequence[Catalogue]) -> None:
    """Raise if two releases have published different files of one name."""
    first: dict[str, tuple[str, str]] = {}
    for catalogue in catalogues:
        for wheel in catalogue.wheels:
            digest, tag = first.setdefault(wheel.file, (wheel.sha256, catalogue.tag))
            if digest != wheel.sha256:
                raise UsageError(
                    f"{wheel.file}: expected one file of this name, found different ones in the "
                    f"catalogues of {tag} and {catalogue.tag}; withdraw one of the releases"
                )


def published_hashes(catalogues: Sequence[Catalogue]) -> dict[str, tuple[str, str]]:
    """The sha256 of each published wheel and the tag of its release, by file name."""
    return {
        wheel.file: (wheel.sha256, catalogue.tag)
        for catalogue in catalogues
        for wheel in catalogue.wheels
    }


def upload_times(catalogues: Sequence[Catalogue]) -> dict[str, str]:
    """When each file was first published, by its sha256."""
    known: dict[str, str] = {}
    for wheel in (wheel for catalogue in catalogues for wheel in catalogue.wheels):
        known[wheel.sha256] = min(wheel.uploaded, known.get(wheel.sha256, wheel.uploaded))
    return known


def read_wheel_entry(wheel: Wheel, uploaded: str) -> CatalogueWheel:
    """The entry of a wheel's file; the file is hashed."""
    return catalogue_wheel(wheel, files.sha256(wheel.path), uploaded)
