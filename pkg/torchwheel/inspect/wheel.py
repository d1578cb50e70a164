"""Reads and verifies a wheel: its name, metadata, files and claims."""

import contextlib
import dataclasses
import email.parser
import email.policy
import hashlib
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from packaging.metadata import InvalidMetadata, Metadata
from packaging.tags import Tag, parse_tag
from packaging.utils import BuildTag, NormalizedName, parse_wheel_filename
from packaging.version import Version

from torchwheel.inspect.archive import Archive, Member, open_archive
from torchwheel_runtime import claims
from torchwheel_runtime.errors import TorchwheelError
from torchwheel_runtime.files import record_hash
from torchwheel_runtime.inspect import budgets
from torchwheel_runtime.inspect.wheel_files import (
    ELF_MAGIC,
    RecordEntry,
    parse_record,
    read_tags,
    require_few_tags,
)
from torchwheel_runtime.inspect.window import WheelError
from torchwheel_runtime.text import escape, join_names, quote, shorten

UNHASHED = ("RECORD", "RECORD.jws", "RECORD.p7s")
"""Files of the dist-info folder that RECORD lists without a hash, or not at all."""


def _digest(archive: Archive, member: Member) -> str:
    digest = hashlib.sha256()
    for block in archive.blocks(member):
        digest.update(block)
    return record_hash(digest.digest())


def verify_record(
    archive: Archive,
    entries: Mapping[str, RecordEntry],
    dist_info: str,
    digests: Mapping[str, str] | None = None,
) -> None:
    """Check that RECORD lists every file with its hash and size, and no other file.

    Args:
        archive: the wheel's.
        entries: those of RECORD.
        dist_info: the name of the folder that RECORD is in.
        digests: the hashes of all files, where they are known.
    """
    files = {member.name: member for member in archive.files}
    if missing := sorted(entries.keys() - files.keys()):
        raise WheelError(f"RECORD lists {missing[0]!r}, which is not in the wheel")
    for name, member in sorted(files.items()):
        if name in {f"{dist_info}/{unhashed}" for unhashed in UNHASHED}:
            continue
        entry = entries.get(name)
        if entry is None:
            raise WheelError(f"{name!r} is not listed in RECORD")
        if not entry.digest.startswith("sha256="):
            raise WheelError(f"RECORD gives {name!r} no sha256, but {quote(entry.digest)}")
        found = digests[name] if digests is not None else _digest(archive, member)
        if found != entry.digest:
            listed = escape(shorten(entry.digest))
            raise WheelError(f"{name!r} does not have RECORD's hash: {listed}, got {found}")
        if entry.size is not None and entry.size != member.size:
            raise WheelError(f"{name!r}: RECORD says {entry.size} bytes, got {member.size}")


