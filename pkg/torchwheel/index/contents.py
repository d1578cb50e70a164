"""The contents of an index: files, projects and groups, as data."""

import dataclasses
import datetime
import functools
import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import quote

from packaging.version import Version

from torchwheel.errors import UsageError
from torchwheel.index.catalogue import Catalogue, CatalogueWheel, check_published
from torchwheel.index.groups import (
    WheelKind,
    by_version_alone,
    groups_of_releases,
    is_of_torch,
    kind_of,
)
from torchwheel.index.note import ALL, note_text
from torchwheel.index.store import Store, is_absolute
from torchwheel.index.withdrawals import ProjectStatus, Withdrawals

FILES = "files"
"""The folder of the wheels that lie beside an index, so no group can have this name."""
_RESERVED = (FILES, ALL)
_PLATFORM = re.compile(r"^(many|musl)?linux(_?\d+)*_")
_PART = re.compile(r"[a-z0-9]+([._-][a-z0-9]+)*")


def utc_time(seconds: float) -> str:
    """A time since the epoch as PEP 700 writes it."""
    return datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).strftime(
        "%Y-%m-%dT%H:%M:%SZ"
    )


@dataclasses.dataclass(frozen=True, eq=False)
class File:
    """One wheel as the index lists it; an index has one object for each.

    Attributes:
        wheel: what its catalogue says.
        folder: the address of the folder that holds it; relative to the index's root, or absolute.
        withdrawn: why it was withdrawn; None if it was not.
        removed: whether the store does not have it any more, so that it is not listed.
    """

    wheel: CatalogueWheel
    folder: str
    withdrawn: str | None = None
    removed: bool = False

    @property
    def is_withdrawn(self) -> bool:
        """Whether it is not offered to everybody, or not at all."""
        return self.removed or self.withdrawn is not None

    @functools.cached_property
    def version(self) -> Version:
        """Its version."""
        return Version(self.wheel.version)

    @functools.cached_property
    def public(self) -> str:
        """Its version without the local part."""
        return self.wheel.version.partition("+")[0]  # it is normalised: a catalogue is held to that

    @functools.cached_property
    def machines(self) -> frozenset[str]:
        """The machines of its platform tags: "x86_64", "any"."""
        return frozenset(_PLATFORM.sub("", tag.split("-")[2]) for tag in self.wheel.tags)

    @functools.cached_property
    def digest(self) -> bytes:
        """A hash of all that a page says of it, but for what a group says."""
        wheel = self.wheel
        fields = (wheel.file, wheel.version, wheel.sha256, wheel.size, wheel.metadata_sha256)
        links = (self.folder, wheel.provenance, wheel.requires_python, wheel.uploaded)
        shown = (*fields, *links, self.note, self.withdrawn is not None)
        return hashlib.sha256(repr(shown).encode()).digest()

    @functools.cached_property
    def note(self) -> str:
        """The note that `torchwheel install` goes by, as JSON; empty for a bundled package."""
        claims = self.wheel.claims
        return note_text(claims, self.withdrawn is not None) if claims else ""

    @functools.cached_property
    def is_absolute(self) -> bool:
        """Whether its address is the same from every page."""
        return is_absolute(self.folder)

    @functools.cached_property
    def address(self) -> str:
        """Its own address: the `+` of a local version is %2B in it."""
        return f"{self.folder}/{_quoted(self.wheel.file)}"

    @functools.cached_property
    def kind(self) -> WheelKind | None:
        """What decides its groups; None of a bundled package."""
        return kind_of(self.wheel.claims) if self.wheel.claims else None

    @functools.cached_property
    def for_some_torch(self) -> WheelKind | None:
        """Its kind, if it does not accept every torch."""
        return self.kind if self.kind and not self.kind.accepts_every_torch else None

    @functools.cached_property
    def why_by_version_alone(self) -> str:
        """Why a group offers it by its version alone, if it does."""
        wheel = self.wheel
        return (
            f"it needs torch{wheel.claims.torch_range if wheel.claims else ''}, and pip would "
            f"replace another; name its version to install it: {wheel.project}=={wheel.version}"
        )

    @functools.cached_property
    def provenance(self) -> str | None:
        """The address of its PEP 740 provenance."""
        name = self.wheel.provenance
        # The PEP wants a secure origin, so a store beside the index has none.
        secure = self.folder.startswith("https://")
        return f"{self.folder}/{_quoted(name)}" if name and secure else None


def _quoted(name: str) -> str:
    """The same as `quote(name)`, which is slow for a name with a `+`."""
    return "%2B".join(map(quote, name.split("+")))


@dataclasses.dataclass(frozen=True)
class IndexGroup:
    """One index that pip can use: the files of each project, the newest version first."""

    name: str
    projects: Mapping[str, tuple[File, ...]]
    yanked: Mapping[File, str]
    """Why a file is offered to those who name its version, and to no others."""

    @functools.cached_property
    def bundled(self) -> tuple[str, ...]:
        """Requirements of its bundled packages, each at its newest version."""
        newest: dict[str, File] = {}
        for files in self.projects.values():
            for file in files:
                if file.kind is None and not file.is_withdrawn:
                    newest.setdefault(file.wheel.project, file)
        return tuple(f"{name}=={file.wheel.version}" for name, file in sorted(newest.items()))


@dataclasses.dataclass(frozen=True)
class Index:
    """All groups of an index, and the states of projects that are not active."""

    groups: tuple[IndexGroup, ...]
    statuses: Mapping[str, ProjectStatus] = dataclasses.field(default_factory=dict)


