"""Reads a wheel, an installed package or a library of anybody, and tells what is malformed in it.

A wheel of ours must be right to be read at all (`wheel.py`). Here a fault of RECORD, METADATA or
WHEEL is a fact among others. Every file is unpacked once, by two threads: its hash is taken and, if
it is a library, its facts are read.
"""

import concurrent.futures
import contextlib
import dataclasses
import hashlib
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from packaging.metadata import Metadata
from packaging.tags import Tag

from torchwheel.inspect.archive import Archive, Member, open_archive
from torchwheel.inspect.installed import is_outside, parse_entry_points, runs_at_start
from torchwheel.inspect.library_facts import LibraryFacts, ReadBudget, read_facts_of_library
from torchwheel.inspect.wheel import (
    WheelName,
    find_dist_info,
    member_bytes,
    member_text,
    parse_file_name,
    parse_metadata,
    parse_wheel_file,
    read_claims,
    read_entry_points,
    verify_record,
)
from torchwheel_runtime.claims import FILE as CLAIMS_FILE
from torchwheel_runtime.claims import Claims
from torchwheel_runtime.doctor.dist_info import (
    dist_infos,
    find_distribution,
    name_key,
    read_dist_info,
    read_metadata,
    read_text,
    replace_command,
)
from torchwheel_runtime.errors import UsageError
from torchwheel_runtime.files import record_hash
from torchwheel_runtime.inspect import budgets
from torchwheel_runtime.inspect.wheel_files import ELF_MAGIC, parse_record
from torchwheel_runtime.inspect.window import WheelError, open_regular
from torchwheel_runtime.text import escape, nearest, quote

_ZIP_MAGIC = b"PK\3\4"
_THREADS = 2


@dataclasses.dataclass(frozen=True)
class Inspection:
    """The facts of a wheel, an installed package or a library.

    Attributes:
        title: the name of the file, or name and version of the package.
        kind: "wheel", "package" or "library".
        size: bytes of the file; of a package, those of its files.
        unpacked: bytes of its files.
        members: names of its files.
        libraries: the facts of each library, in the order of the file.
        named: what the file name says; None unless it is a wheel's.
        metadata: the fields of METADATA; None if they cannot be read.
        wheel_tags: the tags of WHEEL; None if they cannot be read.
        purelib: whether WHEEL says that it is pure; None if it cannot be read.
        claims: those of its torchwheel.json; None if it has none.
        entry_points: those of entry_points.txt, by group.
        faults: what is wrong with "name", "record", "metadata", "wheel", "claims" or
            "entry_points", by that word.
    """

    title: str
    kind: str
    size: int
    unpacked: int
    members: tuple[str, ...]
    libraries: tuple[LibraryFacts, ...]
    named: WheelName | None = None
    metadata: Metadata | None = None
    wheel_tags: frozenset[Tag] | None = None
    purelib: bool | None = None
    claims: Claims | None = None
    entry_points: Mapping[str, Mapping[str, str]] = dataclasses.field(default_factory=dict)
    faults: Mapping[str, str] = dataclasses.field(default_factory=dict)

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
        return tuple(
            library
            for library in self.libraries
            if any(part.endswith(".libs") for part in library.name.split("/")[:-1])
        )


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
    return Inspection(path.name, "library", facts.size, facts.size, (path.name,), (facts,))


