"""Hostile inputs, each made by a few lines: wheels that lie, never end, or eat memory.

`WHEELS` has them by name. Each writes one file into a folder; `says` is a part of the one line that
refuses it. `LIBRARIES` and `DEFINING` are libraries, the latter of a system that others need.
"""

import bz2
import dataclasses
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

    make: Callable[[Path], Path]
    says: str


WHEELS: dict[str, Hostile] = {}
Maker = Callable[[Path], Path]


def _wheel(says: str) -> Callable[[Maker], Maker]:
    def add(make: Maker) -> Maker:
        WHEELS[make.__name__] = Hostile(make, says)
        return make

    return add


def _members(folder: Path, files: Mapping[str, bytes] | None = None) -> dict[str, bytes]:
    """The members of a right wheel that holds `files` too."""
    path = make_wheel(
        folder / "right", files={"demo/__init__.py": b"answer = 42\n", **(files or {})}
    )
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


# What one reader finds and another does not.


@_wheel("bytes of no member")
def a_member_that_the_directory_does_not_name(folder: Path) -> Path:
    evil = Entry("demo/__init__.py", b"evil = True\n", unlisted=True)
    return _write(folder, make_zip([evil, *_entries(folder)]))


@_wheel("bytes between the last member and the directory")
def a_last_member_that_the_directory_does_not_name(folder: Path) -> Path:
    evil = Entry("demo/__init__.py", b"evil = True\n", unlisted=True)
    return _write(folder, make_zip([*_entries(folder), evil]))


@_wheel("bytes before the archive")
def bytes_before_the_archive_that_no_offset_counts(folder: Path) -> Path:
    return _write(folder, b"#!/bin/sh\n" + make_zip(_entries(folder)))


@_wheel("bytes of no member")
def bytes_before_the_first_member(folder: Path) -> Path:
    return _write(folder, make_zip(_entries(folder), before=b"#!/bin/sh\n"))


@_wheel("bytes of no member")
def bytes_between_members(folder: Path) -> Path:
    return _write(folder, make_zip(_entries(folder), gaps=b"gap"))


@_wheel("between its records")
def bytes_before_the_end_record(folder: Path) -> Path:
    return _write(folder, make_zip(_entries(folder), before_end=b"gap"))


@_wheel("bytes after the end record")
def bytes_after_the_archive(folder: Path) -> Path:
    return _write(folder, make_zip(_entries(folder), after=b"tail"))


@_wheel("its comment is not plain text")
def a_comment_that_hides_bytes(folder: Path) -> Path:
    return _write(folder, make_zip(_entries(folder), comment=b"\1\2\3"))


@_wheel("no end record")
def a_long_comment(folder: Path) -> Path:
    return _write(folder, make_zip(_entries(folder), comment=b"x" * 60_000))


@_wheel("bytes in its directory are of no entry")
def fewer_members_than_the_directory_has(folder: Path) -> Path:
    entries = _entries(folder)
    extra = Entry("demo/more.py", b"more\n")
    return _write(folder, make_zip([*entries, extra], count=len(entries)))


def _differing(folder: Path, **local: object) -> Path:
    return _write(folder, make_zip(_with(_entries(folder), "demo/__init__.py", local=local)))


@_wheel("its header and the archive's directory differ")
def a_header_with_another_name(folder: Path) -> Path:
    return _differing(folder, name=b"demo/__init__.pY")


@_wheel("its header and the archive's directory differ")
def a_header_with_another_size(folder: Path) -> Path:
    return _differing(folder, size=11)


@_wheel("its header and the archive's directory differ")
def a_header_with_another_packed_size(folder: Path) -> Path:
    return _differing(folder, packed=1)


@_wheel("its header and the archive's directory differ")
def a_header_with_another_checksum(folder: Path) -> Path:
    return _differing(folder, crc=0)


@_wheel("its header and the archive's directory differ")
def a_header_with_another_method(folder: Path) -> Path:
    return _differing(folder, method=STORED)


@_wheel("a data descriptor")
def sizes_after_the_data(folder: Path) -> Path:
    return _write(folder, make_zip(_with(_entries(folder), "demo/__init__.py", flags=8)))


@_wheel("has a comment")
def a_member_with_a_comment(folder: Path) -> Path:
    changes = {"central": {"comment": b"words"}}
    return _write(folder, make_zip(_with(_entries(folder), "demo/__init__.py", **changes)))


@_wheel("has a second name")
def a_second_name_in_an_extra_field(folder: Path) -> Path:
    text = b"\1" + struct.pack("<L", zlib.crc32(b"demo/__init__.py")) + b"demo/other.py"
    extra = {"extra": struct.pack("<2H", 0x7075, len(text)) + text}
    return _write(
        folder,
        make_zip(_with(_entries(folder), "demo/__init__.py", local=extra, central=extra)),
    )


