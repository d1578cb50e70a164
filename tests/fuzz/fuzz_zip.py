"""Writes wheels whose zip records can be wrong in any field, and changes wheels at random."""

import dataclasses
import io
import random
import struct
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Any

from fuzz_mutations import NUMBERS, mutate_bytes, mutate_json, mutate_numbers, mutate_text, some

from torchwheel.files import record_hash


@dataclasses.dataclass
class Entry:
    """A member of a zip file, whose every field can be wrong.

    Attributes:
        states: the method that both headers state; `method` if None.
        gap: bytes before it that belong to no member.
        local: the fields that its local header states otherwise.
    """

    name: bytes
    data: bytes
    method: int = 8
    flags: int = 0
    mode: int = 0o100644
    extra: bytes = b""
    plain_size: int | None = None
    packed_size: int | None = None
    crc: int | None = None
    offset: int | None = None
    states: int | None = None
    gap: bytes = b""
    local: Mapping[str, Any] = dataclasses.field(default_factory=dict)


_LOCAL = struct.Struct("<4sHHHHHIIIHH")
_CENTRAL = struct.Struct("<4sHHHHHHIIIHHHHHII")
_END = struct.Struct("<4sHHHHIIH")


def zip_bytes(entries: Sequence[Entry], before: bytes = b"", after: bytes = b"") -> bytes:
    """A zip file of members whose every field can be wrong."""
    body, directory = bytearray(before), b""
    for entry in entries:
        body += entry.gap
        packed = entry.data
        if entry.method == 8:
            packer = zlib.compressobj(6, zlib.DEFLATED, -15)
            packed = packer.compress(entry.data) + packer.flush()
        at = len(body) if entry.offset is None else entry.offset
        fields = {
            "name": entry.name,
            "method": entry.method if entry.states is None else entry.states,
            "flags": entry.flags,
            "crc": zlib.crc32(entry.data) if entry.crc is None else entry.crc,
            "packed_size": len(packed) if entry.packed_size is None else entry.packed_size,
            "plain_size": len(entry.data) if entry.plain_size is None else entry.plain_size,
            "extra": entry.extra,
        }
        local = {**fields, **entry.local}
        body += _LOCAL.pack(
            *(b"PK\3\4", 20, local["flags"], local["method"], 0, 0x21, local["crc"]),
            *(local["packed_size"], local["plain_size"], len(local["name"]), len(local["extra"])),
        )
        body += local["name"] + local["extra"] + packed
        directory += _CENTRAL.pack(
            *(b"PK\1\2", 0x314, 20, fields["flags"], fields["method"], 0, 0x21, fields["crc"]),
            *(fields["packed_size"], fields["plain_size"], len(entry.name), len(entry.extra)),
            *(0, 0, 0, entry.mode << 16 & 0xFFFFFFFF, at),
        )
        directory += entry.name + entry.extra
    end = _END.pack(b"PK\5\6", 0, 0, len(entries), len(entries), len(directory), len(body), 0)
    return bytes(body) + directory + end + after


def _local_fields(rng: random.Random, entry: Entry) -> Mapping[str, Any]:
    field = rng.choice(("name", "method", "flags", "crc", "packed_size", "plain_size"))
    changed = entry.name[::-1] if field == "name" else rng.choice(NUMBERS) & 0xFFFF
    return {**entry.local, field: changed}


def _extra_field(rng: random.Random, _: Entry) -> bytes:
    content = rng.randbytes(rng.choice((0, 4, 8, 16, 24)))
    size = rng.choice((len(content), 0xFFFF))
    return struct.pack("<HH", rng.choice((1, 1, 0x7075, 0x9901, 0xCAFE)), size) + content


def _number(rng: random.Random, _: Entry) -> int:
    return rng.choice(NUMBERS) & 0xFFFFFFFF


_MODES = (0o120777, 0o020666, 0o010644, 0o104755, 0o040755, 0, 0o140644)
_FIELDS: Mapping[str, Callable[[random.Random, Entry], Any]] = {
    "name": lambda rng, entry: mutate_text(rng, entry.name, [b"demo/__init__.py"])[:9999],
    "data": lambda rng, entry: mutate_text(rng, entry.data, [entry.data]),
    "mode": lambda rng, _: rng.choice(_MODES),
    "plain_size": _number,
    "packed_size": _number,
    "offset": lambda rng, entry: rng.choice((0, 64, _number(rng, entry))),
    "flags": lambda rng, _: rng.choice((1, 8, 0x40, 0x800, 0x2000, 0xFFFF)),
    "method": lambda rng, _: rng.choice((0, 8, 9, 12, 14, 93, 99)),
    "local": _local_fields,
    "gap": lambda rng, _: rng.randbytes(rng.choice((1, 16, 70))),
    "extra": _extra_field,
}
"""What a field of a member becomes."""


def change_entries(rng: random.Random, entries: list[Entry], inputs: Sequence[bytes]) -> bytes:
    """Change members of a wheel, then write it; at times with bytes around it."""
    before = after = b""
    for _ in range(some(rng)):
        at = rng.randrange(len(entries))
        field = rng.choice((*_FIELDS, "again", "before", "after"))
        if field == "again":
            entries.insert(rng.randrange(len(entries) + 1), entries[at])
        elif field == "before":
            before = rng.choice((b"#!/bin/sh\n", b"\x7fELF", bytes(64)))
        elif field == "after":
            after = rng.choice((b"PK\5\6", bytes(22), b"tail", rng.choice(inputs)[:4096]))
        else:
            changed = {field: _FIELDS[field](rng, entries[at])}
            entries[at] = dataclasses.replace(entries[at], **changed)
    archive = zip_bytes(entries, before, after)
    return mutate_numbers(rng, archive, [archive]) if rng.randrange(5) == 0 else archive


_UNPACKED = 1 << 18
"""Bytes of an archive's files that are changed one by one; of a larger archive, its own bytes."""


def mutate_wheel(rng: random.Random, data: bytes, inputs: Sequence[bytes]) -> bytes:
    """Change files of a wheel, mostly with a RECORD that agrees, then its zip file."""
    if rng.randrange(10) == 0:
        return mutate_bytes(rng, data, inputs)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            infos = archive.infolist()
            small = sum(info.file_size for info in infos) <= _UNPACKED
            entries = [Entry(i.filename.encode(), archive.read(i)) for i in infos if small]
    # A hostile archive, which is changed as bytes.
    except Exception:
        entries = []
    if not entries:
        return mutate_numbers(rng, data, inputs)
    if rng.randrange(3):
        for _ in range(some(rng)):
            entry = rng.choice(entries)
            change = mutate_json if entry.name.endswith(b".json") else mutate_text
            entry.data = change(rng, entry.data, [other.data for other in entries])
        if rng.randrange(5):
            _agree(entries)
    if rng.randrange(2):
        return change_entries(rng, entries, inputs)
    return zip_bytes(entries)


def _agree(entries: Sequence[Entry]) -> None:
    """Write the RECORD that the other members have, unless it was changed itself."""
    record = next((entry for entry in entries if entry.name.endswith(b"/RECORD")), None)
    if record is None or not record.data.rstrip().endswith(b"RECORD,,"):
        return
    lines = [
        f"{entry.name.decode('utf-8', 'replace')},{record_hash(sha256(entry.data).digest())},"
        f"{len(entry.data)}"
        for entry in entries
        if entry is not record
    ]
    record.data = "\n".join([*lines, f"{record.name.decode()},,", ""]).encode()
