"""Reads ELF files within a budget: no table is followed beyond the file and the limits.

It has what libraries of wheels have: 64 bits, little endian. Section headers name the tables here,
and the dynamic loader finds them through the program headers, so both must mean the same tables.
"""

import contextlib
import functools
import io
import os
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, NamedTuple

from torchwheel_runtime.inspect import budgets
from torchwheel_runtime.inspect.window import WheelError, Window, open_regular

X86_64, AARCH64, CUDA, AMDGPU = 62, 183, 190, 224
_MACHINES = {
    3: "386",
    21: "ppc64",
    22: "s390",
    40: "arm",
    X86_64: "x86_64",
    AARCH64: "aarch64",
    CUDA: "cuda",
    AMDGPU: "amdgpu",
    243: "riscv",
    258: "loongarch",
}

# Kinds of sections, segments and dynamic tags.
_NOBITS, _DYNAMIC, _DYNSYM = 8, 6, 11
_SYMTAB = 2
_LOAD, _PT_DYNAMIC = 1, 2
NEEDED, SONAME, RPATH, RUNPATH = 1, 14, 15, 29
_NULL, _STRTAB, _SYMTAB_TAG = 0, 5, 6
_VERSYM, _VERDEF, _VERNEED = 0x6FFFFFF0, 0x6FFFFFFC, 0x6FFFFFFE
_TABLES = {
    _STRTAB: ".dynstr",
    _SYMTAB_TAG: ".dynsym",
    _VERSYM: ".gnu.version",
    _VERDEF: ".gnu.version_d",
    _VERNEED: ".gnu.version_r",
}
"""The sections of the tables to which dynamic tags lead the loader."""
UNDEFINED = 0
"""The section of a symbol that others define."""
WEAK = 2

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_TAG = struct.Struct("<qQ")
_VERSION_NEEDED = struct.Struct("<HHIII")
_VERSION_DEFINED = struct.Struct("<HHHHIII")
_NEEDED_NAME = struct.Struct("<IHHII")
_DEFINED_NAME = struct.Struct("<II")


class SectionHeader(NamedTuple):
    """A section header."""

    name: str
    kind: int
    address: int
    offset: int
    size: int
    link: int
    info: int


class Symbol(NamedTuple):
    """A symbol; `section` is `UNDEFINED` for one that others define."""

    name: str
    bind: int
    kind: int
    other: int
    section: int


def machine_name(machine: int) -> str:
    """A processor by its number, e.g. "x86_64"."""
    return _MACHINES.get(machine, f"machine {machine}")


@contextlib.contextmanager
def open_elf(path: Path, name: str | None = None) -> Iterator["ElfFile"]:
    """Open an ELF file; any fault of it is a WheelError that calls it `name`."""
    name = name or path.name
    with refuse_malformed(name), open_regular(path) as file:
        yield ElfFile(file)


def elf_of_bytes(data: bytes) -> "ElfFile":
    """An ELF file in memory, e.g. the code object of a GPU."""
    return ElfFile(io.BytesIO(data))


@contextlib.contextmanager
def refuse_malformed(name: str) -> Iterator[None]:
    """Turn any error about a malformed ELF file into one WheelError."""
    try:
        yield
    except _MalformedError as error:
        raise WheelError(f"{name}: not an ELF file that can be read: {error}") from error
    except (struct.error, LookupError, ValueError, OverflowError) as error:
        raise WheelError(f"{name}: not an ELF file that can be read: {error!r}") from error


class _MalformedError(WheelError):
    """A fault of an ELF file; the text does not name the file."""


