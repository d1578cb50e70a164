"""Hostile inputs, each made by a few lines: wheels that lie, never end, or eat memory.

`WHEELS` has them by name. Each writes one file into a folder; `says` is a part of the one line that
refuses it. `LIBRARIES` and `DEFINING` are libraries, the latter of a system that others need.
"""

import bz2
import dataclasses
import functools
import gzip
import hashlib
import os
import random
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from elfmaker import cuda_library, fatbin, hip_library, make_elf, module, packed
from torchwheel_runtime.files import record_hash
from wheelmaker import make_wheel, stable, wheel_around
from zipmaker import (
    STORED,
    Entry,
    central_header,
    deflate,
    end,
    local_header,
    make_zip,
    zip64_extra,
)

NAME = "demo-1.0.0-py3-none-any.whl"
INFO = "demo-1.0.0.dist-info"
MIB = 1 << 20


@dataclasses.dataclass(frozen=True)
class Hostile:
    """A hostile wheel: how it is made, and what is said of it."""

    make: Callable[..., Path]
    says: str


INIT = "demo/__init__.py"


def _members(folder: Path, files: Mapping[str, bytes] | None = None) -> dict[str, bytes]:
    """The members of a right wheel that holds `files` too."""
    path = make_wheel(folder / "right", files={INIT: b"answer = 42\n", **(files or {})})
    with zipfile.ZipFile(path) as archive:
        members = {info.orig_filename: archive.read(info) for info in archive.infolist()}
    path.unlink()
    return members


def _entries(folder: Path, files: Mapping[str, bytes] | None = None) -> list[Entry]:
    return [Entry(name, data) for name, data in _members(folder, files).items()]


def _write(folder: Path, data: bytes) -> Path:
    path = folder / NAME
    path.write_bytes(data)
    return path


def _with(entries: Sequence[Entry], name: str, **changes: object) -> list[Entry]:
    return [
        dataclasses.replace(entry, **changes) if entry.name == name else entry  # type: ignore[arg-type]
        for entry in entries
    ]


# Ways to make one out of a right wheel.


def _zip(
    says: str, first: Sequence[Entry] = (), last: Sequence[Entry] = (), **changes: object
) -> Hostile:
    """Members before and after its own, and other arguments of `make_zip`."""

    def make(folder: Path) -> Path:
        return _write(folder, make_zip([*first, *_entries(folder), *last], **changes))  # type: ignore[arg-type]

    return Hostile(make, says)


def _init(says: str, **changes: object) -> Hostile:
    """Another entry of its __init__.py."""
    return Hostile(
        lambda folder: _write(folder, make_zip(_with(_entries(folder), INIT, **changes))), says
    )


def _differing(**local: object) -> Hostile:
    return _init("its header and the archive's directory differ", local=local)


def _names(says: str, *names: str) -> Hostile:
    """Files of these names, too."""
    files = dict.fromkeys(names, b"")
    return Hostile(lambda folder: _write(folder, make_zip(_entries(folder, files))), says)


def _unmarked(folder: Path) -> Path:
    return _write(
        folder, make_zip(_with(_entries(folder, {"demo/é.py": b""}), "demo/é.py", flags=0))
    )


def _no_file(make: Callable[[Path], object]) -> Hostile:
    """Something of its name that is no regular file."""

    def make_it(folder: Path) -> Path:
        make(folder / NAME)
        return folder / NAME

    return Hostile(make_it, "is no regular file")


def _lzma(folder: Path) -> Path:
    path = folder / NAME
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive:
        for name, data in _members(folder).items():
            archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_LZMA)
    return path


