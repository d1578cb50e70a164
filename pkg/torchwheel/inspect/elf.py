"""Facts of an ELF library: what it needs of the system, its symbols, its sections."""

import contextlib
import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from elftools.common.exceptions import ELFError
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection, GNUVerSymSection
from elftools.elf.sections import SymbolTableSection

from torchwheel.arch.model import Arch
from torchwheel.inspect.archive import WheelError
from torchwheel.versions import version_numbers


@dataclasses.dataclass(frozen=True, order=True)
class UndefinedSymbol:
    """A symbol the loader must find, with its version and its library if it is versioned."""

    name: str
    weak: bool = False
    version: str | None = None
    library: str | None = None


@dataclasses.dataclass(frozen=True)
class Library:
    """The dynamic section of an ELF file. `name` is its path in the wheel."""

    name: str
    machine: str
    soname: str | None
    needed: tuple[str, ...]
    undefined: tuple[UndefinedSymbol, ...]


@dataclasses.dataclass(frozen=True)
class GpuCode:
    """One module of GPU code in a library.

    Attributes:
        kind: machine code for NVIDIA ("sass") or AMD ("hsaco"), or PTX.
        arch: the GPU that it is for, as `in_binary` gives it.
        kernels: mangled names, sorted; empty for PTX, whose kernels are not listed.
    """

    kind: Literal["sass", "ptx", "hsaco"]
    arch: Arch
    kernels: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class GlibcFloor:
    """The newest glibc a library asks for, and the symbols that ask for it."""

    version: tuple[int, ...]
    symbols: tuple[str, ...]


def read_library(path: Path, name: str | None = None) -> Library:
    """Read an ELF file; errors and gates call it `name`."""
    name = name or path.name
    with refuse_malformed(name), path.open("rb") as file:
        elf = ELFFile(file)
        dynamic = elf.get_section_by_name(".dynamic")
        # A tag has `soname` or `needed` only where it is of that kind, hence Any.
        tags: list[Any] = list(dynamic.iter_tags()) if isinstance(dynamic, DynamicSection) else []
        return Library(
            name=name,
            machine=str(elf["e_machine"]).removeprefix("EM_").lower(),
            soname=next((str(t.soname) for t in tags if t.entry.d_tag == "DT_SONAME"), None),
            needed=tuple(str(t.needed) for t in tags if t.entry.d_tag == "DT_NEEDED"),
            undefined=tuple(sorted(set(_undefined(elf)), key=_order)),
        )


@contextlib.contextmanager
def refuse_malformed(name: str) -> Iterator[None]:
    """Turn any error of pyelftools on a malformed ELF file into one WheelError."""
    try:
        yield
    # pyelftools also fails in its own assertions, lookups, seeks and divisions.
    except (
        *(ELFError, AssertionError, AttributeError, TypeError),
        *(ArithmeticError, LookupError, OSError, ValueError),
    ) as error:
        raise WheelError(f"{name}: not an ELF file that can be read: {error!r}") from error


def section_names(path: Path) -> frozenset[str]:
    """Names of a library's sections."""
    with refuse_malformed(path.name), path.open("rb") as file:
        return frozenset(section.name for section in ELFFile(file).iter_sections())


def section(path: Path, name: str) -> bytes | None:
    """The bytes of a section as they lie in the file; None if there is no such section."""
    with refuse_malformed(path.name), path.open("rb") as file:
        found = ELFFile(file).get_section_by_name(name)
        if found is None:
            return None
        file.seek(found["sh_offset"])
        # The file states the size, which may be wrong: never read past the end of the file.
        data = file.read(min(found["sh_size"], path.stat().st_size))
        if len(data) != found["sh_size"]:
            raise WheelError(f"{path.name}: section {name} is cut short")
        return data


