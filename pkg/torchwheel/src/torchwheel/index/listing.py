"""The contents of an index as data: files, projects, groups, and the store that has the files."""

import dataclasses
import datetime
import functools
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import quote

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from torchwheel.index.catalogue import Catalogue, CatalogueWheel, check_published
from torchwheel.index.groups import (
    CPU,
    WheelKind,
    by_version_alone,
    groups_of_releases,
    is_of_torch,
    kind_of,
)
from torchwheel.index.needs import ALL, note_text
from torchwheel.index.withdrawals import ProjectStatus, Withdrawals
from torchwheel_runtime.arch.releases import ToolkitRelease
from torchwheel_runtime.errors import UsageError
from torchwheel_runtime.text import quote as quote_text
from torchwheel_runtime.variant_format import (
    Properties,
    file_text,
    index_file_name,
    properties_of,
)
from torchwheel_runtime.versions import version_numbers

TAG = "{tag}"
_ADDRESS = re.compile(r"[A-Za-z0-9._~:/@!$&'()*+,;=%-]+")


@dataclasses.dataclass(frozen=True)
class Store:
    """A store, by the address of a release's folder in it.

    Attributes:
        address: `{tag}` stands for the release's tag, e.g. "https://HOST/releases/{tag}". Without
            a scheme and a leading slash it is relative to the index's root.
    """

    address: str

    def __post_init__(self) -> None:
        if not _ADDRESS.fullmatch(self.address.replace(TAG, "")):
            raise UsageError(
                f'--address: expected e.g. "https://HOST/releases/{TAG}", '
                f"found {quote_text(self.address)}; only {TAG} can be in braces"
            )

    def folder(self, tag: str) -> str:
        """The address of the folder with the files of a release, without a slash at its end."""
        return self.address.replace(TAG, quote(tag)).rstrip("/")


def store_of(address: str | None, environment: Mapping[str, str]) -> Store:
    """The store at an address; without one, the release assets of the forge that runs this job."""
    if address is not None:
        return Store(address)
    server, repository = (
        environment.get(f"GITHUB_{name}") for name in ("SERVER_URL", "REPOSITORY")
    )
    if not server or not repository:
        raise UsageError(
            f"--address: expected the address of a release's files, found none; "
            f"name it, e.g. https://HOST/releases/{TAG}"
        )
    return Store(f"{server}/{repository}/releases/download/{TAG}")


def is_absolute(address: str) -> bool:
    """Whether an address is the same from every page of an index."""
    return address.startswith("/") or "://" in address


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
        return _parse(self.wheel.version)

    @property
    def public(self) -> str:
        """Its version without the local part."""
        return self.wheel.version.partition("+")[0]  # it is normalised: a catalogue is held to that

    @property
    def machines(self) -> frozenset[str]:
        """The machines of its platform tags: "x86_64", "any"."""
        return _machines(self.wheel.tags)

    @property
    def note(self) -> str:
        """The note that `torchwheel install` goes by, as JSON; empty for a bundled package."""
        claims = self.wheel.claims
        return note_text(claims, self.withdrawn is not None) if claims else ""

    @functools.cached_property
    def is_absolute(self) -> bool:
        """Whether its address is the same from every page."""
        return is_absolute(self.folder)

    @property
    def address(self) -> str:
        """Its own address: the `+` of a local version is %2B in it."""
        return f"{self.folder}/{_quote_name(self.wheel.file)}"

    @functools.cached_property
    def kind(self) -> WheelKind | None:
        """What decides its groups; None of a bundled package."""
        return kind_of(self.wheel.claims) if self.wheel.claims else None

    @property
    def label(self) -> str | None:
        """Its label, if it is a labelled wheel."""
        return self.wheel.claims.label if self.wheel.claims else None

    @property
    def toolkits(self) -> list[str]:
        """The toolkits of its GPU code, CUDA before ROCm and the newest first: "cu130", "cu124"."""
        kernels = self.kind.kernels if self.kind else ()
        releases = [ToolkitRelease(backend, version) for backend, version in kernels if backend]
        releases.sort(key=lambda one: version_numbers(one.version), reverse=True)
        return [one.name for one in sorted(releases, key=lambda one: one.backend)]

    @functools.cached_property
    def why_by_version_alone(self) -> str:
        """Why a group offers it by its version alone, if it does."""
        wheel = self.wheel
        return (
            f"it needs torch{wheel.claims.torch_range if wheel.claims else ''}, and pip would "
            f"replace another; name its version to install it: {wheel.project}=={wheel.version}"
        )

    @property
    def provenance(self) -> str | None:
        """The address of its PEP 740 provenance."""
        name = self.wheel.provenance
        # The PEP wants a secure origin, so a store beside the index has none.
        secure = self.folder.startswith("https://")
        return f"{self.folder}/{_quote_name(name)}" if name and secure else None


