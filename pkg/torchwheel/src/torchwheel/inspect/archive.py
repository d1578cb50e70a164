"""Opens a zip archive safely: names, file types and sizes are checked before the bytes."""

import contextlib
import hashlib
import os
import stat
import unicodedata
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import IO

from torchwheel.inspect.zip_records import DEFLATED, STORED, Member, read_members
from torchwheel_runtime.files import record_hash
from torchwheel_runtime.inspect import budgets
from torchwheel_runtime.inspect.window import WheelError, open_regular

_BLOCK = 1 << 20
_SPECIAL_BITS = stat.S_ISUID | stat.S_ISGID | stat.S_ISVTX


class _MemberError(WheelError):
    """The bytes of a member are not what the archive says; the text does not name the archive."""


class Archive:
    """The members of an open archive, and their bytes.

    Attributes:
        members: by name, in the archive's order; each name leads to one place on any system.
    """

    def __init__(self, file: IO[bytes], members: Sequence[Member]) -> None:
        self._file = file
        self.members: Mapping[str, Member] = {member.name: member for member in members}

    @property
    def files(self) -> tuple[Member, ...]:
        """The members that are no folders."""
        return tuple(member for member in self.members.values() if not member.is_folder)

    def read(self, member: Member) -> bytes:
        """All bytes of a member; the caller has judged its size."""
        return b"".join(self.blocks(member))

    def starts_with(self, member: Member, start: bytes) -> bool:
        """Whether a member's bytes begin so."""
        found = b""
        for data in self._unpack(member, 1 << 10):
            found += data
            if len(found) >= len(start):
                break
        return found.startswith(start)

    def digest(self, member: Member, file: IO[bytes] | None = None) -> str:
        """The hash of a member's bytes, as RECORD has it; they are written to `file`, if given."""
        digest = hashlib.sha256()
        for block in self.blocks(member):
            digest.update(block)
            if file is not None:
                file.write(block)
        return record_hash(digest.digest())

    def blocks(self, member: Member) -> Iterator[bytes]:
        """The bytes of a member, block by block; a WheelError unless they are what it claims."""
        crc = size = 0
        for data in self._unpack(member, _BLOCK):
            size += len(data)
            if size > member.size:
                break
            crc = zlib.crc32(data, crc)
            yield data
        if size != member.size:
            raise _MemberError(f"member {member.name!r} does not unpack to {member.size} bytes")
        if crc != member.crc:
            raise _MemberError(f"member {member.name!r} does not have its checksum")

    def _unpack(self, member: Member, block: int) -> Iterator[bytes]:
        at, rest = member.data, member.packed
        unpack = zlib.decompressobj(-zlib.MAX_WBITS) if member.method == DEFLATED else None
        while rest:
            # Others may read meanwhile, in other threads too.
            packed = os.pread(self._file.fileno(), min(rest, block), at)
            if not packed:
                raise _MemberError(f"member {member.name!r} is cut short")
            at, rest = at + len(packed), rest - len(packed)
            if unpack is None:
                yield packed
                continue
            while packed:
                if unpack.eof:
                    raise _MemberError(f"member {member.name!r}: bytes after its packed data")
                try:
                    data = unpack.decompress(packed, _BLOCK)
                except zlib.error as error:
                    raise _MemberError(f"member {member.name!r}: {error}") from error
                packed = unpack.unconsumed_tail or unpack.unused_data
                if data:
                    yield data
        # Without more input, what is left in the decompressor comes in one piece below a block.
        if unpack is not None and not unpack.eof:
            if data := unpack.decompress(b"", _BLOCK):
                yield data
            if not unpack.eof:
                raise _MemberError(f"member {member.name!r}: its packed data are cut short")


