"""What the dynamic loader would do with a library in a Python that has imported torch."""

import contextlib
import dataclasses
import functools
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerDefSection

from torchwheel import process
from torchwheel.inspect.archive import WheelError
from torchwheel.inspect.elf import Library, refuse_malformed, versions_needed


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
def read_shared_object(path: Path) -> SharedObject:
    """Read the dynamic section; a file that is no ELF file is a WheelError."""
    with _open_elf(path) as elf:
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


def provided_symbols(path: Path, names: Iterable[str]) -> frozenset[str]:
    """Those of `names` that a library defines, found through its hash table."""
    with _open_elf(path) as elf:
        table: Any = elf.get_section_by_name(".gnu.hash") or elf.get_section_by_name(".hash")
        if table is None:
            return frozenset()
        found = ((name, table.get_symbol(name)) for name in names)
        return frozenset(n for n, symbol in found if symbol and symbol["st_shndx"] != "SHN_UNDEF")


def provided_versions(path: Path) -> frozenset[str]:
    """Symbol versions that a library defines, e.g. "GLIBCXX_3.4.30"."""
    with _open_elf(path) as elf:
        section = elf.get_section_by_name(".gnu.version_d")
        if not isinstance(section, GNUVerDefSection):
            return frozenset()
        return frozenset(
            str(auxiliary.name) for _, names in section.iter_versions() for auxiliary in names
        )


@contextlib.contextmanager
def _open_elf(path: Path) -> Iterator[ELFFile]:
    with refuse_malformed(path.name), path.open("rb") as file:
        yield ELFFile(file)


def _folders(texts: Iterable[str], path: Path) -> tuple[Path, ...]:
    origin = str(path.resolve().parent)
    return tuple(
        Path(os.path.normpath(folder.replace("${ORIGIN}", origin).replace("$ORIGIN", origin)))
        for text in texts
        for folder in text.split(":")
        if folder
    )


_DEFAULT_FOLDERS = ("/lib64", "/usr/lib64", "/lib", "/usr/lib", "/usr/local/lib")


@dataclasses.dataclass(frozen=True)
class Links:
    """What a library asks for, and what of it is here.

    Attributes:
        found: path of every library that it brings in, by soname.
        absent: sonames nobody has, each with the soname of the library that asks for it.
        torch_symbols: names it takes from torch's libraries.
        undefined: names that no library it brings in defines.
        elsewhere: those of `undefined` that torch defines, in a library it does not ask for.
        old: (library here, version that it lacks), e.g. libstdc++.so.6 and "GLIBCXX_3.4.32".
    """

    found: Mapping[str, Path]
    absent: Mapping[str, str]
    torch_symbols: frozenset[str]
    undefined: frozenset[str]
    elsewhere: frozenset[str]
    old: tuple[tuple[Path, str], ...]


class Loader:
    """A Python process that has imported torch, as its loader sees it.

    Args:
        python: the interpreter's file.
        torch: folder of the torch package; None if there is none.
        environ: its environment.
    """

    def __init__(self, python: Path, torch: Path | None, environ: Mapping[str, str]) -> None:
        self._path = tuple(Path(p) for p in environ.get("LD_LIBRARY_PATH", "").split(":") if p)
        self._torch = (torch / "lib").resolve() if torch else None
        self._loaded: dict[str, SharedObject] = {}
        # What everybody sees: the interpreter, and what torch loads for all.
        executable = read_shared_object(python.resolve())
        self._machine, self._rpath = executable.machine, executable.rpath
        self._global = [executable, *self._brought(executable, {})]
        for name in ("libtorch_global_deps.so", "libtorch_python.so"):
            if self._torch and (file := self._torch / name).is_file():
                brought = [found := read_shared_object(file), *self._brought(found, {})]
                self._loaded |= {one.soname: one for one in brought}
                if name == "libtorch_global_deps.so":
                    self._global += brought

    def links(self, library: Library, path: Path) -> Links:
        """Follow a library, `path` its file, to everything it asks for."""
        absent: dict[str, str] = {}
        top = read_shared_object(path)
        brought = self._brought(top, absent)
        wanted = {s.name for s in library.undefined if s.version is None and not s.weak}
        from_torch: frozenset[str] = frozenset()
        for one in (*self._global, *brought):
            if not wanted:
                break
            given = provided_symbols(one.path, wanted)
            wanted -= given
            if self._of_torch(one.path):
                from_torch |= given
        found = {one.soname: one.path for one in brought}
        return Links(
            found=found,
            absent=absent,
            torch_symbols=from_torch,
            undefined=frozenset(wanted),
            elsewhere=self._given_by_torch(wanted) if wanted else frozenset(),
            old=tuple(_outdated_libraries(library, found)),
        )

    def _given_by_torch(self, names: Iterable[str]) -> frozenset[str]:
        libraries = sorted(self._torch.glob("lib*.so")) if self._torch else []
        return frozenset().union(*(provided_symbols(path, names) for path in libraries))

    def _of_torch(self, path: Path) -> bool:
        return self._torch is not None and path.resolve().is_relative_to(self._torch)

    def _brought(self, top: SharedObject, absent: dict[str, str]) -> list[SharedObject]:
        """What an object brings in, breadth first as the loader does it, without itself."""
        found: dict[str, SharedObject] = {}
        # The older kind of run path is inherited, from the interpreter too.
        queue: list[tuple[SharedObject, tuple[Path, ...]]] = [(top, (*top.rpath, *self._rpath))]
        for one, rpath in queue:
            for soname in one.needed:
                if soname in found or soname in absent:
                    continue
                there = self._loaded.get(soname) or self._search(soname, one, rpath)
                if there is None:
                    absent[soname] = one.soname
                else:
                    found[soname] = there
                    queue.append((there, (*there.rpath, *rpath)))
        return list(found.values())

    def _search(
        self, soname: str, asker: SharedObject, rpath: tuple[Path, ...]
    ) -> SharedObject | None:
        folders = (*(() if asker.runpath else rpath), *self._path, *asker.runpath)
        candidates = (folder / soname for folder in folders)
        usual = (Path(folder, soname) for folder in _DEFAULT_FOLDERS)
        for path in (*candidates, *_ldconfig_libraries().get(soname, ()), *usual):
            if (there := self._readable(path)) is not None:
                return there
        return None

    def _readable(self, path: Path) -> SharedObject | None:
        """The object at a path; the loader passes over files of another machine."""
        try:
            there = read_shared_object(path)
        except WheelError:
            return None
        return there if there.machine == self._machine else None


def _outdated_libraries(library: Library, found: Mapping[str, Path]) -> Iterator[tuple[Path, str]]:
    for soname, versions in versions_needed(library).items():
        if path := found.get(soname):
            for version in sorted(set(versions) - provided_versions(path)):
                yield path, version


@functools.cache
def _ldconfig_libraries() -> Mapping[str, Iterable[Path]]:
    """Libraries in the system's cache, by soname, as `ldconfig -p` lists them."""
    for program in ("/sbin/ldconfig", "/usr/sbin/ldconfig"):
        if not os.access(program, os.X_OK):
            continue
        done = process.run([program, "-p"])
        table: dict[str, list[Path]] = {}
        for soname, path in re.findall(r"^\s+(\S+) \(.*\) => (\S+)$", done.output, re.MULTILINE):
            table.setdefault(soname, []).append(Path(path))
        return table
    return {}
