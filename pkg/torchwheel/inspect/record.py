"""RECORD: the list of a wheel's files with their hashes and sizes."""

import csv
import dataclasses
import hashlib
import io
import zipfile
from collections.abc import Mapping

from torchwheel.files import record_hash
from torchwheel.inspect.errors import WheelError

UNHASHED = ("RECORD", "RECORD.jws", "RECORD.p7s")
"""Files of the dist-info folder that RECORD lists without a hash, or not at all."""


@dataclasses.dataclass(frozen=True)
class Entry:
    """One line of RECORD: the hash as `sha256=…` in URL-safe base64 without padding."""

    digest: str
    size: int | None


def parse(text: str) -> dict[str, Entry]:
    """Read RECORD's text; a bent line is a WheelError that names it."""
    entries: dict[str, Entry] = {}
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
        entries[name] = Entry(digest, int(size) if size else None)
    return entries


def _digest(archive: zipfile.ZipFile, name: str) -> str:
    digest = hashlib.sha256()
    with archive.open(name) as member:
        while block := member.read(1 << 20):
            digest.update(block)
    return record_hash(digest.digest())


def verify(archive: zipfile.ZipFile, entries: Mapping[str, Entry], dist_info: str) -> None:
    """Every file is listed with its own hash and size, and everything listed is there."""
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