def label_files(files: Iterable[File]) -> Mapping[str, tuple[str, str]]:
    """For each release with labelled wheels the file that names their properties.

    By its name: the text, and when the last of the wheels was published.

    Raises:
        UsageError: two wheels of a release have one label and other properties.
    """
    found: dict[str, dict[str, Properties]] = defaultdict(dict)
    times: dict[str, str] = {}
    for file in files:
        claims = file.wheel.claims
        if claims and claims.label:
            name = index_file_name(file.wheel.file)
            properties = properties_of(claims)
            if found[name].setdefault(claims.label, properties) != properties:
                raise UsageError(
                    f"{file.wheel.file}: expected the properties that other wheels of {name} have "
                    f"with the label {claims.label}, found others; withdraw one of them"
                )
            times[name] = max(times.get(name, ""), file.wheel.uploaded)
    return {name: (file_text(labels), times[name]) for name, labels in found.items()}


# Many wheels have the same version, or the same tags.
_parse = functools.lru_cache(maxsize=10_000)(Version)


@functools.lru_cache(maxsize=10_000)
def _machines(tags: tuple[str, ...]) -> frozenset[str]:
    return frozenset(_PLATFORM.sub("", tag.split("-")[2]) for tag in tags)


def _quote_name(name: str) -> str:
    """The same as `quote(name)`, which is slow for a name with a `+`."""
    return quote(name, safe="+").replace("+", "%2B")


@dataclasses.dataclass(frozen=True)
class IndexGroup:
    """One index that pip can use: the files of each project, the newest version first."""

    name: str
    projects: Mapping[str, tuple[File, ...]]
    yanked: Mapping[File, str]
    """Why a file is offered to those who name its version, and to no others."""

    def missing(self, file: File) -> tuple[str, ...]:
        """What a file of it requires, and neither it nor torch brings, e.g. ("einops>=0.7",)."""
        queue, seen, found = [file], {"torch"}, []
        while queue:
            for text in queue.pop().wheel.requires:
                if (name := canonicalize_name(Requirement(text).name)) not in seen:
                    seen.add(name)
                    queue += self.projects.get(name, ())[:1]
                    found += [text] if name not in self.projects else []
        return tuple(sorted(found))