_LONGEST_REASON = 300
_METADATA_FIELD = re.compile(rb"^[^ \t\r\n]", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Wheel:
    """A wheel whose RECORD holds. `tags` are the file name's, `wheel_tags` are WHEEL's."""

    path: Path
    name: NormalizedName
    version: Version
    tags: frozenset[Tag]
    metadata: Metadata
    metadata_bytes: bytes
    wheel_tags: frozenset[Tag]
    root_is_purelib: bool
    record: dict[str, RecordEntry]
    claims: claims.Claims | None
    members: tuple[str, ...]
    size: int
    """Bytes of the file itself."""
    build: str = ""
    """The build tag of the file name."""
    executable: tuple[str, ...] = ()
    """Files with a permission to execute."""
    entry_points: str = ""
    """The text of entry_points.txt."""
    metadata_fault: str = ""
    """What packaging's rules refuse in METADATA: not in a field that a gate reads."""


class WheelName(NamedTuple):
    """What the file name of a wheel says."""

    name: NormalizedName
    version: Version
    build: BuildTag
    tags: frozenset[Tag]


@dataclasses.dataclass(frozen=True)
class OpenWheel:
    """A wheel that was verified, and its open archive: what is extracted is what was verified."""

    wheel: Wheel
    archive: Archive

    @contextlib.contextmanager
    def extract(self) -> Iterator[Mapping[str, Path]]:
        """Extract every ELF file of the wheel, whatever its name, to a temporary folder.

        Yields the place of each by its name in the wheel.
        """
        with tempfile.TemporaryDirectory(prefix="torchwheel-") as folder:
            found: dict[str, Path] = {}
            for member in self.archive.files:
                if not self.archive.starts_with(member, ELF_MAGIC):
                    continue
                if len(found) == budgets.LIBRARIES:
                    raise WheelError(
                        f"{self.wheel.path.name}: more than {budgets.LIBRARIES} ELF files in it"
                    )
                # Each file keeps its name, and its own folder prevents a collision.
                target = Path(folder) / str(len(found)) / Path(member.name).name
                target.parent.mkdir()
                self._write(member, target)
                found[member.name] = target
            yield found

    def _write(self, member: Member, target: Path) -> None:
        """Write a member, whose bytes must have the hash of RECORD now too."""
        digest = hashlib.sha256()
        with target.open("wb") as file:
            for block in self.archive.blocks(member):
                digest.update(block)
                file.write(block)
        entry = self.wheel.record.get(member.name)
        if entry and entry.digest and entry.digest != record_hash(digest.digest()):
            raise WheelError(f"{self.wheel.path.name}: {member.name!r} was changed meanwhile")


def read_wheel(path: Path) -> Wheel:
    """Read and verify a wheel; a fault is a WheelError of one line that names it."""
    with open_wheel(path) as opened:
        return opened.wheel


@contextlib.contextmanager
def open_wheel(path: Path) -> Iterator[OpenWheel]:
    """Open a wheel, read and verify it; a fault is a WheelError of one line that names it."""
    try:
        named = parse_file_name(path.name)
    except WheelError as error:
        raise WheelError(f"{escape(path.name)}: {error}") from error
    with open_archive(path) as archive:
        try:
            wheel = _verified(path, named, archive)
        except WheelError as error:
            raise WheelError(f"{path.name}: {error}") from error
        yield OpenWheel(wheel, archive)


def _verified(path: Path, named: WheelName, archive: Archive) -> Wheel:
    members = tuple(member.name for member in archive.files)
    dist_info = find_dist_info(members)
    entries = parse_record(member_text(archive, f"{dist_info}/RECORD", budgets.RECORD_BYTES))
    verify_record(archive, entries, dist_info)
    raw = member_bytes(archive, f"{dist_info}/METADATA", budgets.METADATA_BYTES)
    wheel_file = member_text(archive, f"{dist_info}/WHEEL", budgets.WHEEL_FILE_BYTES)
    wheel_tags, purelib = parse_wheel_file(wheel_file)
    metadata, metadata_fault = parse_metadata(raw)
    return Wheel(
        path=path,
        name=named.name,
        version=named.version,
        tags=named.tags,
        metadata=metadata,
        metadata_bytes=raw,
        wheel_tags=wheel_tags,
        root_is_purelib=purelib,
        record=entries,
        claims=read_claims(archive, f"{dist_info}/{claims.FILE}"),
        members=members,
        size=path.stat().st_size,
        build="".join(map(str, named.build)),
        executable=tuple(f.name for f in archive.files if f.mode & 0o111),
        entry_points=read_entry_points(archive, f"{dist_info}/entry_points.txt"),
        metadata_fault=metadata_fault,
    )


def parse_file_name(file: str) -> WheelName:
    """What a wheel's file name says; a WheelError if it is none."""
    try:
        if not re.fullmatch(r"[\w.!+-]+", file):
            raise WheelError(f"{quote(file)} has other characters")
        require_few_tags(["-".join(file.removesuffix(".whl").split("-")[-3:])])
        return WheelName(*parse_wheel_filename(file))
    # Its subclass InvalidWheelFilename, and Python's refusal of a number with too many digits.
    except (ValueError, WheelError) as error:
        raise WheelError(f"not a wheel's file name: {error}") from error


_LIBRARY = re.compile(r"\.so(\.\d+)*$", re.ASCII)


def is_library(member: str) -> bool:
    """Whether a file has a library's name: "_C.so", "libx.so.1"."""
    return _LIBRARY.search(member) is not None


def find_dist_info(members: tuple[str, ...]) -> str:
    """The one .dist-info folder among the names of files."""
    tops = (member.split("/")[0] for member in members if "/" in member)
    found = sorted({top for top in tops if top.endswith(".dist-info")})
    if len(found) != 1:
        got = shorten(join_names(found)) or "none"
        raise WheelError(f"one .dist-info folder expected, got {got}")
    return found[0]


def member_bytes(archive: Archive, name: str, most: int) -> bytes:
    """The bytes of a member that must be there, so many at most."""
    member = archive.members.get(name)
    if member is None:
        raise WheelError(f"no {name} in it")
    if member.size > most:
        raise WheelError(f"{name} has {member.size} bytes; at most {most} expected")
    return archive.read(member)


def member_text(archive: Archive, name: str, most: int) -> str:
    """The text of a member that must be there, of so many bytes at most."""
    try:
        return member_bytes(archive, name, most).decode("utf-8")
    except UnicodeDecodeError as error:
        raise WheelError(f"{name} is not UTF-8: {error.reason} at byte {error.start}") from error


def parse_metadata(raw: bytes) -> tuple[Metadata, str]:
    """The fields of METADATA, and what is wrong with those that no gate reads.

    Published wheels have fields that newer rules refuse, e.g. a License-File in a file of version
    2.1. A WheelError says what is wrong with the fields that are read: name, version, requirements.
    """
    # A blank line ends the fields; the description follows.
    count = len(_METADATA_FIELD.findall(raw.replace(b"\r\n", b"\n").split(b"\n\n", 1)[0]))
    if count > budgets.METADATA_FIELDS:
        raise WheelError(f"METADATA has {count} fields; at most {budgets.METADATA_FIELDS} expected")
    try:
        return Metadata.from_email(raw), ""
    # packaging raises its own ExceptionGroup before Python 3.11, the built-in one after.
    except Exception as error:
        fault = _metadata_fault(error)
    try:
        lenient = Metadata.from_email(raw, validate=False)
        _ = (lenient.name, lenient.version, lenient.requires_dist, lenient.requires_python)
    except Exception as error:
        raise WheelError(f"METADATA is not valid: {fault}") from error
    return lenient, fault


def _metadata_fault(error: Exception) -> str:
    parts = getattr(error, "exceptions", (error,))
    fields = "; ".join(
        f"{part.field}: {part}" if isinstance(part, InvalidMetadata) else str(part)
        for part in parts
    )
    text = " ".join(fields.split())[:_LONGEST_REASON]
    return "".join(c if c.isprintable() else "?" for c in text)


def parse_wheel_file(text: str) -> tuple[frozenset[Tag], bool]:
    """The tags of WHEEL, and whether it says that the wheel is pure."""
    headers = email.parser.HeaderParser(policy=email.policy.compat32).parsestr(text)
    purelib = str(headers.get("Root-Is-Purelib", "")).strip().lower()
    if purelib not in ("true", "false"):
        raise WheelError(f"WHEEL: Root-Is-Purelib must be true or false, got {purelib!r}")
    tags = read_tags(headers.get_all("Tag", []))
    if not tags:
        raise WheelError("WHEEL names no Tag")
    return tags, purelib == "true"


def read_entry_points(archive: Archive, name: str) -> str:
    """The text of entry_points.txt; empty without the file."""
    return member_text(archive, name, budgets.METADATA_BYTES) if name in archive.members else ""


def read_claims(archive: Archive, name: str) -> claims.Claims | None:
    """The claims of a wheel of ours; None without the file."""
    if name not in archive.members:
        return None
    text = member_text(archive, name, budgets.METADATA_BYTES)
    try:
        return claims.loads(text, name)
    except TorchwheelError as error:
        raise WheelError(str(error)) from error


TAG = "py3-none-any"


def read_bundled(path: Path) -> Wheel:
    """Read a bundled package's wheel; raise if it has machine code or a platform tag."""
    with open_wheel(path) as opened:
        wheel = opened.wheel
        with opened.extract() as found:
            if found:
                raise TorchwheelError(
                    f"{path.name}: a bundled package is pure Python, "
                    f"but {next(iter(found))} is machine code"
                )
    for tags in (wheel.tags, wheel.wheel_tags):
        if tags != parse_tag(TAG):
            came = " ".join(sorted(map(str, tags)))
            raise TorchwheelError(f"{path.name}: a bundled package has the tag {TAG}; got {came}")
    return wheel
