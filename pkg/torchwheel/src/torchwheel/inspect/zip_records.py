"""The records of a zip archive. Every reader finds the same members in it, or it is refused.

A zip archive names its members twice: in a header before each one's data, which streaming readers
follow, and in the central directory at its end, which others follow. Here both must agree, and the
records must fill the file from its first byte to its last. PyPI and uv demand the same.
"""

import dataclasses
import os
import struct
from collections.abc import Iterator, Sequence
from typing import IO

from torchwheel_runtime.inspect import budgets
from torchwheel_runtime.inspect.window import WheelError

STORED, DEFLATED = 0, 8
FOLDER = "/"
"""The end of a folder's name."""

_END = struct.Struct("<4s4H2LH")
_END64 = struct.Struct("<4sQ2H2L4Q")
_LOCATOR = struct.Struct("<4sLQL")
_CENTRAL = struct.Struct("<4s6H3L5H2L")
_LOCAL = struct.Struct("<4s5H3L2H")
_EXTRA = struct.Struct("<2H")
_VERSION = 45
"""Of the format, with zip64. Later ones brought ways to pack and to encrypt."""
_MAX16, _MAX32 = 0xFFFF, 0xFFFFFFFF
_COMMENT_BYTES = 256
"""Of the archive's own comment: GitHub writes a commit's hash there."""
_ZIP64, _UNICODE_NAME = 0x0001, 0x7075
_ENCRYPTED, _DESCRIPTOR, _UTF8 = 1, 8, 0x800
_FLAGS = 0b110 | _UTF8
"""Flags that a member may have: how hard deflate tried, and UTF-8."""


@dataclasses.dataclass(frozen=True)
class Member:
    """A file or folder of an archive.

    Attributes:
        name: with "/" between its parts; a folder's ends with it.
        method: how it is packed: `STORED` or `DEFLATED`.
        crc: checksum of its bytes.
        packed: bytes of its data in the archive.
        size: bytes of the file.
        header: where its header begins in the archive.
        mode: the type and the permissions, as Unix has them; 0 if the archive does not say.
        data: where its data begins.
    """

    name: str
    method: int
    crc: int
    packed: int
    size: int
    header: int
    mode: int
    data: int = 0

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder, by its name."""
        return self.name.endswith(FOLDER)


@dataclasses.dataclass(frozen=True)
class _Directory:
    offset: int
    size: int
    count: int


def read_members(file: IO[bytes]) -> tuple[Member, ...]:
    """The members of an archive in the order of its directory; a WheelError if readers differ."""
    try:
        directory = _find_directory(file)
        members = tuple(_with_data(file, *item) for item in _central_headers(file, directory))
    except struct.error as error:
        raise WheelError("not a whole zip archive (cut short?): a record is cut short") from error
    _require_no_gaps(members, directory.offset)
    return members


def _malformed(fact: str) -> WheelError:
    return WheelError(f"not a whole zip archive (cut short?): {fact}")


def _read(file: IO[bytes], at: int, size: int) -> bytes:
    file.seek(at)
    data = file.read(size)
    if len(data) != size:
        raise _malformed(f"{size} bytes expected at byte {at}, found {len(data)}")
    return data


def _find_directory(file: IO[bytes]) -> _Directory:
    """The central directory, which ends where the end record begins, which ends with the file."""
    length = file.seek(0, os.SEEK_END)
    tail_at = max(0, length - _END.size - _COMMENT_BYTES)
    tail = _read(file, tail_at, length - tail_at)
    place = tail.rfind(b"PK\5\6")
    if place < 0 or len(tail) - place < _END.size:
        raise _malformed("no end record")
    end = tail_at + place
    _, disk, first_disk, here, count, size, offset, comment = _END.unpack_from(tail, place)
    text = tail[place + _END.size :]
    if len(text) != comment:
        raise WheelError(f"{len(text)} bytes after the end record, which names {comment}")
    if not all(0x20 <= character < 0x7F for character in text):
        raise WheelError("its comment is not plain text")
    found = _Directory(offset, size, count)
    at = end - _LOCATOR.size
    if at >= 0 and (locator := _read(file, at, _LOCATOR.size)).startswith(b"PK\6\7"):
        found, end = _find_directory64(file, locator, at, found)
        here = count if here == _MAX16 else here
    if (disk, first_disk) != (0, 0) or here != count:
        raise _malformed("it has several parts")
    if found.offset + found.size != end:
        raise WheelError(
            f"its directory ends at byte {found.offset + found.size}, the end record begins at "
            f"byte {end}: bytes before the archive, or between its records"
        )
    if found.count > budgets.MEMBERS:
        raise WheelError(f"names {found.count} members; at most {budgets.MEMBERS} expected")
    if found.size > budgets.DIRECTORY_BYTES:
        raise WheelError(
            f"its directory has {found.size} bytes; at most {budgets.DIRECTORY_BYTES} expected"
        )
    return found


def _find_directory64(
    file: IO[bytes], locator: bytes, at: int, short: _Directory
) -> tuple[_Directory, int]:
    """The directory by the zip64 records, and where they begin; both end records must agree."""
    _, disk, end, disks = _LOCATOR.unpack(locator)
    if end + _END64.size != at or disk or disks != 1:
        raise WheelError("its zip64 records do not follow each other")
    data = _END64.unpack(_read(file, end, _END64.size))
    signature, rest, _, _, disk, first_disk, here, count, size, offset = data
    if signature != b"PK\6\6" or rest != _END64.size - 12 or disk or first_disk or here != count:
        raise _malformed("its zip64 end record is none")
    if (
        short.offset not in (offset, _MAX32)
        or short.size not in (size, _MAX32)
        or short.count not in (count, _MAX16)
    ):
        raise WheelError("its two end records name different directories")
    return _Directory(offset, size, count), end


def _central_headers(file: IO[bytes], directory: _Directory) -> Iterator[tuple[Member, int]]:
    """Each member of the directory without the place of its data, and its flags."""
    data = _read(file, directory.offset, directory.size)
    at = 0
    for number in range(1, directory.count + 1):
        fields = _CENTRAL.unpack_from(data, at)
        signature, _, version, flags, method, _, _, crc, packed, size = fields[:10]
        name_size, extra_size, comment, disk, _, attributes, header = fields[10:]
        if signature != b"PK\1\2":
            raise _malformed(f"entry {number} of its directory is none")
        start = at + _CENTRAL.size
        at = start + name_size + extra_size
        if at > len(data):
            raise _malformed(f"entry {number} of its directory is cut short")
        name = _decode_name(data[start : start + name_size], flags)
        if version > _VERSION:
            raise WheelError(f"member {name!r} needs version {version}; {_VERSION} expected")
        if comment:
            raise WheelError(f"member {name!r} has a comment")
        extra = _zip64_values(data[start + name_size : at], name)
        size, packed, header, disk = _fill_in(
            ((size, _MAX32), (packed, _MAX32), (header, _MAX32), (disk, _MAX16)), extra, name
        )
        if disk:
            raise _malformed("it has several parts")
        # Only Unix (3) and macOS (19) write a mode, but installers believe it from anybody.
        yield Member(name, method, crc, packed, size, header, attributes >> 16), flags
    if at != len(data):
        raise WheelError(f"{len(data) - at} bytes in its directory are of no entry")


def _decode_name(raw: bytes, flags: int) -> str:
    try:
        name = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise WheelError(f"member {raw[:80]!r}: its name is not UTF-8") from None
    if not flags & _UTF8 and not name.isascii():
        raise WheelError(f"member {name[:80]!r}: its name is not marked as UTF-8")
    return name


def _zip64_values(extra: bytes, name: str) -> bytes | None:
    """The field of a member with its large sizes; None without one."""
    found: bytes | None = None
    at = 0
    while at < len(extra):
        kind, size = _EXTRA.unpack_from(extra, at)
        at += _EXTRA.size
        if at + size > len(extra):
            raise WheelError(f"member {name!r}: its extra fields are cut short")
        if kind == _UNICODE_NAME:
            raise WheelError(f"member {name!r} has a second name in an extra field")
        if kind == _ZIP64:
            if found is not None or size % 4:
                raise WheelError(f"member {name!r}: its zip64 field is malformed")
            found = extra[at : at + size]
        at += size
    return found


def _fill_in(fields: Sequence[tuple[int, int]], extra: bytes | None, name: str) -> tuple[int, ...]:
    """The fields, with those at their maximum replaced by the zip64 field's, in its order."""
    values = []
    rest = extra or b""
    for value, maximum in fields:
        size = 0 if value != maximum else 4 if maximum == _MAX16 else 8
        if len(rest) < size:
            raise WheelError(f"member {name!r}: its zip64 field is malformed")
        values.append(int.from_bytes(rest[:size], "little") if size else value)
        rest = rest[size:]
    return tuple(values)


