"""Reads the native libraries of a package, and finds what they need as the loader does."""

import dataclasses
import functools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from torchwheel_runtime import process
from torchwheel_runtime.arch.model import Arch, Backend, CudaArch
from torchwheel_runtime.claims import Claims
from torchwheel_runtime.errors import TorchwheelError
from torchwheel_runtime.inspect.cuda import read_cuda_headers
from torchwheel_runtime.inspect.elf import (
    SHIMS,
    GpuCode,
    Library,
    glibc_floor,
    is_cxx,
    read_library,
    section_names,
    versions_needed,
)
from torchwheel_runtime.inspect.elf_file import NEEDED, RPATH, RUNPATH, SONAME, open_elf
from torchwheel_runtime.inspect.hip import SECTION, read_gpu_code
from torchwheel_runtime.inspect.packing import NoZstdError
from torchwheel_runtime.inspect.window import CpuTime, WheelError


@dataclasses.dataclass(frozen=True)
class SharedObject:
    """One ELF file and its dynamic section.

    Attributes:
        path: the file.
        machine: the processor that it is for, e.g. "x86_64".
        soname: its soname; the file's name if it has none.
        needed: sonames of the libraries that it needs.
        rpath: folders to search before LD_LIBRARY_PATH, for this object and its dependencies.
        runpath: folders to search after LD_LIBRARY_PATH, for this object alone.
    """

    path: Path
    machine: str
    soname: str
    needed: tuple[str, ...]
    rpath: tuple[Path, ...]
    runpath: tuple[Path, ...]


@functools.lru_cache(maxsize=1024)
def read_shared_object(path: Path) -> SharedObject:
    """Read the dynamic section. Raises a WheelError if the file is not an ELF file."""
    with open_elf(path) as elf:
        runpath = _folders(elf.dynamic_texts(RUNPATH), path)
        rpath = _folders(elf.dynamic_texts(RPATH), path)
        return SharedObject(
            path=path,
            machine=elf.machine_name,
            soname=next(iter(elf.dynamic_texts(SONAME)), path.name),
            needed=elf.dynamic_texts(NEEDED),
            # The loader ignores DT_RPATH if there is a DT_RUNPATH.
            rpath=() if runpath else rpath,
            runpath=runpath,
        )


def provided_symbols(path: Path, names: Iterable[str]) -> frozenset[str]:
    """The names that a library defines; without a hash table the loader finds none."""
    with open_elf(path) as elf:
        if not {".gnu.hash", ".hash"} & elf.sections.keys():
            return frozenset()
        return elf.defined_among(names)


def provided_versions(path: Path) -> frozenset[str]:
    """Symbol versions that a library defines, e.g. "GLIBCXX_3.4.30"."""
    with open_elf(path) as elf:
        return frozenset(elf.defined_versions())


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
    """The dependencies of a library, and which of them this system has.

    Attributes:
        found: path of each dependency, by soname.
        absent: sonames that no folder has, each with the soname of the library that needs it.
        torch_symbols: symbols that it uses from torch's libraries.
        undefined: symbols that no dependency defines.
        elsewhere: undefined symbols that a library of torch defines which is not a dependency.
        outdated: (library, version that it lacks), e.g. libstdc++.so.6 and "GLIBCXX_3.4.32".
    """

    found: Mapping[str, Path]
    absent: Mapping[str, str]
    torch_symbols: frozenset[str]
    undefined: frozenset[str]
    elsewhere: frozenset[str]
    outdated: tuple[tuple[Path, str], ...]