@contextlib.contextmanager
def open_archive(path: Path) -> Iterator[Archive]:
    """Open the archive; any fault, now or while it is read, is a WheelError of one line."""
    with open_regular(path) as file:
        try:
            members = read_members(file)
            if fault := _fault(members, os.fstat(file.fileno()).st_size):
                raise WheelError(fault)
        except WheelError as error:
            raise WheelError(f"{path.name}: {error}") from error
        try:
            yield Archive(file, members)
        except _MemberError as error:
            raise WheelError(f"{path.name}: {error}") from error


def _fault(members: Sequence[Member], file_size: int) -> str | None:
    for member in members:
        fault = _fault_of_name(member) or fault_of_length(member.name)
        if fault := fault or _fault_of_mode(member) or _fault_of_data(member):
            return f"member {member.name!r} {fault}"
    if fault := _fault_of_tree(members):
        return fault
    total = sum(member.size for member in members)
    if total > budgets.UNPACKED_BYTES:
        return f"unpacks to {total} bytes; the limit is {budgets.UNPACKED_BYTES}"
    if total > max(budgets.RATIO_FROM, budgets.RATIO * file_size):
        return f"unpacks {file_size} bytes to {total}: more than {budgets.RATIO} times, a zip bomb"
    return None


def _fault_of_name(member: Member) -> str | None:
    name, path = member.name, PurePosixPath(member.name)
    # Category C: control characters, and those that hide others or turn their direction.
    if "\\" in name or any(unicodedata.category(character)[0] == "C" for character in name):
        return "is not a portable name"
    if path.is_absolute() or ":" in name.split("/", 1)[0]:
        return "is an absolute name"
    if ".." in path.parts:
        return "leads out of the archive"
    # pathlib drops `.` and empty parts, and no two names may mean one file.
    if str(path) != name.removesuffix("/") or not path.parts:
        return "is not a name in its shortest form"
    return None


def fault_of_length(name: str) -> str | None:
    """What is wrong with a member's name, if it has too many parts or one that is too long."""
    parts = os.fsencode(name).split(b"/")
    if len(parts) > budgets.NAME_PARTS or max(map(len, parts)) > budgets.PART_BYTES:
        return (
            f"is too deep or too long: {budgets.NAME_PARTS} parts "
            f"of {budgets.PART_BYTES} bytes are the limit"
        )
    return None


def _fault_of_mode(member: Member) -> str | None:
    kind = stat.S_IFMT(member.mode)
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        what = "a symbolic link" if kind == stat.S_IFLNK else "a special file"
        return f"is {what}; a wheel holds plain files"
    if kind and (kind == stat.S_IFDIR) != member.is_folder:
        return "is a file by its name or its mode, and a folder by the other"
    if member.mode & _SPECIAL_BITS:
        return f"has mode {stat.S_IMODE(member.mode):o}; no setuid, setgid or sticky bit expected"
    return None


def _fault_of_data(member: Member) -> str | None:
    if member.method not in (STORED, DEFLATED):
        return f"is packed by method {member.method}; {STORED} or {DEFLATED} (deflate) expected"
    if member.is_folder and member.size:
        return "is a folder with bytes"
    if member.method == STORED and member.packed != member.size:
        return f"is not packed, but {member.size} bytes are {member.packed}"
    return None


def _fault_of_tree(members: Sequence[Member]) -> str | None:
    """Every name is one place, on a file system that takes `A` for `a` as well."""
    seen: dict[str, Member] = {}
    folders: set[str] = set()
    for member in members:
        key = unicodedata.normalize("NFC", member.name).casefold().removesuffix("/")
        other = seen.setdefault(key, member)
        if other is not member:
            same = f", as {other.name!r}" if other.name != member.name else ""
            return f"member {member.name!r} is there twice{same}"
        while "/" in key and (key := key.rpartition("/")[0]) not in folders:
            folders.add(key)
    if len(folders | seen.keys()) > budgets.MEMBERS:
        return f"has more than {budgets.MEMBERS} files and folders"
    for key in folders & seen.keys():
        if not seen[key].is_folder:
            return f"member {seen[key].name!r} is a file, and a folder of other members"
    return None