def glibc_floor(library: Library) -> GlibcFloor | None:
    """The newest GLIBC_x.y that a library needs, with its symbols; None if it needs none."""
    by_version: dict[tuple[int, ...], list[str]] = {}
    for symbol in library.undefined:
        prefix, _, number = (symbol.version or "").partition("_")
        # GLIBC_PRIVATE has no number.
        if prefix == "GLIBC" and (version := version_numbers(number)):
            by_version.setdefault(version, []).append(symbol.name)
    if not by_version:
        return None
    newest = max(by_version)
    return GlibcFloor(newest, tuple(sorted(set(by_version[newest]))))


def versions_needed(library: Library) -> dict[str, tuple[str, ...]]:
    """Symbol versions by the library that provides them, e.g. libc.so.6: GLIBC_2.17."""
    versions: dict[str, set[str]] = {}
    for symbol in library.undefined:
        if symbol.library and symbol.version:
            versions.setdefault(symbol.library, set()).add(symbol.version)
    return {name: tuple(sorted(versions[name])) for name in sorted(versions)}


def exported_symbols(path: Path) -> frozenset[str]:
    """Names of the symbols a library defines for others."""
    with path.open("rb") as file:
        table = ELFFile(file).get_section_by_name(".dynsym")
        if not isinstance(table, SymbolTableSection):
            return frozenset()
        return frozenset(
            symbol.name
            for symbol in table.iter_symbols()
            if symbol["st_shndx"] != "SHN_UNDEF"
            and symbol["st_info"]["bind"] in ("STB_GLOBAL", "STB_WEAK", "STB_LOOS")
        )


def _order(symbol: UndefinedSymbol) -> tuple[str, str]:
    return symbol.name, symbol.version or ""


def _undefined(elf: ELFFile) -> Iterator[UndefinedSymbol]:
    table = elf.get_section_by_name(".dynsym")
    if not isinstance(table, SymbolTableSection):
        return
    versym = elf.get_section_by_name(".gnu.version")
    versions = _versions(elf)
    for index, symbol in enumerate(table.iter_symbols()):
        if symbol["st_shndx"] != "SHN_UNDEF" or not symbol.name:
            continue
        version: str | None = None
        library: str | None = None
        if isinstance(versym, GNUVerSymSection):
            number = versym.get_symbol(index)["ndx"]
            # pyelftools gives the two numbers that mean "no version" as text.
            if isinstance(number, int):
                library, version = versions[number & 0x7FFF]
        yield UndefinedSymbol(
            symbol.name, symbol["st_info"]["bind"] == "STB_WEAK", version, library
        )


def _versions(elf: ELFFile) -> dict[int, tuple[str, str]]:
    section = elf.get_section_by_name(".gnu.version_r")
    if not isinstance(section, GNUVerNeedSection):
        return {}
    return {
        auxiliary["vna_other"]: (str(need.name), str(auxiliary.name))
        for need, auxiliaries in section.iter_versions()
        for auxiliary in auxiliaries
    }


SHIMS = ("torch_", "aoti_torch_")
"""Prefixes of libtorch's C names; a stable library may use these only."""
# A namespace of torch in Itanium mangling: its length, its name, then a name or an operator in it
# (e.g. "ls").
_CXX = re.compile(r"_Z.*?(?<!\d)(?:2at|3c10|5torch|6caffe2)(?=[0-9La-z])")
_NESTED = re.compile(r"_ZN[KVr]*")
_LENGTH = re.compile(r"[1-9]\d*")


def is_cxx(name: str) -> bool:
    """Whether a symbol is a C++ symbol of torch, which only some of its minor releases have."""
    return _CXX.match(name) is not None


def qualified_name(name: str) -> str:
    """The qualified name in a mangled one, e.g. "c10::cuda::SetDevice"; else the name as it is."""
    start = _NESTED.match(name)
    parts: list[str] = []
    at = start.end() if start else len(name)
    while length := _LENGTH.match(name, at):
        at = length.end() + int(length[0])
        parts.append(name[length.end() : at])
    return "::".join(parts) if parts else name