def index_of(catalogues: Sequence[Catalogue], store: Store, withdrawals: Withdrawals) -> Index:
    """The index of all releases: a pure function of their catalogues.

    Args:
        catalogues: of the releases, in any order.
        store: where the files of each release are.
        withdrawals: what is not offered to everybody any more.

    Raises:
        UsageError: two releases have different files of one name, or nothing that was published
            is what a withdrawal names.
    """
    check_published(catalogues)
    releases = sorted(catalogues, key=_first_upload)
    groups = groups_of_releases(
        [[wheel.claims for wheel in of.wheels if wheel.claims] for of in releases]
    )
    every = all_groups(names for of_each in groups for names in of_each)
    found: dict[str, tuple[CatalogueWheel, str]] = {}
    names_of: dict[str, set[str]] = {}
    for release, of_each in zip(releases, groups, strict=True):
        folder, own = store.folder(release.tag), iter(of_each)
        for wheel in release.wheels:
            names = next(own) if wheel.claims else every
            # A bundled package may be in several releases: its first address stays.
            found.setdefault(wheel.file, (wheel, folder))
            names_of.setdefault(wheel.file, set()).update(names)
    wheels = [wheel for wheel, _ in found.values()]
    withdrawals.check(wheels)
    yanked, removed = withdrawals.yanked_files(wheels), withdrawals.removed_files(wheels)
    known = (
        (File(wheel, folder, withdrawn=yanked.get(name), removed=name in removed), names_of[name])
        for name, (wheel, folder) in found.items()
    )
    return Index(group_files(known), withdrawals.projects)


def _first_upload(catalogue: Catalogue) -> tuple[str, str]:
    return min((wheel.uploaded for wheel in catalogue.wheels), default=""), catalogue.tag


def group_files(files: Iterable[tuple[File, Iterable[str]]]) -> tuple[IndexGroup, ...]:
    """Sort files into their groups, which are given by their names."""
    ordered = sorted(files, key=lambda item: item[0].wheel.file)
    ordered.sort(key=lambda item: item[0].version, reverse=True)
    others = _others([file for file, _ in ordered])
    groups: dict[str, list[File]] = defaultdict(list)
    for file, names in ordered:
        for name in _listing(file, names, others[file]):
            groups[name].append(file)
    return tuple(_group(name, groups[name], others) for name in sorted(groups))


@dataclasses.dataclass(frozen=True)
class _Others:
    """The wheels for every torch of a file's version that run on the same machines.

    Attributes:
        kinds: their kinds.
        withdrawn: whether there are some, and each was withdrawn.
    """

    kinds: frozenset[WheelKind]
    withdrawn: bool


def _others(files: Sequence[File]) -> Mapping[File, _Others]:
    of_version: dict[tuple[str, str], list[File]] = defaultdict(list)
    for file in files:
        if file.kind and file.kind.accepts_every_torch:
            of_version[file.wheel.project, file.public].append(file)

    @functools.cache  # the wheels of a release run on few machines
    def others(project: str, public: str, machines: frozenset[str]) -> _Others:
        wide = [
            other
            for other in of_version.get((project, public), ())
            if machines <= other.machines or "any" in other.machines
        ]
        kinds = frozenset(other.kind for other in wide if other.kind)
        return _Others(kinds, bool(wide) and all(other.is_withdrawn for other in wide))

    return {file: others(file.wheel.project, file.public, file.machines) for file in files}


def _listing(file: File, groups: Iterable[str], others: _Others) -> Iterable[str]:
    """The groups that list a file.

    If all of a version is withdrawn, `==1.0.1` takes its highest local version. So a small wheel
    is then in the groups of a torch alone, whose users have a torch that it accepts.
    """
    if file.removed:
        return ()
    if not others.withdrawn:
        return groups
    return [name for name in groups if is_of_torch(name) or not _moves_torch(name, file, others)]


def _moves_torch(group: str, file: File, others: _Others) -> bool:
    """Whether pip could replace torch for a file, if the group offered it to everybody."""
    kind = file.for_some_torch
    return kind is not None and by_version_alone(group, kind, others.kinds)


def _group(name: str, files: Sequence[File], others: Mapping[File, _Others]) -> IndexGroup:
    _check_group_name(name)
    projects: dict[str, list[File]] = defaultdict(list)
    yanked: dict[File, str] = {}
    for file in files:
        projects[file.wheel.project].append(file)
        if file.withdrawn:
            yanked[file] = file.withdrawn
        elif file.for_some_torch and _moves_torch(name, file, others[file]):
            yanked[file] = file.why_by_version_alone
    return IndexGroup(name, {key: tuple(projects[key]) for key in sorted(projects)}, yanked)


def group_of_all(groups: Iterable[IndexGroup]) -> IndexGroup:
    """The wheels of all groups in one; those that need a certain torch by their version alone."""
    found: dict[str, dict[File, None]] = defaultdict(dict)
    for group in groups:
        for project, files in group.projects.items():
            found[project].update(dict.fromkeys(files))
    projects: dict[str, tuple[File, ...]] = {}
    yanked: dict[File, str] = {}
    for project, every in sorted(found.items()):
        ordered = sorted(every, key=lambda file: file.wheel.file)
        projects[project] = tuple(sorted(ordered, key=lambda file: file.version, reverse=True))
        for file in ordered:
            if file.withdrawn:
                yanked[file] = file.withdrawn
            elif file.for_some_torch:
                yanked[file] = file.why_by_version_alone
    return IndexGroup(ALL, projects, yanked)


def _check_group_name(name: str) -> None:
    parts = name.split("/")
    if parts[0] in _RESERVED or not all(_PART.fullmatch(part) for part in parts):
        raise UsageError(f"{name!r} is no name of an index group; expected e.g. cu130/torch2.11")


def all_groups(groups: Iterable[Sequence[str]]) -> tuple[str, ...]:
    """The groups of all wheels. A bundled package is in each, as every wheel may require it."""
    return tuple(sorted({name for names in groups for name in names}))