def inspect_package(name: str) -> Inspection:
    """Read an installed package by the name of its distribution, or of a module of it."""
    folders = dist_infos()
    if not (found := find_distribution(name, folders)):
        advice = nearest(name.lower(), sorted(set(map(name_key, folders))))
        raise UsageError(
            f"{quote(name)}: expected a file, or a package of this Python, found neither; {advice}"
        )
    folder = found[0]
    if folder.suffix == ".egg":  # a zip file
        return inspect_wheel(folder)
    info = read_dist_info(folder)
    if info.irregular:
        raise WheelError(
            f"{info.irregular[0]}: expected a file, found a pipe or a device; "
            f"{replace_command(folder)}"
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
    total = sum(sizes.values())
    faults: dict[str, str] = {}
    raw = read_metadata(folder).encode()[: budgets.METADATA_BYTES]
    fields = _fields_of(raw, read_text(folder, "WHEEL"), faults)
    with _faults_of(faults, "entry_points"):
        text = read_text(folder, "entry_points.txt") or ""
        fields["entry_points"] = parse_entry_points(text[: budgets.METADATA_BYTES])
    members, read = tuple(sizes), tuple(libraries)
    title = f"{info.name} {info.version}"
    return Inspection(title, "package", total, total, members, read, faults=faults, **fields)


def inspect_wheel(path: Path) -> Inspection:
    """Read a wheel."""
    faults: dict[str, str] = {}
    with open_archive(path) as archive:
        try:
            digests, libraries = _read_members(archive)
        except WheelError as error:
            raise WheelError(f"{escape(path.name)}: {error}") from error
        size, unpacked = path.stat().st_size, sum(member.size for member in archive.files)
        members = tuple(member.name for member in archive.files)
        fields: dict[str, Any] = {}
        with _faults_of(faults, "name"):
            fields["named"] = parse_file_name(path.name)
        with _faults_of(faults, "record", "metadata", "wheel"):
            dist_info = find_dist_info(members)
            with _faults_of(faults, "record"):
                text = member_text(archive, f"{dist_info}/RECORD", budgets.RECORD_BYTES)
                verify_record(archive, parse_record(text), dist_info, digests)
            with _faults_of(faults, "claims"):
                fields["claims"] = read_claims(archive, f"{dist_info}/{CLAIMS_FILE}")
            with _faults_of(faults, "entry_points"):
                text = read_entry_points(archive, f"{dist_info}/entry_points.txt")
                fields["entry_points"] = parse_entry_points(text)
            with _faults_of(faults, "metadata", "wheel"):
                raw = member_bytes(archive, f"{dist_info}/METADATA", budgets.METADATA_BYTES)
                wheel = member_text(archive, f"{dist_info}/WHEEL", budgets.WHEEL_FILE_BYTES)
                fields |= _fields_of(raw, wheel, faults)
    return Inspection(
        path.name, "wheel", size, unpacked, members, libraries, faults=faults, **fields
    )


@contextlib.contextmanager
def _faults_of(faults: dict[str, str], *names: str) -> Iterator[None]:
    """Turn what is malformed into the fault of these files."""
    try:
        yield
    except WheelError as error:
        faults.update(dict.fromkeys(names, str(error)))


def _fields_of(raw: bytes, wheel: str | None, faults: dict[str, str]) -> dict[str, Any]:
    """The facts of METADATA and WHEEL."""
    fields: dict[str, Any] = {}
    with _faults_of(faults, "metadata"):
        fields["metadata"], fault = parse_metadata(raw)
        if fault:
            faults["metadata"] = fault
    if wheel is not None:
        with _faults_of(faults, "wheel"):
            fields["wheel_tags"], fields["purelib"] = parse_wheel_file(wheel)
    return fields


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
    digest = hashlib.sha256()
    is_library = archive.starts_with(member, ELF_MAGIC)
    try:
        with _opened(file, is_library) as write:
            for block in archive.blocks(member):
                digest.update(block)
                write(block)
        facts = read_facts_of_library(file, member.name, budget) if is_library else None
    finally:
        file.unlink(missing_ok=True)
    return record_hash(digest.digest()), facts


@contextlib.contextmanager
def _opened(file: Path, wanted: bool) -> Iterator[Callable[[bytes], object]]:
    """What writes to the file; if it is not wanted, what does nothing."""
    if not wanted:
        yield lambda _: None
        return
    with file.open("wb") as opened:
        yield opened.write