def _members_that_overlap(
    folder: Path, count: int = 10, size: int = 17 * MIB, *, hashed: bool = True
) -> Path:
    """Each member's data quote the next one's header, and all end in the same packed bytes.

    To hash what they claim to hold takes as long as to read it.
    """
    # So that each member by itself looks harmless: about 130 times.
    chance = random.Random(1)
    plain = b"".join(chance.randbytes(24) + bytes(4072) for _ in range(size // 4096))
    kernel = deflate(plain, 9)
    body, content = kernel, b""
    entries: list[tuple[Entry, int]] = []
    record = ""
    for number in reversed(range(count)):
        name = f"demo/{number:04}"
        crc, digest = 0, hashlib.sha256(content)
        if hashed:
            crc = zlib.crc32(plain, zlib.crc32(content))
            digest.update(plain)
        fields = {"crc": crc, "packed": len(body), "size": len(content) + size}
        entry = Entry(name, local=fields, central=fields)
        header = local_header(entry, b"")
        entries.append((entry, len(header) + len(body)))
        record += f"{name},{record_hash(digest.digest())},{fields['size']}\n"
        if number:
            quote = b"\0" + struct.pack("<HH", len(header), 0xFFFF ^ len(header)) + header
            content, body = header + content, quote + body
    body = header + body
    members = _members(folder)
    members[f"{INFO}/RECORD"] += record.encode()
    first = make_zip([Entry(name, data) for name, data in members.items()])
    at = len(body)
    directory = b"".join(central_header(entry, b"", at - from_end) for entry, from_end in entries)
    own = first[: first.index(b"PK\1\2")]
    place = at
    for name, data in members.items():
        packed = deflate(data)
        directory += central_header(Entry(name, data), packed, place)
        place += len(local_header(Entry(name, data), packed)) + len(packed)
    total = count + len(members)
    return _write(folder, body + own + directory + end(total, directory, at + len(own)))


def _zeros(folder: Path, size: int = 20 * MIB, **changes: object) -> Path:
    entries = _entries(folder, {"demo/zeros": bytes(size)})
    return _write(folder, make_zip(_with(entries, "demo/zeros", **changes)))


def _zeros_with_sizes_of_zip64(folder: Path, size: int = 20 * MIB) -> Path:
    packed = len(deflate(bytes(size)))
    fields = {"size": 0xFFFFFFFF, "packed": 0xFFFFFFFF, "extra": zip64_extra(size, packed)}
    entries = _entries(folder, {"demo/zeros": bytes(size)})
    return _write(
        folder, make_zip(_with(entries, "demo/zeros", local=fields, central=fields), zip64=True)
    )


def _many_members(folder: Path, count: int = 65_000) -> Path:
    header = local_header(Entry(INIT, b"", STORED), b"")
    directory = b"".join(
        central_header(Entry(f"d/{number}", b"", STORED), b"", 0) for number in range(count)
    )
    return _write(folder, header + directory + end(count, directory, len(header)))


def _info(says: str, file: str, text: str) -> Hostile:
    """Another file of its dist-info."""
    changed = {f"{INFO}/{file}": text.encode()}
    return Hostile(lambda folder: make_wheel(folder, bend=lambda m: m.update(changed)), says)


def _metadata(says: str, more: str) -> Hostile:
    return _info(says, "METADATA", f"Metadata-Version: 2.1\nName: demo\nVersion: 1.0.0\n{more}")


def _record(says: str, more: Callable[[], str]) -> Hostile:
    """A longer RECORD, not packed, so that no other limit is in the way."""

    def make(folder: Path) -> Path:
        path = make_wheel(folder / "right", bend_record=lambda text: text + more())
        with zipfile.ZipFile(path) as archive:
            entries = [Entry(i.filename, archive.read(i), STORED) for i in archive.infolist()]
        path.unlink()
        return _write(folder, make_zip(entries))

    return Hostile(make, says)


_EVIL = Entry(INIT, b"evil = True\n", unlisted=True)
_OTHER_NAME = b"\1" + struct.pack("<L", zlib.crc32(INIT.encode())) + b"demo/other.py"
_SECOND_NAME = {"extra": struct.pack("<2H", 0x7075, len(_OTHER_NAME)) + _OTHER_NAME}
_ANSWER = b"answer = 42\n"
_300 = ".".join(f"a{number}" for number in range(300))
_PURE = "Root-Is-Purelib: true\n"
_BRACKETS = f"{'(' * 20_000}python_version > '3'{')' * 20_000}"

WHEELS: dict[str, Hostile] = {
    # What one reader finds and another does not.
    "a_member_that_the_directory_does_not_name": _zip("bytes of no member", [_EVIL]),
    "a_last_member_that_the_directory_does_not_name": _zip(
        "bytes between the last member and the directory", last=[_EVIL]
    ),
    "bytes_before_the_archive_that_no_offset_counts": Hostile(
        lambda folder: _write(folder, b"#!/bin/sh\n" + make_zip(_entries(folder))),
        "bytes before the archive",
    ),
    "bytes_before_the_first_member": _zip("bytes of no member", before=b"#!/bin/sh\n"),
    "bytes_between_members": _zip("bytes of no member", gaps=b"gap"),
    "bytes_before_the_end_record": _zip("between its records", before_end=b"gap"),
    "bytes_after_the_archive": _zip("bytes after the end record", after=b"tail"),
    "a_comment_that_hides_bytes": _zip("its comment is not plain text", comment=b"\1\2\3"),
    "a_long_comment": _zip("no end record", comment=b"x" * 60_000),
    "fewer_members_than_the_directory_has": _zip(
        "bytes in its directory are of no entry", last=[Entry("demo/more.py", b"more\n")], count=5
    ),
    "a_header_with_another_name": _differing(name=b"demo/__init__.pY"),
    "a_header_with_another_size": _differing(size=11),
    "a_header_with_another_packed_size": _differing(packed=1),
    "a_header_with_another_checksum": _differing(crc=0),
    "a_header_with_another_method": _differing(method=STORED),
    "sizes_after_the_data": _init("a data descriptor", flags=8),
    "a_member_with_a_comment": _init("has a comment", central={"comment": b"words"}),
    "a_second_name_in_an_extra_field": _init(
        "has a second name", local=_SECOND_NAME, central=_SECOND_NAME
    ),
    "two_zip64_fields": _init(
        "its zip64 field is malformed", local={"extra": zip64_extra(1, 2) + zip64_extra(3, 4)}
    ),
    "bytes_after_the_packed_data_of_a_member": _init(
        "bytes after its packed data", raw=deflate(_ANSWER) + b"hidden"
    ),
    # Whoever stops at the size finds the right bytes.
    "a_member_that_unpacks_to_more_than_it_says": _init(
        "does not unpack to 12 bytes", raw=deflate(_ANSWER + b"evil = True\n")
    ),
    "a_member_that_is_packed_by_bzip2": _init(
        "is packed by method 12", raw=bz2.compress(_ANSWER), method=12
    ),
    "a_member_that_is_packed_by_lzma": Hostile(_lzma, "needs version 63; 45 expected"),
    # Names and kinds that are not the same everywhere.
    "a_control_character_in_a_name": _names("is not a portable name", "demo/a\x07.py"),
    "an_escape_sequence_in_a_name": _names("is not a portable name", "demo/\x1b[2Ja.py"),
    "a_name_that_turns_its_direction": _names("is not a portable name", "demo/a\u202eyp.so"),
    "a_name_with_a_character_of_no_width": _names(
        "is not a portable name", "demo/__in\u200bit__.py"
    ),
    "a_name_that_is_not_marked_as_utf8": Hostile(_unmarked, "its name is not marked as UTF-8"),
    "a_name_with_a_dot_in_it": _names("shortest form", "demo/./a.py"),
    "a_name_of_many_folders": _names("is too deep", "d/" * 100 + "a.py"),
    "names_that_differ_by_case_alone": _names(
        "is there twice, as 'demo/A.py'", "demo/A.py", "demo/a.py"
    ),
    "one_name_in_two_forms_of_unicode": _names(
        "is there twice, as", "demo/\u00e9.py", "demo/e\u0301.py"
    ),
    "a_file_beside_a_folder_of_its_name": _names(
        "is a file, and a folder of other members", "demo/a", "demo/a/b.py"
    ),
    "a_setuid_member": _init(
        "has mode 4755; no setuid, setgid or sticky bit expected", mode=stat.S_IFREG | 0o4755
    ),
    "a_setgid_member": _init("has mode 2755", mode=0o2755),
    "a_folder_that_is_named_like_a_file": _init(
        "is a file by its name or its mode, and a folder by the other", mode=stat.S_IFDIR | 0o755
    ),
    "a_device_as_a_member": _init("is a special file", mode=stat.S_IFCHR | 0o644),
    "a_named_pipe": _no_file(os.mkfifo),
    "a_link_to_an_endless_device": _no_file(lambda path: path.symlink_to("/dev/zero")),
    "a_folder_as_a_wheel": _no_file(Path.mkdir),
    # Small files that are much.
    "members_that_overlap": Hostile(_members_that_overlap, "overlaps another"),
    "zeros": Hostile(_zeros, "more than 200 times, a zip bomb"),
    "zeros_with_sizes_of_zip64": Hostile(
        _zeros_with_sizes_of_zip64, "more than 200 times, a zip bomb"
    ),
    # The packed size, which is more than the file, makes the ratio look harmless.
    "zeros_that_claim_to_be_packed_less": Hostile(
        functools.partial(
            _zeros, local={"packed": 20 * MIB // 100}, central={"packed": 20 * MIB // 100}
        ),
        "overlaps another",
    ),
    "many_members": Hostile(_many_members, "members; at most"),
    # The end record names 2^60 members.
    "members_that_are_only_counted": _zip("members; at most", count=1 << 60, zip64=True),
    # Small metadata that are much.
    "tags_that_multiply": _info(
        "names 27000000 tags; at most",
        "WHEEL",
        f"Wheel-Version: 1.0\n{_PURE}Tag: {_300}-{_300}-{_300}\n",
    ),
    "many_lines_of_tags": _info(
        "tags; at most", "WHEEL", _PURE + "".join(f"Tag: py3-none-a{n}\n" for n in range(2000))
    ),
    "a_record_of_blank_lines": _record("RECORD has more than", lambda: "\n" * (15 * MIB)),
    "a_record_of_many_rows": _record(
        "RECORD has more than", lambda: "".join(f"a{n},,\n" for n in range(200_000))
    ),
    "a_size_of_many_digits_in_the_record": _record(
        "is not a size", lambda: f"a,sha256=a,{'9' * 5000}\n"
    ),
    "a_large_record": _record("bytes; at most 16777216 expected", lambda: "a" * (17 * MIB)),
    "many_fields_of_metadata": _metadata(
        "METADATA has 20003 fields; at most",
        "".join(f"Requires-Dist: a{number}\n" for number in range(20_000)),
    ),
    "a_marker_of_many_brackets": _metadata(
        "METADATA is not valid", f"Requires-Dist: a ; {_BRACKETS}\n"
    ),
    "a_large_description": _metadata("METADATA has 2097", f"\n{'text ' * (2 * MIB // 5)}\n"),
}


# Libraries: small tables that are much, and tables that are not the loader's.

_VERDEF, _VERNEED, _DYNAMIC, _HASH = 0x6FFFFFFD, 0x6FFFFFFE, 6, 5
_FOR_EVER = 0xFFFFFFFF
_SYMBOL = struct.pack("<IBBHQQ", 1, 0x10, 0, 0, 0, 0)
_NEEDED = struct.pack("<IHHII", 0, 0, 2, 0, 0)
_TAGS = struct.pack("<qQqQ", 1, 1, 0, 0)
_SYMBOLS_AT_64 = struct.pack("<qQqQ", 6, 64, 0, 0)


def _needing(versions: int, info: int) -> bytes:
    """A library whose table of needed versions is shorter than it says."""
    one = struct.pack("<HHIII", 1, versions, 0, 16, 0) + _NEEDED
    return make_elf(sections={".gnu.version_r": one}, kinds={".gnu.version_r": (_VERNEED, info)})


def _many_sections() -> bytes:
    made = bytearray(make_elf() + bytes(64 * 60_000))
    made[60:62] = struct.pack("<H", 60_000)  # e_shnum
    return bytes(made)


def _long_names() -> bytes:
    rows = (struct.pack("<IBBHQQ", 1 + n % 1000, 0x10, 0, 0, 0, 0) for n in range(20_000))
    return make_elf(table=b"".join(rows), strings=b"\0" + b"f" * 12_000 + b"\0")


LIBRARIES: dict[str, tuple[Callable[[], bytes], str]] = {
    "needed_versions_for_ever": (lambda: _needing(1, _FOR_EVER), "symbol versions; at most"),
    "needed_versions_that_stay_where_they_are": (lambda: _needing(4, 1), "end 3 records early"),
    "many_symbols": (
        lambda: make_elf(table=_SYMBOL * 300_000, strings=b"\0f\0"),
        "symbols in its libraries; at most",
    ),
    "symbols_of_one_endless_name": (
        lambda: make_elf(table=_SYMBOL * 20_000, strings=b"\0" + b"f" * 4 * MIB + b"\0"),
        "no text of at most",
    ),
    "symbols_of_long_names": (_long_names, "names of more than"),
    "many_sections": (_many_sections, "sections; at most"),
    "a_dynamic_section_that_is_not_the_loaders": (
        lambda: make_elf(
            symbols=("libc.so.6",),
            sections={".dynamic": _TAGS, ".evil": _TAGS},
            kinds={".dynamic": (_DYNAMIC, 0)},
            loaded=".evil",
        ),
        "name different tables",
    ),
    # The dynamic tag for the symbols leads to the header of the file.
    "a_loader_that_finds_other_symbols": (
        lambda: make_elf(
            symbols=("f",),
            sections={".dynamic": _SYMBOLS_AT_64},
            kinds={".dynamic": (_DYNAMIC, 0)},
            loaded=".dynamic",
        ),
        "name different tables",
    ),
    "a_library_whose_sections_name_no_dynamic_one": (
        lambda: make_elf(sections={".evil": _TAGS}, loaded=".evil"),
        "name different tables",
    ),
    "a_control_character_in_a_symbol": (
        lambda: make_elf(symbols=("f\x1b[2Jg",)),
        "a name with control characters",
    ),
    "hip_code_that_unpacks_to_much": (lambda: hip_library(packed(bytes(129 * MIB))), "unpack to"),
    "cuda_code_that_claims_much": (
        lambda: cuda_library(fatbin(module(b"\x7fELF", 80, flags=0x8011, size=1 << 40))),
        "at most",
    ),
}
"""By name: how the library is made, and a part of the line that refuses it."""


def wheel_with(folder: Path, library: str) -> Path:
    """A wheel that holds a hostile library, and is right beside it."""
    return wheel_around(folder, LIBRARIES[library][0](), stable(), "linux_x86_64")


# What the doctor alone reads: the definitions of libraries that others need.

DEFINING: dict[str, bytes] = {
    "defined_versions_for_ever": make_elf(
        sections={
            ".gnu.version_d": struct.pack("<HHHHIII", 1, 0, 1, 1, 0, 20, 0)
            + struct.pack("<II", 0, 0)
        },
        kinds={".gnu.version_d": (_VERDEF, _FOR_EVER)},
    ),
    "a_name_of_a_version_for_ever": make_elf(
        sections={
            ".gnu.version_d": struct.pack("<HHHHIII", 1, 0, 1, 65535, 0, 20, 0)
            + struct.pack("<II", 0, 0)
        },
        kinds={".gnu.version_d": (_VERDEF, 1)},
    ),
    "a_hash_chain_that_is_a_ring": make_elf(
        symbols=("f", "g"),
        # One bucket and three symbols, the first of which follows itself.
        sections={".hash": struct.pack("<6I", 1, 3, 1, 0, 1, 1)},
        kinds={".hash": (_HASH, 0)},
    ),
}


# Sdists that are small and ask for much: their tars, unpacked, and what is said of each.

_PROJECT = "demo-1.0/setup.py"


def _member(name: str, kind: bytes = tarfile.REGTYPE, content: bytes = b"") -> bytes:
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, len(content)
    return info.tobuf(tarfile.USTAR_FORMAT) + content + bytes(-len(content) % 512)


def _pax(kind: bytes, records: Mapping[str, str]) -> bytes:
    body = b"".join(
        f"{len(key) + len(text) + 6:03} {key}={text}\n".encode() for key, text in records.items()
    )
    return _member("pax", kind, body)


_FOLDER = _member("demo-1.0/folder", tarfile.DIRTYPE)
_MANY_KEYS = {f"{number:05}": "" for number in range(100_000)}
_DEEP = "/".join(["demo-1.0", *["d"] * 1500, "f"])
_NESTED = "/".join("abcdefghijklmnopqrstuvwxyz")

SDISTS: dict[str, tuple[Callable[[], bytes], str]] = {
    "many members": (lambda: _FOLDER * 50_001, "files and folders"),
    "many folders": (
        lambda: b"".join(_member(f"demo-1.0/{n}/{_NESTED}/f") for n in range(1900)),
        "files and folders",
    ),
    "deep": (
        lambda: _member("x", tarfile.GNUTYPE_LONGNAME, _DEEP.encode()) + _member("x"),
        "too deep or too long",
    ),
    "long name": (
        lambda: _member("x", tarfile.GNUTYPE_LONGNAME, b"a" * (20 << 20)) + _member("x"),
        "asks for too much memory",
    ),
    "large header": (
        lambda: _pax(tarfile.XHDTYPE, _MANY_KEYS) + _member("demo-1.0/x"),
        "asks for too much memory",
    ),
    "header of all members": (
        lambda: _pax(tarfile.XGLTYPE, _MANY_KEYS) + _member("demo-1.0/x") * 100,
        "asks for too much memory",
    ),
    "headers before headers": (
        lambda: _member("x", tarfile.GNUTYPE_LONGNAME) * 100 + _member("demo-1.0/x"),
        "asks for too much memory",
    ),
}


def sdist(name: str) -> bytes:
    """An archive of SDISTS with a project in it."""
    tar = _member(_PROJECT) + SDISTS[name][0]() + bytes(1024)
    return gzip.compress(tar, compresslevel=6, mtime=0)


# A pyproject.toml of 20 KB that once took 400 MB, and others whose keys hide behind strings.
LONG_KEYS: dict[str, str] = {
    "plain": "a." * 10_000 + "a = 1",
    "in quotes": '"a b" . ' * 10_000 + "a = 1",
    "of dots": "'.'." * 10_000 + "a = 1",
    "with an escape": r'"\"".' * 10_000 + "a = 1",
    "of a table": "[" + "a." * 10_000 + "a]",
    "behind a string": 'x = {y = """\n" """"", ' + "a." * 10_000 + "a = 1}",
    "behind a comment": 'x = 1 # """\n' + "a." * 10_000 + "a = 1",
}
