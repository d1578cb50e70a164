"""Changes wheels at random: files, mostly with a RECORD that agrees, and records of the zip."""

import dataclasses
import io
import random
import struct
import zipfile
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Any

from fuzz_mutations import NUMBERS, mutate_bytes, mutate_json, mutate_numbers, mutate_text, some

from torchwheel_runtime.files import record_hash
from zipmaker import Entry, make_zip

_UNPACKED = 1 << 18
"""Bytes of an archive's files that are changed one by one; of a larger archive, its own bytes."""


def mutate_wheel(rng: random.Random, data: bytes, inputs: Sequence[bytes]) -> bytes:
    """Change the files of a wheel, its zip records, or its bytes."""
    if rng.randrange(10) == 0:
        return mutate_bytes(rng, data, inputs)
    entries = _entries(data)
    if not entries:
        return mutate_numbers(rng, data, inputs)
    if rng.randrange(3):
        for _ in range(some(rng)):
            at = rng.randrange(len(entries))
            change = mutate_json if entries[at].name.endswith(".json") else mutate_text
            content = change(rng, entries[at].data, [entry.data for entry in entries])
            entries[at] = dataclasses.replace(entries[at], data=content)
        if rng.randrange(5):
            entries = _with_record(entries)
    archive = _change_records(rng, entries) if rng.randrange(2) else make_zip(entries)
    return mutate_numbers(rng, archive, inputs) if rng.randrange(8) == 0 else archive


def _entries(data: bytes) -> list[Entry]:
    """The files of an archive; none of one that is hostile or large."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            infos = archive.infolist()
            if sum(info.file_size for info in infos) > _UNPACKED:
                return []
            return [Entry(info.filename, archive.read(info)) for info in infos]
    # zipfile raises anything on a hostile archive.
    except Exception:
        return []


def _with_record(entries: list[Entry]) -> list[Entry]:
    """With the RECORD that the other files have, unless it was changed itself."""
    last = entries[-1]
    if not last.data.rstrip().endswith(b"RECORD,,"):
        return entries
    lines = [
        f"{entry.name},{record_hash(sha256(entry.data).digest())},{len(entry.data)}"
        for entry in entries[:-1]
    ]
    text = "\n".join([*lines, f"{last.name},,", ""])
    return [*entries[:-1], dataclasses.replace(last, data=text.encode("utf-8", "replace"))]


def _number(rng: random.Random, _: Entry) -> int:
    return rng.choice(NUMBERS) & 0xFFFFFFFF


def _extra(rng: random.Random, _: Entry) -> bytes:
    content = rng.randbytes(rng.choice((0, 4, 8, 16, 24)))
    size = rng.choice((len(content), 0xFFFF))
    return struct.pack("<HH", rng.choice((1, 1, 0x7075, 0x9901, 0xCAFE)), size) + content


_MODES = (0o120777, 0o020666, 0o010644, 0o104755, 0o040755, 0, 0o140644)
_FIELDS: Mapping[str, Callable[[random.Random, Entry], Any]] = {
    "name": lambda rng, entry: mutate_text(rng, entry.name.encode(), [b"demo/__init__.py"])[:9999],
    "mode": lambda rng, _: rng.choice(_MODES),
    "size": _number,
    "packed": _number,
    "crc": _number,
    "flags": lambda rng, _: rng.choice((1, 8, 0x40, 0x800, 0x2000, 0xFFFF)),
    "method": lambda rng, _: rng.choice((0, 8, 9, 12, 14, 93, 99)),
    "extra": _extra,
    "comment": lambda rng, _: rng.randbytes(rng.choice((1, 30))),
}
"""What a field of a member's records becomes."""
_BYTES = (b"#!/bin/sh\n", b"\x7fELF", b"PK\3\4", b"PK\5\6", bytes(22), bytes(64))
_PLACES = ("before", "gaps", "before_directory", "before_end", "after", "comment")


def _change_records(rng: random.Random, entries: list[Entry]) -> bytes:
    """Write an archive whose records are changed, alike in both places or in one of them."""
    around: dict[str, Any] = {}
    for _ in range(some(rng)):
        at = rng.randrange(len(entries))
        kind = rng.randrange(12)
        if kind == 0:
            entries.insert(rng.randrange(len(entries) + 1), entries[at])
        elif kind == 1:
            entries[at] = dataclasses.replace(entries[at], unlisted=True)
        elif kind == 2:
            around[rng.choice(_PLACES)] = rng.choice(_BYTES)
        elif kind == 3:
            around["count"] = rng.choice(NUMBERS) & 0xFFFF
        elif kind == 4:
            around["zip64"] = True
        else:
            entries[at] = _with_field(rng, entries[at], rng.choice(list(_FIELDS)))
    return make_zip(entries, **around)


def _with_field(rng: random.Random, entry: Entry, field: str) -> Entry:
    changed = {field: _FIELDS[field](rng, entry)}
    where = rng.randrange(4)
    local = {} if where == 0 or field in ("mode", "comment") else changed
    central = {} if where == 1 else changed
    return dataclasses.replace(
        entry, local={**entry.local, **local}, central={**entry.central, **central}
    )
