"""The contents of an index: files, projects and groups, as data."""

import dataclasses
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from torchwheel import files
from torchwheel.claims import Claims
from torchwheel.errors import TorchwheelError, UsageError
from torchwheel.inspect.wheel import read_wheel
from torchwheel.versions import version_numbers

FILES = "files"
"""The folder of the wheels themselves, so no group can have this name."""
_PART = re.compile(r"[a-z0-9]+([._-][a-z0-9]+)*")


@dataclasses.dataclass(frozen=True)
class IndexedWheel:
    """A wheel and the groups that offer it, e.g. ("cu130", "cu130/torch2.11")."""

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


def group_wheels(wheels: Sequence[IndexedWheel]) -> tuple[IndexGroup, ...]:
    """Read the wheels into their groups; two different wheels of one name are an error."""
    by_name: dict[str, File] = {}
    groups: dict[str, dict[str, File]] = {}
    for wheel in wheels:
        file = read_file(wheel.path)
        known = by_name.setdefault(file.filename, file)
        if known.sha256 != file.sha256:
            raise UsageError(
                f"two different wheels are named {file.filename}: {known.source} and {wheel.path}"
            )
        for name in wheel.groups:
            groups.setdefault(_check_group_name(name), {})[file.filename] = known
    return tuple(
        IndexGroup(name, tuple(groups[name][key] for key in sorted(groups[name])))
        for name in sorted(groups)
    )


def _check_group_name(name: str) -> str:
    parts = name.split("/")
    if parts[0] == FILES or not all(_PART.fullmatch(part) for part in parts):
        raise UsageError(f"{name!r} is no name of an index group; expected e.g. cu130/torch2.11")
    return name


CPU = "cpu"


def groups_of(claims: Claims, torch_releases: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """The groups of a wheel, e.g. ("cu130", "cu130/torch2.11").

    The pure wheel is in every group, not only in `cpu`. pip sorts `1.0.0+cu130` above `1.0.0`, so
    a binary wheel wins wherever its tags and torch range fit. Elsewhere, e.g. on aarch64 or with
    an older torch, the same command installs the pure wheel.

    Args:
        claims: the claims of the wheel.
        torch_releases: toolkit names by torch release, e.g. {"2.11": ["cu130"]}.
    """
    supported = SpecifierSet(claims.torch_range)
    releases = [
        release
        for release in sorted(torch_releases, key=version_numbers)
        if supported.contains(release, prereleases=True)
    ]

    def by_torch(toolkit: str) -> list[str]:
        return [f"{toolkit}/torch{r}" for r in releases if toolkit in torch_releases[r]]

    if claims.abi in ("pure", "universal"):
        toolkits = {name for names in torch_releases.values() for name in names}
        pairs = [group for toolkit in toolkits for group in by_torch(toolkit)]
        return tuple(sorted({CPU, *toolkits, *pairs}))
    if claims.abi == "aten":
        return tuple(by_torch(claims.toolkit or CPU))
    if claims.toolkit is None:
        raise TorchwheelError(
            f"variant {claims.variant}: an {claims.abi} wheel needs a local version"
        )
    return (claims.toolkit, *by_torch(claims.toolkit))


def all_groups(groups: Iterable[Sequence[str]]) -> tuple[str, ...]:
    """The groups of all wheels. A bundled package is in each, as every wheel may require it."""
    return tuple(sorted({name for names in groups for name in names}))
