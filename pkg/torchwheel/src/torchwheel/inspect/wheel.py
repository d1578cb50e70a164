"""Reads and verifies a wheel: its name, metadata, files and claims."""

import contextlib
import dataclasses
import email.parser
import email.policy
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from packaging.metadata import InvalidMetadata, Metadata
from packaging.tags import Tag, parse_tag
from packaging.utils import BuildTag, NormalizedName, parse_wheel_filename
from packaging.version import Version

from torchwheel.inspect.archive import Archive, open_archive
from torchwheel.inspect.installed import parse_entry_points
from torchwheel.inspect.sbom import FILE as SBOM_FILE
from torchwheel.inspect.sbom import Sbom, parse_sbom
from torchwheel.inspect.zip_records import Member
from torchwheel_runtime import claims as claims_file
from torchwheel_runtime.errors import MalformedError, TorchwheelError
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
from torchwheel_runtime.variant_format import FILE as LABEL_FILE
from torchwheel_runtime.variant_format import Properties, read_labels, split_name

UNHASHED = ("RECORD", "RECORD.jws", "RECORD.p7s")
"""Files of the dist-info folder that RECORD lists without a hash, or not at all."""


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
        found = digests[name] if digests is not None else archive.digest(member)
        if found != entry.digest:
            listed = escape(shorten(entry.digest))
            raise WheelError(f"{name!r} does not have RECORD's hash: {listed}, got {found}")
        if entry.size is not None and entry.size != member.size:
            raise WheelError(f"{name!r}: RECORD says {entry.size} bytes, got {member.size}")


_LONGEST_REASON = 300
_METADATA_FIELD = re.compile(rb"^[^ \t\r\n]", re.MULTILINE)


class WheelName(NamedTuple):
    """What the file name of a wheel says."""

    name: NormalizedName
    version: Version
    build: BuildTag
    tags: frozenset[Tag]
    label: str | None = None
    """Of a labelled wheel; None for another."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PackageMetadata:
    """What a distribution says of itself, in its file name and in its dist-info folder.

    Attributes:
        members: names of its files.
        named: what the file name says; None unless it is a wheel's.
        metadata: the fields of METADATA; None if they cannot be read.
        metadata_bytes: METADATA itself.
        wheel_tags: the tags of WHEEL; None if they cannot be read.
        purelib: whether WHEEL says that it is pure; None if it cannot be read.
        record: the entries of RECORD, which hold; empty if they do not.
        claims: those of its torchwheel.json; None if it has none.
        entry_points: those of entry_points.txt, by group.
        labels: what the variant.json of a labelled wheel says, by label; None without the file.
        sbom: what its SBOM of torchwheel's says; None without the file.
        faults: what is wrong with "name", "record", "metadata", "wheel", "claims", "entry_points",
            "labels" or "sbom", by that word. Where there are fields of METADATA, the fault is in
            none that a gate reads.
    """

    members: tuple[str, ...]
    named: WheelName | None = None
    metadata: Metadata | None = None
    metadata_bytes: bytes = b""
    wheel_tags: frozenset[Tag] | None = None
    purelib: bool | None = None
    record: Mapping[str, RecordEntry] = dataclasses.field(default_factory=dict)
    claims: claims_file.Claims | None = None
    entry_points: Mapping[str, Mapping[str, str]] = dataclasses.field(default_factory=dict)
    labels: Mapping[str, Properties] | None = None
    sbom: Sbom | None = None
    faults: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Wheel(PackageMetadata):
    """A wheel whose RECORD holds and that says all it must.

    Attributes:
        path: the file.
        size: its bytes.
        executable: files with a permission to execute.
    """

    path: Path
    size: int
    named: WheelName
    metadata: Metadata
    wheel_tags: frozenset[Tag]
    purelib: bool
    executable: tuple[str, ...] = ()

    @property
    def name(self) -> NormalizedName:
        """The distribution's name, of the file name."""
        return self.named.name

    @property
    def version(self) -> Version:
        """The version, of the file name."""
        return self.named.version

    @property
    def tags(self) -> frozenset[Tag]:
        """The tags, of the file name."""
        return self.named.tags


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
        with target.open("wb") as file:
            digest = self.archive.digest(member, file)
        entry = self.wheel.record.get(member.name)
        if entry and entry.digest and entry.digest != digest:
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
            wheel = _read_and_verify(path, named, archive)
        except WheelError as error:
            raise WheelError(f"{path.name}: {error}") from error
        yield OpenWheel(wheel, archive)


def _read_and_verify(path: Path, named: WheelName, archive: Archive) -> Wheel:
    return Wheel(
        path=path,
        size=path.stat().st_size,
        executable=tuple(f.name for f in archive.files if f.mode & 0o111),
        **read_package_metadata(archive, named, Faults(strict=True)),
    )