@_wheel("its zip64 field is malformed")
def two_zip64_fields(folder: Path) -> Path:
    extra = {"extra": zip64_extra(1, 2) + zip64_extra(3, 4)}
    return _write(folder, make_zip(_with(_entries(folder), "demo/__init__.py", local=extra)))


@_wheel("bytes after its packed data")
def bytes_after_the_packed_data_of_a_member(folder: Path) -> Path:
    raw = deflate(b"answer = 42\n") + b"hidden"
    return _write(folder, make_zip(_with(_entries(folder), "demo/__init__.py", raw=raw)))


@_wheel("does not unpack to 12 bytes")
def a_member_that_unpacks_to_more_than_it_says(folder: Path) -> Path:
    """Whoever stops at the size finds the right bytes."""
    raw = deflate(b"answer = 42\nevil = True\n")
    return _write(folder, make_zip(_with(_entries(folder), "demo/__init__.py", raw=raw)))


@_wheel("is packed by method 12")
def a_member_that_is_packed_by_bzip2(folder: Path) -> Path:
    raw = bz2.compress(b"answer = 42\n")
    changes = {"raw": raw, "method": 12}
    return _write(folder, make_zip(_with(_entries(folder), "demo/__init__.py", **changes)))


@_wheel("needs version 63; 45 expected")
def a_member_that_is_packed_by_lzma(folder: Path) -> Path:
    path = folder / NAME
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive:
        for name, data in _members(folder).items():
            archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_LZMA)
    return path


# Names and kinds that are not the same everywhere.


def _named(folder: Path, name: str, *more: str) -> Path:
    files = dict.fromkeys((name, *more), b"")
    return _write(folder, make_zip(_entries(folder, files)))


@_wheel("is not a portable name")
def a_control_character_in_a_name(folder: Path) -> Path:
    return _named(folder, "demo/a\x07.py")


@_wheel("is not a portable name")
def an_escape_sequence_in_a_name(folder: Path) -> Path:
    return _named(folder, "demo/\x1b[2Ja.py")


@_wheel("is not a portable name")
def a_name_that_turns_its_direction(folder: Path) -> Path:
    return _named(folder, "demo/a\u202eyp.so")


@_wheel("is not a portable name")
def a_name_with_a_character_of_no_width(folder: Path) -> Path:
    return _named(folder, "demo/__in\u200bit__.py")


@_wheel("its name is not marked as UTF-8")
def a_name_that_is_not_marked_as_utf8(folder: Path) -> Path:
    entries = _with(_entries(folder, {"demo/é.py": b""}), "demo/é.py", flags=0)
    return _write(folder, make_zip(entries))


@_wheel("shortest form")
def a_name_with_a_dot_in_it(folder: Path) -> Path:
    return _named(folder, "demo/./a.py")


@_wheel("is too deep")
def a_name_of_many_folders(folder: Path) -> Path:
    return _named(folder, "d/" * 100 + "a.py")


@_wheel("is there twice, as 'demo/A.py'")
def names_that_differ_by_case_alone(folder: Path) -> Path:
    return _named(folder, "demo/A.py", "demo/a.py")


@_wheel("is there twice, as")
def one_name_in_two_forms_of_unicode(folder: Path) -> Path:
    return _named(folder, "demo/\u00e9.py", "demo/e\u0301.py")


@_wheel("is a file, and a folder of other members")
def a_file_beside_a_folder_of_its_name(folder: Path) -> Path:
    return _named(folder, "demo/a", "demo/a/b.py")


def _of_mode(folder: Path, mode: int) -> Path:
    return _write(folder, make_zip(_with(_entries(folder), "demo/__init__.py", mode=mode)))


@_wheel("has mode 4755; no setuid, setgid or sticky bit expected")
def a_setuid_member(folder: Path) -> Path:
    return _of_mode(folder, stat.S_IFREG | 0o4755)


@_wheel("has mode 2755")
def a_setgid_member(folder: Path) -> Path:
    return _of_mode(folder, 0o2755)


@_wheel("is a file by its name or its mode, and a folder by the other")
def a_folder_that_is_named_like_a_file(folder: Path) -> Path:
    return _of_mode(folder, stat.S_IFDIR | 0o755)


@_wheel("is a special file")
def a_device_as_a_member(folder: Path) -> Path:
    return _of_mode(folder, stat.S_IFCHR | 0o644)


@_wheel("is no regular file")
def a_named_pipe(folder: Path) -> Path:
    os.mkfifo(folder / NAME)
    return folder / NAME


