"""Facts of an ELF library: what it needs of the system, its symbols, its sections."""

import dataclasses
import re
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Literal

from torchwheel_runtime.arch.model import Arch
from torchwheel_runtime.inspect.elf_file import NEEDED, SONAME, UNDEFINED, WEAK, ElfFile, open_elf
from torchwheel_runtime.versions import version_numbers

EXPORTED = (1, 2, 10)
"""Bindings of symbols that other libraries see: global, weak, unique."""
_NO_VERSION = 1
"""The numbers up to it mean a symbol without a version."""
_VERSION_NUMBER = 0x7FFF
"""The bits of the number; the highest one hides a symbol."""


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
    machine: str = ""
    soname: str | None = None
    needed: tuple[str, ...] = ()
    undefined: tuple[UndefinedSymbol, ...] = ()


@dataclasses.dataclass(frozen=True)
class GpuCode:
    """One module of GPU code in a library.

    Attributes:
        kind: machine code for NVIDIA ("sass") or AMD ("hsaco"), or PTX.
        arch: the GPU that it is for, as `in_binary` gives it.
        kernels: mangled names, sorted; empty for PTX, whose kernels are not listed.
        ptx_version: the version that PTX names, e.g. "9.0" as CUDA 13.0 writes it.
    """

    kind: Literal["sass", "ptx", "hsaco"]
    arch: Arch
    kernels: tuple[str, ...] = ()
    ptx_version: str | None = dataclasses.field(default=None, compare=False)


def read_library(path: Path, name: str | None = None) -> Library:
    """Read an ELF file; errors and gates call it `name`."""
    name = name or path.name
    with open_elf(path, name) as elf:
        return Library(
            name=name,
            machine=elf.machine_name,
            soname=next(iter(elf.dynamic_texts(SONAME)), None),
            needed=elf.dynamic_texts(NEEDED),
            undefined=tuple(
                sorted(set(undefined_symbols(elf)), key=lambda one: (one.name, one.version or ""))
            ),
        )


def section_names(path: Path) -> frozenset[str]:
    """Names of a library's sections."""
    with open_elf(path) as elf:
        return frozenset(elf.sections)


def glibc_floor(library: Library) -> str | None:
    """The newest glibc that a library needs, e.g. "2.34" for GLIBC_2.34; None if it needs none."""
    parts = ((symbol.version or "").partition("_") for symbol in library.undefined)
    # GLIBC_PRIVATE has no number.
    newest = max((version_numbers(end) for name, _, end in parts if name == "GLIBC"), default=())
    return ".".join(map(str, newest)) or None


def versions_needed(library: Library) -> dict[str, tuple[str, ...]]:
    """Symbol versions by the library that provides them, e.g. libc.so.6: GLIBC_2.17."""
    versions: dict[str, set[str]] = {}
    for symbol in library.undefined:
        if symbol.library and symbol.version:
            versions.setdefault(symbol.library, set()).add(symbol.version)
    return {name: tuple(sorted(versions[name])) for name in sorted(versions)}


def libraries_not_named(
    needed: Collection[str], undefined: Iterable[UndefinedSymbol]
) -> tuple[str, ...]:
    """Libraries whose versions of symbols are needed, though the libraries are not.

    The loader ends the process there: `Assertion 'needed != NULL' failed`. Python has loaded those
    of the C library.
    """
    named = {one.library for one in undefined if one.library} - {*needed}
    return tuple(sorted(name for name in named if not name.startswith(_OF_GLIBC)))


_OF_GLIBC = ("libc.so.", "libm.so.", "libdl.so.", "libpthread.so.", "librt.so.", "ld-linux")


def symbol_count(path: Path) -> int:
    """How many dynamic symbols a library has, by the size of their table."""
    with open_elf(path) as elf:
        return elf.symbol_count(".dynsym")


def exported_symbols(path: Path) -> frozenset[str]:
    """Names of the symbols a library defines for others."""
    with open_elf(path) as elf:
        return frozenset(
            symbol.name
            for symbol in elf.symbols()
            if symbol.section != UNDEFINED and symbol.bind in EXPORTED
        )


def undefined_symbols(elf: ElfFile) -> Iterator[UndefinedSymbol]:
    """The symbols that the loader must find, in the order of the file."""
    numbers = elf.symbol_versions()
    versions = {number: (version, library) for number, library, version in elf.needed_versions()}
    for index, symbol in enumerate(elf.symbols()):
        if symbol.section != UNDEFINED or not symbol.name:
            continue
        number = numbers[index] & _VERSION_NUMBER if numbers else _NO_VERSION
        needed = versions[number] if number > _NO_VERSION else (None, None)
        yield UndefinedSymbol(symbol.name, symbol.bind == WEAK, *needed)


SHIMS = ("torch_", "aoti_torch_")
"""Prefixes of libtorch's C names; a stable library may use these only."""
TORCH_PYTHON = "THP"
"""The prefix of libtorch_python's C names."""
PYTHON = ("Py", "_Py")
"""Prefixes of the names of Python's C symbols."""
# A namespace of torch in Itanium mangling: its length, its name, then a name or an operator in it
# (e.g. "ls").
_CXX = re.compile(r"_Z.*?(?<!\d)(?:2at|3c10|5torch|6caffe2)(?=[0-9La-z])")
_NESTED = re.compile(r"_ZN[KVr]*[RO]?")
_LENGTH = re.compile(r"[1-9]\d{0,8}")  # no symbol is longer


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
