"""Reads and verifies a wheel: its name, metadata, files and claims."""

import contextlib
import csv
import dataclasses
import email.parser
import email.policy
import hashlib
import io
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from packaging.metadata import InvalidMetadata, Metadata
from packaging.tags import Tag, parse_tag
from packaging.utils import InvalidWheelFilename, NormalizedName, parse_wheel_filename
from packaging.version import Version

from torchwheel import claims
from torchwheel.errors import TorchwheelError
from torchwheel.files import record_hash
from torchwheel.inspect import archive as archives
from torchwheel.inspect.archive import WheelError

UNHASHED = ("RECORD", "RECORD.jws", "RECORD.p7s")
"""Files of the dist-info folder that RECORD lists without a hash, or not at all."""


@dataclasses.dataclass(frozen=True)
class RecordEntry:
    """A line of RECORD; the hash is `sha256=…` in URL-safe base64 without padding."""

    digest: str
    size: int | None


def parse_record(text: str) -> dict[str, RecordEntry]:
    """Read RECORD's text; a malformed line is a WheelError that names it."""
    entries: dict[str, RecordEntry] = {}
    try:
        rows = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    except csv.Error as error:
        raise WheelError(f"RECORD is not CSV: {error}") from error
    for number, row in enumerate(rows, 1):
        if not row:
            continue
        if len(row) != 3:
            raise WheelError(f"RECORD line {number}: 3 fields expected, got {len(row)}")
        name, digest, size = row
        if name in entries:
            raise WheelError(f"RECORD line {number}: {name!r} is listed twice")
        if size and not (size.isascii() and size.isdigit()):
            raise WheelError(f"RECORD line {number}: {size!r} is not a size")
        entries[name] = RecordEntry(digest, int(size) if size else None)
    return entries


def _digest(archive: zipfile.ZipFile, name: str) -> str:
    digest = hashlib.sha256()
    with archive.open(name) as member:
        while block := member.read(1 << 20):
            digest.update(block)
    return record_hash(digest.digest())


def verify_record(
    archive: zipfile.ZipFile, entries: Mapping[str, RecordEntry], dist_info: str
) -> None:
    """Check that RECORD lists every file with its hash and size, and no other file."""
    files = {info.filename: info for info in archive.infolist() if not info.is_dir()}
    if missing := sorted(entries.keys() - files.keys()):
        raise WheelError(f"RECORD lists {missing[0]!r}, which is not in the wheel")
    for name, info in sorted(files.items()):
        if name in {f"{dist_info}/{unhashed}" for unhashed in UNHASHED}:
            continue
        entry = entries.get(name)
        if entry is None:
            raise WheelError(f"{name!r} is not listed in RECORD")
        if not entry.digest.startswith("sha256="):
            raise WheelError(f"RECORD gives {name!r} no sha256, but {entry.digest!r}")
        if (found := _digest(archive, name)) != entry.digest:
            raise WheelError(f"{name!r} does not have RECORD's hash: {entry.digest}, got {found}")
        if entry.size is not None and entry.size != info.file_size:
            raise WheelError(f"{name!r}: RECORD says {entry.size} bytes, got {info.file_size}")


ELF_MAGIC = b"\x7fELF"
MAX_TEXT = 16 << 20
"""The limit of METADATA, WHEEL and RECORD, which are read at once."""


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


@dataclasses.dataclass(frozen=True)
class ExtractedFile:
    """A shared library (or other ELF file) of a wheel, written out to be read."""

    member: str
    path: Path


def read_wheel(path: Path) -> Wheel:
    """Read and verify a wheel; a fault is a WheelError of one line that names it."""
    try:
        name, version, _, tags = parse_wheel_filename(path.name)
    except InvalidWheelFilename as error:
        raise WheelError(f"{path.name}: not a wheel's file name: {error}") from error
    with archives.open_archive(path) as archive:
        members = tuple(info.filename for info in archive.infolist() if not info.is_dir())
        try:
            dist_info = _dist_info(members)
            entries = parse_record(_text(archive, f"{dist_info}/RECORD"))
            verify_record(archive, entries, dist_info)
            raw = _bytes(archive, f"{dist_info}/METADATA")
            wheel_tags, purelib = _wheel_file(_text(archive, f"{dist_info}/WHEEL"))
            return Wheel(
                path=path,
                name=name,
                version=version,
                tags=tags,
                metadata=_metadata(raw),
                metadata_bytes=raw,
                wheel_tags=wheel_tags,
                root_is_purelib=purelib,
                record=entries,
                claims=_claims(archive, f"{dist_info}/{claims.FILE}"),
                members=members,
                size=path.stat().st_size,
            )
        except WheelError as error:
            raise WheelError(f"{path.name}: {error}") from error