@_wheel("is no regular file")
def a_link_to_an_endless_device(folder: Path) -> Path:
    (folder / NAME).symlink_to("/dev/zero")
    return folder / NAME


@_wheel("is no regular file")
def a_folder_as_a_wheel(folder: Path) -> Path:
    (folder / NAME).mkdir()
    return folder / NAME


# Small files that are much.


@_wheel("overlaps another")
def members_that_overlap(
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


@_wheel("more than 200 times, a zip bomb")
def zeros(folder: Path, size: int = 20 * MIB) -> Path:
    return _write(folder, make_zip(_entries(folder, {"demo/zeros": bytes(size)})))


@_wheel("more than 200 times, a zip bomb")
def zeros_with_sizes_of_zip64(folder: Path, size: int = 20 * MIB) -> Path:
    entries = _entries(folder, {"demo/zeros": bytes(size)})
    packed = len(deflate(bytes(size)))
    fields = {"size": 0xFFFFFFFF, "packed": 0xFFFFFFFF, "extra": zip64_extra(size, packed)}
    return _write(
        folder, make_zip(_with(entries, "demo/zeros", local=fields, central=fields), zip64=True)
    )


@_wheel("overlaps another")
def zeros_that_claim_to_be_packed_less(folder: Path, size: int = 20 * MIB) -> Path:
    """The packed size, which is more than the file, makes the ratio look harmless."""
    entries = _entries(folder, {"demo/zeros": bytes(size)})
    fields = {"packed": size // 100}
    return _write(folder, make_zip(_with(entries, "demo/zeros", local=fields, central=fields)))


@_wheel("members; at most")
def many_members(folder: Path, count: int = 65_000) -> Path:
    one = Entry("demo/__init__.py", b"", STORED)
    header = local_header(one, b"")
    directory = b"".join(
        central_header(Entry(f"d/{number}", b"", STORED), b"", 0) for number in range(count)
    )
    return _write(folder, header + directory + end(count, directory, len(header)))


@_wheel("members; at most")
def members_that_are_only_counted(folder: Path) -> Path:
    """The end record names 2^60 members."""
    entries = _entries(folder)
    return _write(folder, make_zip(entries, count=1 << 60, zip64=True))


# Small metadata that are much.


def _info(folder: Path, file: str, data: bytes) -> Path:
    return make_wheel(folder, bend=lambda members: members.update({f"{INFO}/{file}": data}))


@_wheel("names 27000000 tags; at most")
def tags_that_multiply(folder: Path) -> Path:
    part = ".".join(f"a{number}" for number in range(300))
    text = f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {part}-{part}-{part}\n"
    return _info(folder, "WHEEL", text.encode())


@_wheel("tags; at most")
def many_lines_of_tags(folder: Path) -> Path:
    lines = "".join(f"Tag: py3-none-a{number}\n" for number in range(2000))
    return _info(folder, "WHEEL", f"Root-Is-Purelib: true\n{lines}".encode())


@_wheel("RECORD has more than")
def a_record_of_blank_lines(folder: Path) -> Path:
    return _recorded(folder, lambda text: text + "\n" * (15 * MIB))


@_wheel("RECORD has more than")
def a_record_of_many_rows(folder: Path) -> Path:
    return _recorded(folder, lambda text: text + "".join(f"a{n},,\n" for n in range(200_000)))


@_wheel("is not a size")
def a_size_of_many_digits_in_the_record(folder: Path) -> Path:
    return _recorded(folder, lambda text: text + f"a,sha256=a,{'9' * 5000}\n")


@_wheel("bytes; at most 16777216 expected")
def a_large_record(folder: Path) -> Path:
    return _recorded(folder, lambda text: text + "a" * (17 * MIB))


def _recorded(folder: Path, bend: Callable[[str], str]) -> Path:
    path = make_wheel(folder / "right", bend_record=bend)
    with zipfile.ZipFile(path) as archive:
        entries = [Entry(i.filename, archive.read(i)) for i in archive.infolist()]
    path.unlink()
    # Not packed, so that no other limit is in the way.
    return _write(folder, make_zip([dataclasses.replace(e, method=STORED) for e in entries]))


@_wheel("METADATA has 20003 fields; at most")
def many_fields_of_metadata(folder: Path) -> Path:
    lines = "".join(f"Requires-Dist: a{number}\n" for number in range(20_000))
    return _metadata(folder, lines)


@_wheel("METADATA is not valid")
def a_marker_of_many_brackets(folder: Path) -> Path:
    marker = f"{'(' * 20_000}python_version > '3'{')' * 20_000}"
    return _metadata(folder, f"Requires-Dist: a ; {marker}\n")


@_wheel("METADATA has 2097")
def a_large_description(folder: Path) -> Path:
    return _metadata(folder, f"\n{'text ' * (2 * MIB // 5)}\n")


def _metadata(folder: Path, more: str) -> Path:
    text = f"Metadata-Version: 2.1\nName: demo\nVersion: 1.0.0\n{more}"
    return _info(folder, "METADATA", text.encode())


# Libraries: small tables that are much, and tables that are not the loader's.

LIBRARIES: dict[str, tuple[Callable[[], bytes], str]] = {}
"""By name: how the library is made, and a part of the line that refuses it."""

_VERDEF, _VERNEED, _DYNAMIC, _HASH = 0x6FFFFFFD, 0x6FFFFFFE, 6, 5
_FOR_EVER = 0xFFFFFFFF


def _library(says: str) -> Callable[[Callable[[], bytes]], Callable[[], bytes]]:
    def add(make: Callable[[], bytes]) -> Callable[[], bytes]:
        LIBRARIES[make.__name__] = make, says
        return make

    return add


def wheel_with(folder: Path, library: str) -> Path:
    """A wheel that holds a hostile library, and is right beside it."""
    return wheel_around(folder, LIBRARIES[library][0](), stable(), "linux_x86_64")


@_library("symbol versions; at most")
def needed_versions_for_ever() -> bytes:
    one = struct.pack("<HHIII", 1, 1, 0, 16, 0) + struct.pack("<IHHII", 0, 0, 2, 0, 0)
    return make_elf(
        sections={".gnu.version_r": one}, kinds={".gnu.version_r": (_VERNEED, _FOR_EVER)}
    )


@_library("end 3 records early")
def needed_versions_that_stay_where_they_are() -> bytes:
    one = struct.pack("<HHIII", 1, 4, 0, 16, 0) + struct.pack("<IHHII", 0, 0, 2, 0, 0)
    return make_elf(sections={".gnu.version_r": one}, kinds={".gnu.version_r": (_VERNEED, 1)})


@_library("symbols in its libraries; at most")
def many_symbols() -> bytes:
    one = struct.pack("<IBBHQQ", 1, 0x10, 0, 0, 0, 0)
    return make_elf(table=one * 300_000, strings=b"\0f\0")


@_library("no text of at most")
def symbols_of_one_endless_name() -> bytes:
    one = struct.pack("<IBBHQQ", 1, 0x10, 0, 0, 0, 0)
    return make_elf(table=one * 20_000, strings=b"\0" + b"f" * 4 * MIB + b"\0")


@_library("names of more than")
def symbols_of_long_names() -> bytes:
    rows = (struct.pack("<IBBHQQ", 1 + n % 1000, 0x10, 0, 0, 0, 0) for n in range(20_000))
    return make_elf(table=b"".join(rows), strings=b"\0" + b"f" * 12_000 + b"\0")


@_library("sections; at most")
def many_sections() -> bytes:
    made = bytearray(make_elf() + bytes(64 * 60_000))
    made[60:62] = struct.pack("<H", 60_000)  # e_shnum
    return bytes(made)


@_library("name different tables")
def a_dynamic_section_that_is_not_the_loaders() -> bytes:
    right = struct.pack("<qQqQ", 1, 1, 0, 0)
    return make_elf(
        symbols=("libc.so.6",),
        sections={".dynamic": right, ".evil": right},
        kinds={".dynamic": (_DYNAMIC, 0)},
        loaded=".evil",
    )


@_library("name different tables")
def a_loader_that_finds_other_symbols() -> bytes:
    """The dynamic tag for the symbols leads to the header of the file."""
    dynamic = struct.pack("<qQqQ", 6, 64, 0, 0)
    return make_elf(
        symbols=("f",),
        sections={".dynamic": dynamic},
        kinds={".dynamic": (_DYNAMIC, 0)},
        loaded=".dynamic",
    )


@_library("name different tables")
def a_library_whose_sections_name_no_dynamic_one() -> bytes:
    return make_elf(sections={".evil": struct.pack("<qQqQ", 1, 1, 0, 0)}, loaded=".evil")


@_library("a name with control characters")
def a_control_character_in_a_symbol() -> bytes:
    return make_elf(symbols=("f\x1b[2Jg",))


@_library("unpack to")
def hip_code_that_unpacks_to_much() -> bytes:
    return hip_library(packed(bytes(129 * MIB)))


@_library("at most")
def cuda_code_that_claims_much() -> bytes:
    return cuda_library(fatbin(module(b"\x7fELF", 80, flags=0x8011, size=1 << 40)))


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
