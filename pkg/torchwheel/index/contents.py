"""The contents of an index: files, projects and groups, as data."""

import dataclasses
import datetime
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

from packaging.version import Version

from torchwheel import files
from torchwheel.claims import Claims
from torchwheel.errors import UsageError
from torchwheel.index.groups import by_version_alone
from torchwheel.inspect.wheel import read_wheel

FILES = "files"
"""The folder of the wheels themselves, so no group can have this name."""
_PLATFORM = re.compile(r"^(many|musl)?linux(_?\d+)*_")
_PART = re.compile(r"[a-z0-9]+([._-][a-z0-9]+)*")


@dataclasses.dataclass(frozen=True)
class IndexedWheel:
    """A wheel and the groups that offer it, e.g. ("cu130", "cu130/torch2.11")."""

    path: Path
    groups: tuple[str, ...]
    uploaded: str | None = None
    """When it first entered the index, as PEP 700 writes it: "2026-11-24T08:00:00Z"."""


def utc_time(seconds: float) -> str:
    """A time since the epoch as PEP 700 writes it."""
    return datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).strftime(
        "%Y-%m-%dT%H:%M:%SZ"
    )


@dataclasses.dataclass(frozen=True)
class File:
    """One wheel as the index lists it."""

    filename: str
    project: str
    version: Version
    sha256: str
    size: int
    requires_python: str | None
    metadata: bytes
    source: Path
    machines: frozenset[str]
    """Of its platform tags: "x86_64", "any"."""
    claims: Claims | None
    uploaded: str | None

    @property
    def href(self) -> str:
        """The file name in a URL: the `+` of a local version is %2B."""
        return quote(self.filename)

    @property
    def metadata_sha256(self) -> str:
        """Hash of the metadata file beside the wheel."""
        return hashlib.sha256(self.metadata).hexdigest()


@dataclasses.dataclass(frozen=True)
class IndexGroup:
    """One index that pip can use."""

    name: str
    files: tuple[File, ...]
    yanked: Mapping[str, str]
    """By file name: why a file is offered to those who name its version, and to no others."""

    @property
    def projects(self) -> tuple[str, ...]:
        """Normalised names, sorted."""
        return tuple(sorted({file.project for file in self.files}))

    def of(self, project: str) -> tuple[File, ...]:
        """A project's files, the newest version first."""
        own = [file for file in self.files if file.project == project]
        own.sort(key=lambda file: file.filename)
        return tuple(sorted(own, key=lambda file: file.version, reverse=True))


def read_file(path: Path, uploaded: str | None = None) -> File:
    """Read and verify a wheel for the index."""
    wheel = read_wheel(path)
    python = wheel.metadata.requires_python
    return File(
        filename=path.name,
        project=wheel.name,
        version=wheel.version,
        sha256=files.sha256(path),
        size=wheel.size,
        requires_python=str(python) if python is not None else None,
        metadata=wheel.metadata_bytes,
        source=path,
        machines=frozenset(_PLATFORM.sub("", tag.platform) for tag in wheel.tags),
        claims=wheel.claims,
        uploaded=uploaded,
    )


def group_wheels(wheels: Sequence[IndexedWheel]) -> tuple[IndexGroup, ...]:
    """Read the wheels into their groups; two different wheels of one name are an error."""
    by_name: dict[str, File] = {}
    groups: dict[str, dict[str, File]] = {}
    for wheel in wheels:
        file = read_file(wheel.path, wheel.uploaded)
        known = by_name.setdefault(file.filename, file)
        if known.sha256 != file.sha256:
            raise UsageError(
                f"two different wheels are named {file.filename}: {known.source} and {wheel.path}"
            )
        for name in wheel.groups:
            groups.setdefault(_check_group_name(name), {})[file.filename] = known
    return tuple(_group(name, groups[name]) for name in sorted(groups))


def _group(name: str, by_name: Mapping[str, File]) -> IndexGroup:
    own = tuple(by_name[key] for key in sorted(by_name))
    return IndexGroup(
        name, own, {file.filename: why for file in own if (why := _why(name, file, own))}
    )


def _why(group: str, file: File, own: Sequence[File]) -> str:
    """Why a group offers a file by its version alone; empty if it offers it to everybody."""
    others = [
        other.claims
        for other in own
        if other.claims
        and (other.project, other.version.public) == (file.project, file.version.public)
        and file.machines <= other.machines
    ]
    if file.claims is None or not by_version_alone(group, file.claims, others):
        return ""
    return (
        f"it needs torch{file.claims.torch_range}, and pip would replace another; "
        f"name its version to install it: {file.project}=={file.version}"
    )


def _check_group_name(name: str) -> str:
    parts = name.split("/")
    if parts[0] == FILES or not all(_PART.fullmatch(part) for part in parts):
        raise UsageError(f"{name!r} is no name of an index group; expected e.g. cu130/torch2.11")
    return name


def all_groups(groups: Iterable[Sequence[str]]) -> tuple[str, ...]:
    """The groups of all wheels. A bundled package is in each, as every wheel may require it."""
    return tuple(sorted({name for names in groups for name in names}))
