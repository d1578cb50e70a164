"""Reads a wheel, an installed package or a library of anybody, and tells what is malformed in it.

A wheel of ours must be right to be read at all (`wheel.py`). Here a fault of RECORD, METADATA or
WHEEL is a fact among others. Every file is unpacked once, by two threads: its hash is taken and, if
it is a library, its facts are read.
"""

import concurrent.futures
import dataclasses
import importlib.machinery
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from torchwheel.inspect.archive import Archive, open_archive
from torchwheel.inspect.installed import is_outside, runs_at_start
from torchwheel.inspect.library_facts import LibraryFacts, ReadBudget, read_facts_of_library
from torchwheel.inspect.wheel import (
    Faults,
    PackageMetadata,
    parse_fields,
    parse_file_name,
    read_entry_points,
    read_label_file,
    read_package_metadata,
)
from torchwheel.inspect.zip_records import Member
from torchwheel_runtime.doctor import dist_info
from torchwheel_runtime.errors import UsageError
from torchwheel_runtime.inspect import budgets
from torchwheel_runtime.inspect.wheel_files import ELF_MAGIC
from torchwheel_runtime.inspect.window import WheelError, open_regular
from torchwheel_runtime.text import escape, nearest, quote
from torchwheel_runtime.variant_format import FILE as LABEL_FILE
from torchwheel_runtime.variant_format import Properties

_THREADS = 2