class ElfFile:
    """An open ELF file.

    Attributes:
        machine: number of the processor that it is for.
        abi_version: the byte of that name.
        flags: of the processor.
        sections: by name. Of several with one name, which object files have, the first counts.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._size = file.seek(0, os.SEEK_END)
        identity = self._read(0, 16)
        if not identity.startswith(b"\x7fELF"):
            raise _MalformedError("it does not begin as one")
        if identity[4:6] != b"\2\1":
            raise _MalformedError("64 bits, little endian expected")
        self.abi_version = identity[8]
        header = _HEADER.unpack(self._read(0, _HEADER.size))
        _, _, self.machine, _, _, segments_at, sections_at, self.flags = header[:8]
        _, segment_size, segments, section_size, sections, names = header[8:]
        self._segments = self._table(_SEGMENT, segments_at, segments, segment_size, "segments")
        found = self._read_sections(sections_at, sections, section_size)
        self._headers = self._section_headers(found, names)
        self.sections: dict[str, SectionHeader] = {}
        for section in self._headers:
            self.sections.setdefault(section.name, section)

    @property
    def machine_name(self) -> str:
        """The processor, e.g. "x86_64"."""
        return machine_name(self.machine)

    def _read(self, at: int, size: int) -> bytes:
        if at + size > self._size:
            raise _MalformedError(
                f"{size} bytes expected at byte {at}, it has {self._size} (cut short?)"
            )
        self._file.seek(at)
        return self._file.read(size)

    def _table(
        self, row: struct.Struct, at: int, count: int, size: int, what: str
    ) -> list[tuple[int, ...]]:
        most = budgets.SEGMENTS if row is _SEGMENT else budgets.SECTIONS
        if count > most:
            raise _MalformedError(f"{count} {what}; at most {most} expected")
        if count and size != row.size:
            raise _MalformedError(f"{what} of {size} bytes; {row.size} expected")
        return list(row.iter_unpack(self._read(at, count * row.size))) if count else []

    def _read_sections(self, at: int, count: int, size: int) -> list[tuple[int, ...]]:
        if at and not count:
            # More than its header can count: the first section's size is the number.
            count = _SECTION.unpack(self._read(at, _SECTION.size))[5]
        return self._table(_SECTION, at, count, size, "sections")

    def _section_headers(self, rows: list[tuple[int, ...]], names: int) -> list[SectionHeader]:
        if names == 0xFFFF and rows:
            names = rows[0][6]
        if not rows or names >= len(rows):
            return []
        strings = self._read(rows[names][4], min(rows[names][5], 1 << 20))
        found = []
        for name, kind, _, address, offset, size, link, info, _, _ in rows:
            if kind not in (0, _NOBITS) and offset + size > self._size:
                raise _MalformedError("a section leads out of it (cut short?)")
            found.append(
                SectionHeader(_text(strings, name), kind, address, offset, size, link, info)
            )
        return found

    def section(self, name: str, most: int) -> bytes | None:
        """The bytes of a section, at most so many; None if there is no such section."""
        section = self.sections.get(name)
        return None if section is None else self._data(section, most)

    def window(self, name: str) -> Window:
        """A section to be read in parts; an empty one if there is no such section."""
        section = self.sections.get(name)
        if section is None or section.kind == _NOBITS:
            return Window(self._file, 0, 0)
        return Window(self._file, section.offset, section.size)

    def _data(self, section: SectionHeader, most: int) -> bytes:
        if section.size > most:
            raise _MalformedError(f"{section.name}: {section.size} bytes; at most {most} expected")
        return self._read(section.offset, section.size) if section.kind != _NOBITS else b""

    def _strings_of(self, section: SectionHeader) -> bytes:
        """The strings that a section names."""
        if section.link >= len(self._headers):
            raise _MalformedError(f"{section.name} has no strings")
        return self._data(self._headers[section.link], budgets.STRING_BYTES)

    def symbol_count(self, name: str) -> int:
        """How many symbols a table has."""
        section = self.sections.get(name)
        return section.size // _SYMBOL.size if section else 0

    def symbols(self, name: str = ".dynsym") -> Iterator[Symbol]:
        """The symbols of a table, the first of which is empty; none without the table."""
        section = self.sections.get(name)
        if section is None or section.kind not in (_DYNSYM, _SYMTAB):
            return
        if (count := self.symbol_count(name)) > budgets.SYMBOLS:
            raise _MalformedError(f"{count} symbols in {name}; at most {budgets.SYMBOLS} expected")
        strings = self._strings_of(section)
        characters = 0
        for start, info, other, home, _, _ in _SYMBOL.iter_unpack(self._data(section, self._size)):
            text = _text(strings, start)
            # Many symbols may share one long name.
            characters += len(text)
            if characters > budgets.STRING_BYTES:
                raise _MalformedError(f"names of more than {budgets.STRING_BYTES} bytes in {name}")
            yield Symbol(text, info >> 4, info & 15, other, home)

    def defined_among(self, names: Iterable[str]) -> frozenset[str]:
        """Those of the names that the dynamic symbols define.

        Their texts are looked for, so that not every symbol of a large library becomes an object.
        """
        section = self.sections.get(".dynsym")
        if section is None:
            return frozenset()
        strings = self._strings_of(section)
        data = self._data(section, budgets.SYMBOLS * _SYMBOL.size)
        starts = {row[0] for row in _SYMBOL.iter_unpack(data) if row[3] != UNDEFINED}
        return frozenset(
            name for name in names if not starts.isdisjoint(_places(strings, name.encode() + b"\0"))
        )

    @functools.cached_property
    def dynamic(self) -> tuple[tuple[int, int], ...]:
        """The dynamic tags up to the one that ends them; the loader must find the same tables."""
        section = self.sections.get(".dynamic")
        segments = [row for row in self._segments if row[0] == _PT_DYNAMIC]
        places = [(row[2], row[5]) for row in segments]
        if places and places != [(section.offset, section.size)] if section else places:
            raise _MalformedError("the loader and .dynamic name different tables")
        if section is None or section.kind != _DYNAMIC:
            return ()
        data = self._data(section, budgets.DYNAMIC_TAGS * _TAG.size)
        tags: list[tuple[int, int]] = []
        for tag, value in _TAG.iter_unpack(data):
            if tag == _NULL:
                break
            tags.append((tag, value))
        if places:
            self._require_same_tables(dict(tags))
        return tuple(tags)

    def _require_same_tables(self, tags: dict[int, int]) -> None:
        for tag, name in _TABLES.items():
            section = self.sections.get(name)
            expected = None if section is None else section.offset
            found = self._offset_of(tags[tag]) if tag in tags else None
            if found != expected:
                raise _MalformedError(f"the loader and the section {name} name different tables")

    def _offset_of(self, address: int) -> int | None:
        """The place in the file that the loader maps to an address."""
        for kind, _, offset, start, _, size, _, _ in self._segments:
            if kind == _LOAD and start <= address < start + size:
                return offset + address - start
        return None

    def dynamic_texts(self, tag: int) -> tuple[str, ...]:
        """The texts of all dynamic tags of a kind, e.g. `NEEDED`."""
        values = [value for found, value in self.dynamic if found == tag]
        strings = self._strings_of(self.sections[".dynamic"]) if values else b""
        return tuple(_text(strings, value) for value in values)

    def symbol_versions(self) -> tuple[int, ...]:
        """The number of each dynamic symbol's version; none without versions."""
        data = self.section(".gnu.version", 2 * (budgets.SYMBOLS + 1)) or b""
        return struct.unpack(f"<{len(data) // 2}H", data[: len(data) // 2 * 2])

    def needed_versions(self) -> Iterator[tuple[int, str, str]]:
        """The symbol versions that it needs: the number in this file, the library and the name."""
        for strings, data, at, row in self._version_entries(".gnu.version_r", _VERSION_NEEDED):
            _, count, library, start, _ = row
            for name in _chain(data, at + start, count, _NEEDED_NAME):
                yield name[2], _text(strings, library), _text(strings, name[3])

    def defined_versions(self) -> Iterator[str]:
        """The symbol versions that the library defines, each with those that it stands for."""
        for strings, data, at, row in self._version_entries(".gnu.version_d", _VERSION_DEFINED):
            for name, _ in _chain(data, at + row[5], row[3], _DEFINED_NAME):
                yield _text(strings, name)

    def _version_entries(
        self, name: str, form: struct.Struct
    ) -> Iterator[tuple[bytes, bytes, int, tuple[int, ...]]]:
        section = self.sections.get(name)
        if section is None:
            return
        data = self._data(section, budgets.VERSION_BYTES)
        strings = self._strings_of(section)
        at = 0
        for row in _chain(data, 0, section.info, form):
            yield strings, data, at, row
            at += row[-1]


def _chain(data: bytes, at: int, count: int, form: struct.Struct) -> Iterator[tuple[int, ...]]:
    """Records, each of which ends with the distance to the next one; the last has none."""
    if count > budgets.VERSIONS:
        raise _MalformedError(f"{count} symbol versions; at most {budgets.VERSIONS} expected")
    for rest in range(count - 1, -1, -1):
        row = form.unpack_from(data, at)
        yield row
        if (row[-1] == 0) != (rest == 0):
            raise _MalformedError(f"its symbol versions end {rest} records early, or too late")
        at += row[-1]


def _places(strings: bytes, text: bytes) -> Iterator[int]:
    at = strings.find(text)
    while at >= 0:
        yield at
        at = strings.find(text, at + 1)


def _text(strings: bytes, start: int) -> str:
    end = strings.find(b"\0", start, start + budgets.SYMBOL_BYTES)
    if end < 0:
        raise _MalformedError(f"no text of at most {budgets.SYMBOL_BYTES} bytes at {start}")
    text = strings[start:end].decode("utf-8", "replace")
    if not text.isprintable():
        raise _MalformedError(f"a name with control characters: {text[:60]!r}")
    return text