class Loader:
    """The dynamic loader of a Python process with this environment that has imported torch."""

    def __init__(self, python: Path, torch: Path | None, environ: Mapping[str, str]) -> None:
        self._path = tuple(Path(p) for p in environ.get("LD_LIBRARY_PATH", "").split(":") if p)
        self._torch = (torch / "lib").resolve() if torch else None
        self._loaded: dict[str, SharedObject] = {}
        # The global scope: the interpreter, and libraries that torch loads globally.
        executable = read_shared_object(python.resolve())
        self._machine, self._rpath = executable.machine, executable.rpath
        self._global = [executable, *self._dependencies(executable, {})]
        for name in ("libtorch_global_deps.so", "libtorch_python.so"):
            if self._torch and (file := self._torch / name).is_file():
                library = read_shared_object(file)
                loaded = [library, *self._dependencies(library, {})]
                self._loaded |= {shared.soname: shared for shared in loaded}
                if name == "libtorch_global_deps.so":
                    self._global += loaded

    def links(self, library: Library, path: Path) -> Links:
        """Resolve the dependencies and symbols of a library, whose file is `path`."""
        absent: dict[str, str] = {}
        top = read_shared_object(path)
        dependencies = self._dependencies(top, absent)
        missing = {s.name for s in library.undefined if s.version is None and not s.weak}
        from_torch: frozenset[str] = frozenset()
        for dependency in (*self._global, *dependencies):
            if not missing:
                break
            defined = provided_symbols(dependency.path, missing)
            missing -= defined
            if self._is_of_torch(dependency.path):
                from_torch |= defined
        found = {dependency.soname: dependency.path for dependency in dependencies}
        return Links(
            found=found,
            absent=absent,
            torch_symbols=from_torch,
            undefined=frozenset(missing),
            elsewhere=self._defined_by_torch(missing) if missing else frozenset(),
            outdated=tuple(_outdated_libraries(library, found)),
        )

    def _defined_by_torch(self, names: Iterable[str]) -> frozenset[str]:
        libraries = sorted(self._torch.glob("lib*.so")) if self._torch else []
        return frozenset().union(*(provided_symbols(path, names) for path in libraries))

    def _is_of_torch(self, path: Path) -> bool:
        return self._torch is not None and path.resolve().is_relative_to(self._torch)

    def _dependencies(self, top: SharedObject, absent: dict[str, str]) -> list[SharedObject]:
        """The dependencies of an object, breadth first as the loader has them, without itself."""
        found: dict[str, SharedObject] = {}
        # Dependencies inherit DT_RPATH, also that of the interpreter.
        queue: list[tuple[SharedObject, tuple[Path, ...]]] = [(top, (*top.rpath, *self._rpath))]
        for asker, rpath in queue:
            for soname in asker.needed:
                if soname in found or soname in absent:
                    continue
                library = self._loaded.get(soname) or self._search(soname, asker, rpath)
                if library is None:
                    absent[soname] = asker.soname
                else:
                    found[soname] = library
                    queue.append((library, (*library.rpath, *rpath)))
        return list(found.values())

    def _search(
        self, soname: str, asker: SharedObject, rpath: tuple[Path, ...]
    ) -> SharedObject | None:
        folders = (*(() if asker.runpath else rpath), *self._path, *asker.runpath)
        candidates = (folder / soname for folder in folders)
        usual = (Path(folder, soname) for folder in _DEFAULT_FOLDERS)
        for path in (*candidates, *_ldconfig_libraries().get(soname, ()), *usual):
            if (library := self._loadable(path)) is not None:
                return library
        return None

    def _loadable(self, path: Path) -> SharedObject | None:
        """The object at a path; None for a file of another machine, which the loader skips."""
        try:
            library = read_shared_object(path)
        except WheelError:
            return None
        return library if library.machine == self._machine else None


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


_RUNTIME = re.compile(r"lib(?:cudart|amdhip64)\.so\.\d+(?:\.\d+)*")
_BACKENDS: tuple[tuple[Backend, tuple[str, ...]], ...] = (
    ("cuda", ("libtorch_cuda", "libc10_cuda", "libcudart.", "libcublas", "libcudnn")),
    ("rocm", ("libtorch_hip", "libc10_hip", "libamdhip64.")),
)
"""Prefixes of libraries that only code for this backend needs."""