@dataclasses.dataclass(frozen=True, kw_only=True)
class Inspection(PackageMetadata):
    """The facts of a wheel, an installed package or a library.

    Attributes:
        title: the name of the file, or name and version of the package.
        kind: "wheel", "package" or "library".
        size: bytes of the file; of a package, those of its files.
        unpacked: bytes of its files.
        libraries: the facts of each library, in the order of the file.
    """

    title: str
    kind: Literal["wheel", "package", "library"]
    size: int
    unpacked: int
    libraries: tuple[LibraryFacts, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The names that it installs beside other packages, without dist-info's."""
        files = () if self.kind == "library" else self.members
        tops = {name.partition("/")[0] for name in files if not is_outside(name)}
        return tuple(sorted(top for top in tops if not top.endswith(".dist-info")))

    @property
    def at_start(self) -> tuple[str, ...]:
        """What runs whenever Python starts: files, or folders of a module."""
        return tuple(sorted({_place(name) for name in self.members if runs_at_start(name)}))

    @property
    def outside(self) -> tuple[str, ...]:
        """What goes to other folders than the packages': scripts, data, headers."""
        return tuple(sorted({_place(name) for name in self.members if is_outside(name)}))

    @property
    def grafted(self) -> tuple[LibraryFacts, ...]:
        """Libraries in a folder NAME.libs, where auditwheel puts copies of others' libraries."""
        return tuple(library for library in self.libraries if in_libs_folder(library.name))


def in_libs_folder(name: str) -> bool:
    """Whether a file is in a folder NAME.libs."""
    return any(part.endswith(".libs") for part in name.split("/")[:-1])


def _place(member: str) -> str:
    """A file, or the folder that stands for its files, e.g. "x.data/purelib/sitecustomize"."""
    if member.startswith(("/", "../")):
        return member
    return "/".join(member.split("/")[: 3 if is_outside(member) else 1])


def inspect(subject: str) -> Inspection:
    """Read a file, or the installed package of that name.

    Raises:
        UsageError: there is neither.
        WheelError: the file is no archive or library that can be read within the budget.
    """
    path = Path(subject)
    if path.exists():
        with open_regular(path) as file:
            start = file.read(len(ELF_MAGIC))
        return inspect_library(path) if start == ELF_MAGIC else inspect_wheel(path)
    return inspect_package(subject)


def inspect_library(path: Path) -> Inspection:
    """Read one library."""
    facts = read_facts_of_library(path, path.name, ReadBudget())
    return Inspection(
        title=path.name,
        kind="library",
        size=facts.size,
        unpacked=facts.size,
        members=(path.name,),
        libraries=(facts,),
    )


def inspect_package(name: str) -> Inspection:
    """Read an installed package by the name of its distribution, or of a module of it."""
    folders = dist_info.dist_infos()
    if not (found := dist_info.find_distribution(name, folders)):
        if place := _place_of_module(name):
            raise UsageError(
                f"{quote(name)}: expected the metadata of a package, found {escape(place)} alone, "
                "which nothing says anything of: not judged; name its libraries one by one"
            )
        known = sorted(set(map(dist_info.name_key, folders)))
        advice = nearest(name.lower(), known, "`pip list` names them")
        raise UsageError(
            f"{quote(name)}: expected a file, or a package of this Python, found neither; {advice}"
        )
    folder = found[0]
    if folder.suffix == ".egg":  # a zip file
        return inspect_wheel(folder)
    info = dist_info.read_dist_info(folder)
    if dist_info.is_editable(folder):
        raise UsageError(
            f"{info.name}: expected a package with its files, found an editable installation of a "
            "source tree: not judged; name its libraries one by one"
        )
    if info.irregular:
        raise WheelError(
            f"{info.irregular[0]}: expected a file, found a pipe or a device; "
            f"{dist_info.replace_command(folder)}"
        )
    budget = ReadBudget()
    files = {str(file): folder.parent / file for file in info.files}
    sizes = {name: path.stat().st_size for name, path in files.items() if path.is_file()}
    libraries: list[LibraryFacts] = []
    for member in sizes:
        with open_regular(files[member]) as file:
            if file.read(len(ELF_MAGIC)) != ELF_MAGIC:
                continue
        if len(libraries) == budgets.LIBRARIES:
            raise WheelError(f"{name}: more than {budgets.LIBRARIES} ELF files in it")
        libraries.append(read_facts_of_library(files[member], member, budget))
    faults = Faults(strict=False)
    raw = dist_info.read_metadata(folder).encode()[: budgets.METADATA_BYTES]
    text = (dist_info.read_text(folder, "entry_points.txt") or "")[: budgets.METADATA_BYTES]
    labels: Mapping[str, Properties] | None = None
    if label_file := dist_info.read_text(folder, LABEL_FILE):
        with faults.of("labels"):
            labels = read_label_file(label_file, LABEL_FILE)
    return Inspection(
        title=f"{info.name} {info.version}",
        kind="package",
        size=sum(sizes.values()),
        unpacked=sum(sizes.values()),
        members=tuple(sizes),
        libraries=tuple(libraries),
        entry_points=read_entry_points(text, faults),
        labels=labels,
        faults=faults,
        **parse_fields(raw, dist_info.read_text(folder, "WHEEL"), faults),
    )


def _place_of_module(name: str) -> str | None:
    """Where Python finds a module that no metadata names; nothing of it is imported."""
    top = name.partition(".")[0]
    spec = importlib.machinery.PathFinder.find_spec(top) if top.isidentifier() else None
    folders = (spec.submodule_search_locations if spec else None) or ()
    return next(iter(folders), spec.origin if spec else None)


def inspect_wheel(path: Path) -> Inspection:
    """Read a wheel."""
    faults, named = Faults(strict=False), None
    with open_archive(path) as archive:
        try:
            digests, libraries = _read_members(archive)
        except WheelError as error:
            raise WheelError(f"{escape(path.name)}: {error}") from error
        with faults.of("name"):
            named = parse_file_name(path.name)
        return Inspection(
            title=path.name,
            kind="wheel",
            size=path.stat().st_size,
            unpacked=sum(member.size for member in archive.files),
            libraries=libraries,
            **read_package_metadata(archive, named, faults, digests),
        )


def _read_members(archive: Archive) -> tuple[dict[str, str], tuple[LibraryFacts, ...]]:
    """The hash of every file, and the facts of each library; the largest file goes first."""
    files = sorted(archive.files, key=lambda member: -member.size)
    budget = ReadBudget()
    with (
        tempfile.TemporaryDirectory(prefix="torchwheel-") as folder,
        concurrent.futures.ThreadPoolExecutor(_THREADS) as pool,
    ):
        jobs = {
            member.name: pool.submit(
                _read_member, archive, member, Path(folder, str(number)), budget
            )
            for number, member in enumerate(files)
        }
        try:
            results = {name: job.result() for name, job in jobs.items()}
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    digests = {name: digest for name, (digest, _) in results.items()}
    ordered = (results[member.name][1] for member in archive.files)
    libraries = tuple(facts for facts in ordered if facts is not None)
    if len(libraries) > budgets.LIBRARIES:
        raise WheelError(f"more than {budgets.LIBRARIES} ELF files in it")
    return digests, libraries


def _read_member(
    archive: Archive, member: Member, file: Path, budget: ReadBudget
) -> tuple[str, LibraryFacts | None]:
    """The hash of a file and, if it is a library, its facts."""
    budget.cpu.check()
    if not archive.starts_with(member, ELF_MAGIC):
        return archive.digest(member), None
    try:
        with file.open("wb") as opened:
            digest = archive.digest(member, opened)
        return digest, read_facts_of_library(file, member.name, budget)
    finally:
        file.unlink(missing_ok=True)
