"""What an index shows: files, projects, groups. Pure data made from wheels."""

import dataclasses
import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from packaging.version import Version

from torchwheel import files
from torchwheel.errors import UsageError
from torchwheel.inspect.wheel import read_wheel

FILES = "files"
"""The folder of the wheels themselves, so no group can have this name."""
_PART = re.compile(r"[a-z0-9]+([._-][a-z0-9]+)*")


@dataclasses.dataclass(frozen=True)
class IndexedWheel:
    """A wheel and the groups it is offered in, e.g. ("cu130", "cu130/torch2.11")."""

    path: Path
    groups: tuple[str, ...]


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

    @property
    def href(self) -> str:
        """File name as it stands in a URL: `+` of a local version is %2B."""
        return quote(self.filename)

    @property
    def metadata_sha256(self) -> str:
        """Hash of the metadata file beside the wheel."""
        return hashlib.sha256(self.metadata).hexdigest()


@dataclasses.dataclass(frozen=True)
class Group:
    """One index that pip can be pointed at."""

    name: str
    files: tuple[File, ...]

    @property
    def projects(self) -> tuple[str, ...]:
        """Normalised names, sorted."""
        return tuple(sorted({file.project for file in self.files}))

    def of(self, project: str) -> tuple[File, ...]:
        """A project's files, the newest version first."""
        own = [file for file in self.files if file.project == project]
        own.sort(key=lambda file: file.filename)
        return tuple(sorted(own, key=lambda file: file.version, reverse=True))


def read_file(path: Path) -> File:
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
    )


def grouped(wheels: Sequence[IndexedWheel]) -> tuple[Group, ...]:
    """Read the wheels, sort them into groups; two different wheels of one name are an error."""
    by_name: dict[str, File] = {}
    found: dict[str, dict[str, File]] = {}
    for wheel in wheels:
        file = read_file(wheel.path)
        known = by_name.setdefault(file.filename, file)
        if known.sha256 != file.sha256:
            raise UsageError(
                f"two different wheels are named {file.filename}: {known.source} and {wheel.path}"
            )
        for name in wheel.groups:
            found.setdefault(_checked(name), {})[file.filename] = known
    return tuple(
        Group(name, tuple(found[name][key] for key in sorted(found[name])))
        for name in sorted(found)
    )


def _checked(name: str) -> str:
    parts = name.split("/")
    if parts[0] == FILES or not all(_PART.fullmatch(part) for part in parts):
        raise UsageError(f"{name!r} is no name of an index group; expected e.g. cu130/torch2.11")
    return name