@contextlib.contextmanager
def extract(wheel: Wheel) -> Iterator[tuple[ExtractedFile, ...]]:
    """Extract every ELF file of the wheel, whatever its name, to a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="torchwheel-") as folder:
        found: list[ExtractedFile] = []
        with archives.open_archive(wheel.path) as archive:
            for member in wheel.members:
                with archive.open(member) as source:
                    if source.read(4) != ELF_MAGIC:
                        continue
                # Each file keeps its name, and its own folder prevents a collision.
                target = Path(folder) / str(len(found)) / Path(member).name
                target.parent.mkdir()
                with archive.open(member) as source, target.open("wb") as file:
                    while block := source.read(1 << 20):
                        file.write(block)
                found.append(ExtractedFile(member, target))
        yield tuple(found)


def _dist_info(members: tuple[str, ...]) -> str:
    tops = (member.split("/")[0] for member in members if "/" in member)
    found = sorted({top for top in tops if top.endswith(".dist-info")})
    if len(found) != 1:
        raise WheelError(f"one .dist-info folder expected, got {', '.join(found) or 'none'}")
    return found[0]


def _bytes(archive: zipfile.ZipFile, name: str) -> bytes:
    try:
        info = archive.getinfo(name)
    except KeyError:
        raise WheelError(f"no {name} in it") from None
    if info.file_size > MAX_TEXT:
        raise WheelError(f"{name} has {info.file_size} bytes; at most {MAX_TEXT} expected")
    return archive.read(name)


def _text(archive: zipfile.ZipFile, name: str) -> str:
    try:
        return _bytes(archive, name).decode("utf-8")
    except UnicodeDecodeError as error:
        raise WheelError(f"{name} is not UTF-8: {error.reason} at byte {error.start}") from error


def _metadata(raw: bytes) -> Metadata:
    try:
        return Metadata.from_email(raw)
    # packaging raises its own ExceptionGroup before Python 3.11, the built-in one after.
    except Exception as error:
        parts = getattr(error, "exceptions", (error,))
        fields = "; ".join(
            f"{part.field}: {part}" if isinstance(part, InvalidMetadata) else str(part)
            for part in parts
        )
        raise WheelError(f"METADATA is not valid: {' '.join(fields.split())}") from error


def _wheel_file(text: str) -> tuple[frozenset[Tag], bool]:
    headers = email.parser.HeaderParser(policy=email.policy.compat32).parsestr(text)
    purelib = str(headers.get("Root-Is-Purelib", "")).strip().lower()
    if purelib not in ("true", "false"):
        raise WheelError(f"WHEEL: Root-Is-Purelib must be true or false, got {purelib!r}")
    tags: set[Tag] = set()
    for value in headers.get_all("Tag", []):
        try:
            tags |= parse_tag(str(value).strip())
        except ValueError as error:
            raise WheelError(f"WHEEL: {value!r} is not a tag") from error
    if not tags:
        raise WheelError("WHEEL names no Tag")
    return frozenset(tags), purelib == "true"


def _claims(archive: zipfile.ZipFile, name: str) -> claims.Claims | None:
    if name not in archive.namelist():
        return None
    text = _text(archive, name)
    try:
        return claims.loads(text, name)
    except TorchwheelError as error:
        raise WheelError(str(error)) from error


TAG = "py3-none-any"


def read_bundled(path: Path) -> Wheel:
    """Read a bundled package's wheel; raise if it has machine code or a platform tag."""
    wheel = read_wheel(path)
    with extract(wheel) as found:
        if found:
            raise TorchwheelError(
                f"{path.name}: a bundled package is pure Python, "
                f"but {found[0].member} is machine code"
            )
    for tags in (wheel.tags, wheel.wheel_tags):
        if tags != parse_tag(TAG):
            came = " ".join(sorted(map(str, tags)))
            raise TorchwheelError(f"{path.name}: a bundled package has the tag {TAG}; got {came}")
    return wheel
