"""Writes zip archives record by record, so that a test can make any of them lie."""

import dataclasses
import struct
import zlib
from collections.abc import Mapping, Sequence

STORED, DEFLATED = 0, 8
_LOCAL = struct.Struct("<4s5H3L2H")
_CENTRAL = struct.Struct("<4s6H3L5H2L")
_END = struct.Struct("<4s4H2LH")
_END64 = struct.Struct("<4sQ2H2L4Q")
_LOCATOR = struct.Struct("<4sLQL")


@dataclasses.dataclass(frozen=True)
class Entry:
    """A member; `local` and `central` change fields of its header and of its directory entry.

    Both may have `name`, `flags`, `method`, `crc`, `packed`, `size` and `extra`, and `central` also
    `mode` and `comment`. `raw` are its packed data, if they are not those of `data`.
    """

    name: str
    data: bytes = b""
    method: int = DEFLATED
    flags: int | None = None
    mode: int = 0
    raw: bytes | None = None
    local: Mapping[str, object] = dataclasses.field(default_factory=dict)
    central: Mapping[str, object] = dataclasses.field(default_factory=dict)
    unlisted: bool = False
    """Whether the directory leaves it out."""


def deflate(data: bytes, level: int = 6) -> bytes:
    packer = zlib.compressobj(level, zlib.DEFLATED, -zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


def zip64_extra(*sizes: int) -> bytes:
    return struct.pack(f"<2H{len(sizes)}Q", 1, 8 * len(sizes), *sizes)


def _fields(entry: Entry, packed: bytes) -> dict[str, object]:
    return {
        "name": entry.name.encode(),
        "flags": (0 if entry.name.isascii() else 0x800) if entry.flags is None else entry.flags,
        "method": entry.method,
        "crc": zlib.crc32(entry.data),
        "packed": len(packed),
        "size": len(entry.data),
        "extra": b"",
        "comment": b"",
        "mode": entry.mode,
    }


def local_header(entry: Entry, packed: bytes) -> bytes:
    f = {**_fields(entry, packed), **entry.local}
    header = _LOCAL.pack(
        *(b"PK\3\4", 20, f["flags"], f["method"], 0, 0x5A21),
        *(f["crc"], f["packed"], f["size"], len(f["name"]), len(f["extra"])),  # type: ignore[arg-type]
    )
    return header + f["name"] + f["extra"]  # type: ignore[operator]


def central_header(entry: Entry, packed: bytes, at: int) -> bytes:
    f = {**_fields(entry, packed), **entry.central}
    header = _CENTRAL.pack(
        *(b"PK\1\2", 0x0314, 20, f["flags"], f["method"], 0, 0x5A21),
        *(f["crc"], f["packed"], f["size"], len(f["name"]), len(f["extra"])),  # type: ignore[arg-type]
        *(len(f["comment"]), 0, 0, int(f["mode"]) << 16, at),  # type: ignore[arg-type, call-overload]
    )
    return header + f["name"] + f["extra"] + f["comment"]  # type: ignore[operator]


def make_zip(
    entries: Sequence[Entry],
    *,
    before: bytes = b"",
    gaps: bytes = b"",
    before_directory: bytes = b"",
    before_end: bytes = b"",
    after: bytes = b"",
    comment: bytes = b"",
    count: int | None = None,
    zip64: bool = False,
) -> bytes:
    """An archive of `entries`; the other arguments are bytes between its records, and its count."""
    body, directory = before, b""
    for entry in entries:
        packed = entry.raw
        if packed is None:
            packed = deflate(entry.data) if entry.method == DEFLATED else entry.data
        if not entry.unlisted:
            directory += central_header(entry, packed, len(body))
        body += local_header(entry, packed) + packed + gaps
    body += before_directory
    number = sum(not entry.unlisted for entry in entries) if count is None else count
    return body + directory + before_end + end(number, directory, len(body), comment, zip64) + after


def end(count: int, directory: bytes, at: int, comment: bytes = b"", zip64: bool = False) -> bytes:
    """The end records of an archive whose directory begins at byte `at`."""
    size, records = len(directory), b""
    if zip64:
        records = _END64.pack(b"PK\6\6", 44, 45, 45, 0, 0, count, count, size, at)
        records += _LOCATOR.pack(b"PK\6\7", 0, at + size, 1)
        count, size, at = 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF
    return records + _END.pack(b"PK\5\6", 0, 0, count, count, size, at, len(comment)) + comment