@dataclasses.dataclass(frozen=True)
class NativeLibrary:
    """One native library of a package.

    Attributes:
        name: its path below the folder that it is installed in.
        path: its file.
        loaded: whether the import of the package loaded it.
        problem: why it cannot be read; the other fields are then empty.
        machine: the processor that it is for, e.g. "x86_64".
        code: its GPU code, module by module; as the wheel claims it, if it cannot be read.
        code_problem: why its GPU code cannot be read.
        glibc: the newest glibc version that it needs, e.g. "2.34".
        needed: sonames of the libraries that it needs.
        links: its dependencies on this system.
        is_module: whether Python can import it.
    """

    name: str
    path: Path
    loaded: bool
    problem: str | None = None
    machine: str = ""
    code: tuple[GpuCode, ...] = ()
    code_problem: str | None = None
    glibc: str | None = None
    needed: tuple[str, ...] = ()
    links: Links | None = None
    is_module: bool = False

    @property
    def backend(self) -> Backend | None:
        """The backend of its GPU code or of a library that it needs; None if it has neither."""
        if self.code:
            return "rocm" if self.code[0].kind == "hsaco" else "cuda"
        for backend, prefixes in _BACKENDS:
            if any(name.startswith(prefixes) for name in self.needed):
                return backend
        return None

    @property
    def archs(self) -> tuple[Arch, ...]:
        """Archs with machine code that has a kernel: nvcc's link step adds empty modules."""
        return sort_archs(m.arch for m in self.code if m.kind != "ptx" and m.kernels)

    @property
    def ptx(self) -> tuple[CudaArch, ...]:
        """Archs with PTX, which a driver can compile for newer GPUs."""
        archs = {m.arch for m in self.code if m.kind == "ptx"}
        return tuple(sorted(arch for arch in archs if isinstance(arch, CudaArch)))

    @property
    def runtime(self) -> str | None:
        """The shared CUDA or HIP runtime that it needs, e.g. "libcudart.so.12"."""
        return next((name for name in self.needed if _RUNTIME.fullmatch(name)), None)

    @property
    def uses_torch(self) -> bool:
        """Whether it uses a symbol of torch."""
        if self.links is None:
            return False
        return bool(self.links.torch_symbols) or any(map(is_of_torch, self.links.undefined))

    @property
    def for_one_torch(self) -> bool:
        """Whether it uses C++ symbols of torch, which change with every minor release."""
        return any(map(is_cxx, self.torch_names))

    @property
    def torch_names(self) -> frozenset[str]:
        """Symbols that it uses from torch, and those that no dependency defines."""
        return self.links.torch_symbols | self.links.undefined if self.links else frozenset()


def is_of_torch(symbol: str) -> bool:
    """Whether only a torch defines such a symbol: one of C++, or of torch's stable ABI."""
    return is_cxx(symbol) or symbol.startswith(SHIMS)


CodeReader = Callable[[Path, CpuTime], tuple[GpuCode, ...]]


def read_all_code(path: Path, cpu: CpuTime) -> tuple[GpuCode, ...]:
    """The GPU code of a library; by its headers alone where this Python has no zstd."""
    try:
        return read_gpu_code(path, cpu=cpu)
    except NoZstdError:
        # ROCm's headers are packed with the code.
        if SECTION in section_names(path):
            raise
        return read_cuda_headers(path)


def read_native(
    path: Path,
    root: Path,
    loader: Loader,
    claims: Claims | None,
    cpu: CpuTime,
    *,
    loaded: bool,
    read_code: CodeReader = read_all_code,
) -> NativeLibrary:
    """Read a library of a package that is installed in `root`. It is not loaded.

    `claims` are those of its wheel; `loaded` tells whether the import of the package loaded it.
    """
    name = str(path.relative_to(root)) if path.is_relative_to(root) else str(path)
    try:
        cpu.check()
        library = read_library(path, name)
        links = loader.links(library, path)
        is_module = bool(provided_symbols(path, [f"PyInit_{path.name.partition('.')[0]}"]))
    except TorchwheelError as error:
        return NativeLibrary(name, path, loaded, problem=str(error))
    code: tuple[GpuCode, ...] = ()
    code_problem = None
    try:
        code = read_code(path, cpu)
    except TorchwheelError as error:
        code, code_problem = claimed_code(claims, name), str(error)
    return NativeLibrary(
        name=name,
        path=path,
        loaded=loaded,
        machine=library.machine,
        code=code,
        code_problem=code_problem,
        glibc=glibc_floor(library),
        needed=library.needed,
        links=links,
        is_module=is_module,
    )


def claimed_code(claims: Claims | None, file: str) -> tuple[GpuCode, ...]:
    """The GPU code that a wheel claims for one of its libraries, as it would be read."""
    if claims is None:
        return ()
    needs = (claims.part_of(file) or claims).needs
    code = [
        GpuCode("hsaco" if needs.backend == "rocm" else "sass", arch.with_ptx(False), ("",))
        for arch in needs.archs
    ]
    return (*code, *(GpuCode("ptx", arch.with_ptx(False)) for arch in needs.archs if arch.ptx))


def sort_archs(archs: Iterable[Arch]) -> tuple[Arch, ...]:
    """The archs in numeric order, e.g. 8.9 before 10.0, each once."""
    return tuple(sorted(set(archs), key=lambda arch: (type(arch).__name__, arch)))