@dataclasses.dataclass(frozen=True)
class Index:
    """An index as data.

    Attributes:
        groups: by their names.
        whole: the wheels of all groups; those that need a certain torch by their version alone.
        statuses: the states of projects that are not active.
    """

    groups: tuple[IndexGroup, ...]
    whole: IndexGroup
    statuses: Mapping[str, ProjectStatus] = dataclasses.field(default_factory=dict)

    def group_for(self, file: File) -> IndexGroup:
        """The group to install a file from: of its newest toolkit; `cpu` without GPU code."""
        project = file.wheel.project
        groups = [group for group in self.groups if file in group.projects.get(project, ())]
        own = [*file.toolkits, CPU]
        # Only a toolkit that no torch was published for has no group of its own.
        return min(groups, key=lambda g: own.index(g.name) if g.name in own else len(own))

    def quarantined(self, project: str) -> bool:
        """Whether nothing of a project is offered."""
        return project in self.statuses and self.statuses[project].state == "quarantined"


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
    names_of: dict[str, tuple[str, ...]] = {}
    for release, of_each in zip(releases, groups, strict=True):
        folder, own = store.folder(release.tag), iter(of_each)
        for wheel in release.wheels:
            names = next(own) if wheel.claims else every
            # A bundled package may be in several releases: its first address stays.
            found.setdefault(wheel.file, (wheel, folder))
            if names_of.setdefault(wheel.file, names) != names:
                names_of[wheel.file] = all_groups((names_of[wheel.file], names))
    wheels = [wheel for wheel, _ in found.values()]
    withdrawals.check(wheels)
    yanked, removed = withdrawals.yanked_files(wheels), withdrawals.removed_files(wheels)
    known = (
        (File(wheel, folder, withdrawn=yanked.get(name), removed=name in removed), names_of[name])
        for name, (wheel, folder) in found.items()
    )
    return index_files(known, withdrawals.projects)


def _first_upload(catalogue: Catalogue) -> tuple[str, str]:
    return min((wheel.uploaded for wheel in catalogue.wheels), default=""), catalogue.tag


def index_files(
    files: Iterable[tuple[File, tuple[str, ...]]],
    statuses: Mapping[str, ProjectStatus] | None = None,
) -> Index:
    """Sort files into their groups, which are given by their names."""
    ordered = sorted(files, key=lambda item: item[0].wheel.file)
    ordered.sort(key=lambda item: item[0].version, reverse=True)
    for name in set().union(*(names for _, names in ordered)):
        _check_group_name(name)
    others = _others([file for file, _ in ordered])
    projects: dict[str, dict[str, list[File]]] = defaultdict(lambda: defaultdict(list))
    yanked: dict[str, dict[File, str]] = defaultdict(dict)
    for file, names in ordered:
        if file.removed:
            continue
        for name, alone in _offers(names, file.kind, others[file]):
            projects[name][file.wheel.project].append(file)
            if alone or file.withdrawn:
                yanked[name][file] = file.withdrawn or file.why_by_version_alone

    def group(name: str) -> IndexGroup:
        listed = {project: tuple(of) for project, of in sorted(projects[name].items())}
        return IndexGroup(name, listed, yanked[name])

    groups = tuple(map(group, sorted(projects.keys() - {ALL})))
    return Index(groups, group(ALL), statuses or {})


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
        # pip takes no labelled wheel in the place of another.
        if file.kind and file.kind.accepts_every_torch and not file.label:
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


@functools.lru_cache(maxsize=10_000)  # the wheels of each release are of the same kinds
def _offers(
    groups: tuple[str, ...], kind: WheelKind | None, others: _Others
) -> tuple[tuple[str, bool], ...]:
    """The groups that list a file, each with whether it offers it by its version alone.

    If all of a version is withdrawn, `==1.0.1` takes its highest local version. So a small wheel
    is then in the groups of a torch alone, whose users have a torch that it accepts.
    """
    alone = {
        name: kind is not None and by_version_alone(name, kind, others.kinds) for name in groups
    }
    if others.withdrawn:
        alone = {name: moves for name, moves in alone.items() if is_of_torch(name) or not moves}
    if alone:
        alone[ALL] = kind is not None and not kind.accepts_every_torch
    return tuple(alone.items())


def _check_group_name(name: str) -> None:
    parts = name.split("/")
    if parts[0] in _RESERVED or not all(_PART.fullmatch(part) for part in parts):
        raise UsageError(f"{name!r} is no name of an index group; expected e.g. cu130/torch2.11")


def all_groups(groups: Iterable[Sequence[str]]) -> tuple[str, ...]:
    """The groups of all wheels. A bundled package is in each, as every wheel may require it."""
    return tuple(sorted({name for names in groups for name in names}))
