"""What the dynamic loader would do with a library in a Python that has imported torch.

Libraries are looked for and symbols looked up in the loader's own order; nothing is loaded, so
nothing of the library runs.
"""

import dataclasses
import functools
import os
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from torchwheel.doctor import shared_object
from torchwheel.doctor.shared_object import SharedObject
from torchwheel.inspect.elf import Library, versions_needed
from torchwheel.inspect.errors import WheelError

_USUAL = ("/lib64", "/usr/lib64", "/lib", "/usr/lib", "/usr/local/lib")


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
        executable = shared_object.read(python.resolve())
        self._machine, self._rpath = executable.machine, executable.rpath
        self._global = [executable, *self._brought(executable, {})]
        for name in ("libtorch_global_deps.so", "libtorch_python.so"):
            if self._torch and (file := self._torch / name).is_file():
                brought = [found := shared_object.read(file), *self._brought(found, {})]
                self._loaded |= {one.soname: one for one in brought}
                if name == "libtorch_global_deps.so":
                    self._global += brought

    def links(self, library: Library, path: Path) -> Links:
        """Follow a library, `path` its file, to everything it asks for."""
        absent: dict[str, str] = {}
        top = shared_object.read(path)
        brought = self._brought(top, absent)
        wanted = {s.name for s in library.undefined if s.version is None and not s.weak}
        from_torch: frozenset[str] = frozenset()
        for one in (*self._global, *brought):
            if not wanted:
                break
            given = shared_object.given(one.path, wanted)
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
            old=tuple(_old(library, found)),
        )

    def _given_by_torch(self, names: Iterable[str]) -> frozenset[str]:
        libraries = sorted(self._torch.glob("lib*.so")) if self._torch else []
        return frozenset().union(*(shared_object.given(path, names) for path in libraries))

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
        usual = (Path(folder, soname) for folder in _USUAL)
        for path in (*candidates, *_system().get(soname, ()), *usual):
            if (there := self._readable(path)) is not None:
                return there
        return None

    def _readable(self, path: Path) -> SharedObject | None:
        """The object at a path; the loader passes over files of another machine."""
        try:
            there = shared_object.read(path)
        except WheelError:
            return None
        return there if there.machine == self._machine else None


def _old(library: Library, found: Mapping[str, Path]) -> Iterator[tuple[Path, str]]:
    for soname, versions in versions_needed(library).items():
        if path := found.get(soname):
            for version in sorted(set(versions) - shared_object.versions_given(path)):
                yield path, version


@functools.cache
def _system() -> Mapping[str, Iterable[Path]]:
    """Libraries in the system's cache, by soname, as `ldconfig -p` lists them."""
    for program in ("/sbin/ldconfig", "/usr/sbin/ldconfig"):
        if not os.access(program, os.X_OK):
            continue
        done = subprocess.run(
            [program, "-p"], capture_output=True, text=True, errors="replace", check=False
        )
        table: dict[str, list[Path]] = {}
        for soname, path in re.findall(r"^\s+(\S+) \(.*\) => (\S+)$", done.stdout, re.MULTILINE):
            table.setdefault(soname, []).append(Path(path))
        return table
    return {}
