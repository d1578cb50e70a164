"""A shared object as the dynamic loader sees it: what it asks for, what it gives."""

import contextlib
import dataclasses
import functools
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerDefSection

from torchwheel.inspect.elf import bent_is_an_error


@dataclasses.dataclass(frozen=True)
class SharedObject:
    """One ELF file and its dynamic section.

    Attributes:
        path: the file.
        machine: as ELF names it, e.g. "EM_X86_64".
        soname: its own name, the file's where it has none.
        needed: sonames that it asks for.
        rpath: folders searched before LD_LIBRARY_PATH, for it and for what it brings in.
        runpath: folders searched after it, for this object alone.
    """

    path: Path
    machine: str
    soname: str
    needed: tuple[str, ...]
    rpath: tuple[Path, ...]
    runpath: tuple[Path, ...]


@functools.lru_cache(maxsize=1024)
def read(path: Path) -> SharedObject:
    """Read the dynamic section; a file that is no ELF file is a WheelError."""
    with _opened(path) as elf:
        section = elf.get_section_by_name(".dynamic")
        # A tag has `needed`, `soname` … only where it is of that kind, hence Any.
        tags: list[Any] = list(section.iter_tags()) if isinstance(section, DynamicSection) else []
        by_kind: dict[str, list[Any]] = {}
        for tag in tags:
            by_kind.setdefault(tag.entry.d_tag, []).append(tag)
        runpath = _folders((tag.runpath for tag in by_kind.get("DT_RUNPATH", [])), path)
        rpath = _folders((tag.rpath for tag in by_kind.get("DT_RPATH", [])), path)
        return SharedObject(
            path=path,
            machine=str(elf["e_machine"]),
            soname=next((str(tag.soname) for tag in by_kind.get("DT_SONAME", [])), path.name),
            needed=tuple(str(tag.needed) for tag in by_kind.get("DT_NEEDED", [])),
            # The loader looks at the older kind only where the newer is not there.
            rpath=() if runpath else rpath,
            runpath=runpath,
        )


def given(path: Path, names: Iterable[str]) -> frozenset[str]:
    """Those of `names` that a library defines, found through its hash table."""
    with _opened(path) as elf:
        table: Any = elf.get_section_by_name(".gnu.hash") or elf.get_section_by_name(".hash")
        if table is None:
            return frozenset()
        found = ((name, table.get_symbol(name)) for name in names)
        return frozenset(n for n, symbol in found if symbol and symbol["st_shndx"] != "SHN_UNDEF")


def versions_given(path: Path) -> frozenset[str]:
    """Symbol versions that a library defines, e.g. "GLIBCXX_3.4.30"."""
    with _opened(path) as elf:
        section = elf.get_section_by_name(".gnu.version_d")
        if not isinstance(section, GNUVerDefSection):
            return frozenset()
        return frozenset(
            str(auxiliary.name) for _, names in section.iter_versions() for auxiliary in names
        )


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[ELFFile]:
    with bent_is_an_error(path.name), path.open("rb") as file:
        yield ELFFile(file)


def _folders(texts: Iterable[str], path: Path) -> tuple[Path, ...]:
    origin = str(path.resolve().parent)
    return tuple(
        Path(os.path.normpath(folder.replace("${ORIGIN}", origin).replace("$ORIGIN", origin)))
        for text in texts
        for folder in text.split(":")
        if folder
    )