class Faults(dict[str, str]):
    """What is malformed, by the word of the file; if `strict`, it is an error at once."""

    def __init__(self, *, strict: bool) -> None:
        super().__init__()
        self._strict = strict

    @contextlib.contextmanager
    def of(self, *words: str) -> Iterator[None]:
        """Note a WheelError as the fault of these files."""
        try:
            yield
        except WheelError as error:
            if self._strict:
                raise
            self.update(dict.fromkeys(words, str(error)))


def read_package_metadata(
    archive: Archive,
    named: WheelName | None,
    faults: Faults,
    digests: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """The fields of PackageMetadata for a wheel.

    Args:
        archive: the wheel's.
        named: what its file name says.
        faults: takes what is malformed.
        digests: the hashes of all files, where they are known.
    """
    members = tuple(member.name for member in archive.files)
    fields: dict[str, Any] = {"members": members, "named": named, "faults": faults}
    with faults.of("record", "metadata", "wheel"):
        dist_info = find_dist_info(members)
        with faults.of("record"):
            text = member_text(archive, f"{dist_info}/RECORD", budgets.RECORD_BYTES)
            entries = parse_record(text)
            verify_record(archive, entries, dist_info, digests)
            fields["record"] = entries
        with faults.of("metadata", "wheel"):
            raw = member_bytes(archive, f"{dist_info}/METADATA", budgets.METADATA_BYTES)
            wheel = member_text(archive, f"{dist_info}/WHEEL", budgets.WHEEL_FILE_BYTES)
            fields |= parse_fields(raw, wheel, faults)
        with faults.of("claims"):
            fields["claims"] = read_claims(archive, f"{dist_info}/{claims_file.FILE}")
        with faults.of("entry_points"):
            name = f"{dist_info}/entry_points.txt"
            if name in archive.members:
                text = member_text(archive, name, budgets.METADATA_BYTES)
                fields["entry_points"] = read_entry_points(text, faults)
        with faults.of("labels"):
            name = f"{dist_info}/{LABEL_FILE}"
            if name in archive.members:
                raw = member_bytes(archive, name, budgets.METADATA_BYTES)
                fields["labels"] = read_label_file(raw, name)
        with faults.of("sbom"):
            name = f"{dist_info}/{SBOM_FILE}"
            if name in archive.members:
                raw = member_bytes(archive, name, budgets.METADATA_BYTES)
                fields["sbom"] = read_sbom(raw, name)
    return fields


def read_sbom(content: str | bytes, name: str) -> Sbom:
    """What torchwheel's SBOM says; a WheelError if it is malformed."""
    try:
        return parse_sbom(content, name)
    except MalformedError as error:
        raise WheelError(str(error)) from error


def read_label_file(content: str | bytes, name: str) -> Mapping[str, Properties]:
    """What variant.json says of each label; a WheelError if it is malformed."""
    try:
        return read_labels(content, name)
    except MalformedError as error:
        raise WheelError(str(error)) from error


def parse_fields(raw: bytes, wheel: str | None, faults: Faults) -> dict[str, Any]:
    """The fields of PackageMetadata that METADATA and WHEEL have."""
    fields: dict[str, Any] = {"metadata_bytes": raw}
    if wheel is not None:
        with faults.of("wheel"):
            fields["wheel_tags"], fields["purelib"] = parse_wheel_file(wheel)
    with faults.of("metadata"):
        fields["metadata"], fault = parse_metadata(raw)
        if fault:
            faults["metadata"] = fault
    return fields


def read_entry_points(text: str, faults: Faults) -> Mapping[str, Mapping[str, str]]:
    """The entry points; malformed ones are a fault, which gate `content` alone judges."""
    try:
        return parse_entry_points(text)
    except WheelError as error:
        faults["entry_points"] = str(error)
        return {}


def parse_file_name(file: str) -> WheelName:
    """What a wheel's file name says; a WheelError if it is none."""
    try:
        if not re.fullmatch(r"[\w.!+-]+", file):
            raise WheelError(f"{quote(file)} has other characters")
        usual, label = split_name(file)
        require_few_tags(["-".join(usual.removesuffix(".whl").split("-")[-3:])])
        return WheelName(*parse_wheel_filename(usual), label)
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


def read_claims(archive: Archive, name: str) -> claims_file.Claims | None:
    """The claims of a wheel of ours; None without the file."""
    if name not in archive.members:
        return None
    text = member_text(archive, name, budgets.METADATA_BYTES)
    try:
        return claims_file.loads(text, name)
    except TorchwheelError as error:
        raise WheelError(str(error)) from error


TAG = "py3-none-any"
RUNTIME = "torchwheel-runtime"
"""The bundled package of all extensions, whether or not the index names those of its projects."""


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