def _with_data(file: IO[bytes], member: Member, flags: int) -> Member:
    """The member with the place of its data, by its header, which must say the same of it."""
    name = member.name
    if flags & _ENCRYPTED:
        raise WheelError(f"member {name!r} is encrypted")
    if flags & _DESCRIPTOR:
        raise WheelError(f"member {name!r}: its sizes stand after its data (a data descriptor)")
    if flags & ~_FLAGS:
        raise WheelError(f"member {name!r} has flags {flags:#x}, which are not expected")
    fields = _LOCAL.unpack(_read(file, member.header, _LOCAL.size))
    signature, _, local_flags, method, _, _, crc, packed, size, name_size, extra_size = fields
    if signature != b"PK\3\4":
        raise _malformed(f"no header of member {name!r} at byte {member.header}")
    rest = _read(file, member.header + _LOCAL.size, name_size + extra_size)
    extra = _zip64_values(rest[name_size:], name)
    size, packed = _fill_in(((size, _MAX32), (packed, _MAX32)), extra, name)
    here = (rest[:name_size], local_flags, method, crc, packed, size)
    there = (name.encode(), flags, member.method, member.crc, member.packed, member.size)
    if here != there:
        raise WheelError(f"member {name!r}: its header and the archive's directory differ")
    return dataclasses.replace(member, data=member.header + _LOCAL.size + len(rest))


def _require_no_gaps(members: Sequence[Member], end: int) -> None:
    """The members fill the file up to the directory, so no reader finds another one."""
    at = 0
    for member in sorted(members, key=lambda member: member.header):
        if member.header != at:
            gap = member.header - at
            fact = "overlaps another" if gap < 0 else f"comes after {gap} bytes of no member"
            raise WheelError(f"member {member.name!r} {fact}")
        at = member.data + member.packed
    if at != end:
        raise WheelError(f"{end - at} bytes between the last member and the directory")
