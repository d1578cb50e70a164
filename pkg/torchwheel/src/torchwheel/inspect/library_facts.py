"""What one library of anybody's needs and has: GPU code, runtime, torch, Python, system.

The claimed gates read every kernel's name. Here kernels are counted, and large LZ4 modules, which
nvcc made before CUDA 13 and which are slow to unpack in Python, are read as far as their first
bytes.
"""

import dataclasses
import functools
import re
import struct
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Literal

from torchwheel_runtime.arch.model import Arch, Backend, backend_of
from torchwheel_runtime.errors import TorchwheelError
from torchwheel_runtime.inspect import budgets, cuda, hip
from torchwheel_runtime.inspect.elf import (
    EXPORTED,
    PYTHON,
    SHIMS,
    TORCH_PYTHON,
    Library,
    UndefinedSymbol,
    is_cxx,
    undefined_symbols,
)
from torchwheel_runtime.inspect.elf_file import NEEDED, RPATH, RUNPATH, SONAME, UNDEFINED, open_elf
from torchwheel_runtime.inspect.fatbin import FatbinEntry, kernel_count, read_entries, unpack_entry
from torchwheel_runtime.inspect.fatbin import require_arch as require_cubin_arch
from torchwheel_runtime.inspect.window import CpuTime, WheelError, Window
from torchwheel_runtime.versions import version_numbers

_RUNTIME = re.compile(r"lib(cudart|amdhip64)(?:[-.]([0-9a-f]{6,}))?\.so((?:\.\d+)*)", re.ASCII)
_BACKENDS: Mapping[str, Backend] = {"cudart": "cuda", "amdhip64": "rocm"}
_REGISTERS = "__cudaRegisterFatBinary"
"""The function of cudart that every library with CUDA code calls when it is loaded."""


_START = 64
"""Bytes of a module with the header of its ELF file."""
MODULE = "PyInit_"
"""The prefix of the function that Python calls to import an extension module."""
SMALL = 16 << 10
"""A module of more bytes has a kernel: the empty ones that link steps add have about 1 KiB."""


@dataclasses.dataclass(frozen=True)
class GpuTarget:
    """The code of one kind for one arch in a library.

    Attributes:
        kind: machine code for NVIDIA ("sass") or AMD ("hsaco"), or PTX.
        arch: the GPU that it is for.
        modules: how many modules there are.
        kernels: how many kernels machine code has; None if they were not counted, and for PTX.
        size: bytes of its modules, unpacked.
        packed: their bytes in the library.
        packings: how they are packed: "none", "lz4", "zstd", "bundle".
    """

    kind: Literal["sass", "ptx", "hsaco"]
    arch: Arch
    modules: int
    kernels: int | None
    size: int
    packed: int
    packings: tuple[str, ...]

    @property
    def is_code(self) -> bool:
        """Whether it is machine code with a kernel, not what a link step has added."""
        return self.kind != "ptx" and self.kernels != 0


@dataclasses.dataclass(frozen=True)
class GpuRuntime:
    """The CUDA or HIP runtime of a library.

    Attributes:
        how: linked in ("static"), found by the loader ("shared"), or a copy of the wheel's own
            whose name has a hash ("grafted").
        backend: whose it is.
        library: the name that the library asks for; None if it is linked in.
        version: the release in that name, e.g. "12"; None if there is none.
    """

    how: Literal["static", "shared", "grafted"]
    backend: Backend
    library: str | None = None
    version: str | None = None


@dataclasses.dataclass(frozen=True)
class LibraryFacts(Library):
    """The facts of one library of anybody; without those that could not be read.

    Of its undefined symbols those are kept that torch or CPython may have, and one of each version.

    Attributes:
        size: its bytes.
        problem: why it cannot be read; all other fields are then empty.
        run_paths: the folders in which the loader looks first for the libraries that it needs.
        targets: its GPU code.
        targets_problem: why its GPU code cannot be read.
        runtimes: the GPU runtimes that it uses.
        exports: symbols with names of torch that it defines itself, and those that make it a
            module.
    """

    size: int = 0
    problem: str | None = None
    run_paths: tuple[str, ...] = ()
    targets: tuple[GpuTarget, ...] = ()
    targets_problem: str | None = None
    runtimes: tuple[GpuRuntime, ...] = ()
    exports: frozenset[str] = frozenset()

    @functools.cached_property
    def torch(self) -> frozenset[str]:
        """Undefined symbols that torch may have."""
        return frozenset(s.name for s in self.undefined if not s.version and of_torch(s.name))

    @functools.cached_property
    def python(self) -> frozenset[str]:
        """Undefined symbols of CPython."""
        return frozenset(
            s.name for s in self.undefined if not s.version and s.name.startswith(PYTHON)
        )

    @functools.cached_property
    def versions(self) -> Mapping[str, str]:
        """The newest version that it needs of each kind of symbol: {"GLIBC": "2.17"}."""
        newest: dict[str, tuple[int, ...]] = {}
        for symbol in self.undefined:
            prefix, _, number = (symbol.version or "").rpartition("_")
            # GLIBC_PRIVATE has no number.
            if prefix and (numbers := version_numbers(number)):
                newest[prefix] = max(newest.get(prefix, ()), numbers)
        return {prefix: ".".join(map(str, newest[prefix])) for prefix in sorted(newest)}

    @property
    def base_name(self) -> str:
        """Its name without folders."""
        return PurePosixPath(self.name).name

    @property
    def backends(self) -> frozenset[Backend]:
        """Whose GPU code it has."""
        return frozenset(backend_of(target.arch) for target in self.targets)


def of_torch(name: str) -> bool:
    """Whether a symbol has a name that torch gives: C++ of its namespaces, shims, its Python."""
    return name.startswith((*SHIMS, TORCH_PYTHON)) or is_cxx(name)


class ReadBudget:
    """What is left to read the libraries of a file: processor time, and symbols to keep."""

    def __init__(self) -> None:
        self.cpu = CpuTime(budgets.INSPECT_SECONDS)
        self._symbols = budgets.SYMBOLS_KEPT
        self._bytes = budgets.STRING_BYTES
        self._lock = threading.Lock()

    def keep(self, names: Collection[str]) -> None:
        """Raise a WheelError if so many symbols are too many, after those of other libraries."""
        with self._lock:
            self._symbols -= len(names)
            self._bytes -= sum(map(len, names))
            if self._symbols < 0 or self._bytes < 0:
                raise WheelError(
                    f"more than {budgets.SYMBOLS_KEPT} symbols of torch and Python in the "
                    f"libraries, or {budgets.STRING_BYTES} bytes of their names"
                )


def read_facts_of_library(path: Path, name: str, budget: ReadBudget) -> LibraryFacts:
    """Read a library; what is malformed in it is told in the facts."""
    size, cpu = path.stat().st_size, budget.cpu
    try:
        cpu.check()
        facts = _read(path, name, size)
        symbols = [symbol.name for symbol in facts.undefined]
        for names in ((*facts.needed, *facts.run_paths), symbols, facts.exports):
            budget.keep(names)
    except TorchwheelError as error:
        return LibraryFacts(name, size=size, problem=str(error).removeprefix(f"{name}: "))
    try:
        return dataclasses.replace(facts, targets=read_targets(path, cpu))
    except TorchwheelError as error:
        return dataclasses.replace(facts, targets_problem=str(error))


def _read(path: Path, name: str, size: int) -> LibraryFacts:
    with open_elf(path, name) as elf:
        undefined = tuple(undefined_symbols(elf))
        needed = elf.dynamic_texts(NEEDED)
        paths = (*elf.dynamic_texts(RPATH), *elf.dynamic_texts(RUNPATH))
        defined = (s.name for s in elf.symbols() if s.section != UNDEFINED and s.bind in EXPORTED)
        return LibraryFacts(
            name=name,
            machine=elf.machine_name,
            soname=next(iter(elf.dynamic_texts(SONAME)), None),
            needed=needed,
            undefined=tuple(_symbols_to_keep(undefined)),
            size=size,
            run_paths=tuple(part for text in paths for part in text.split(":")),
            runtimes=find_runtimes(
                needed,
                has_code=".nvFatBinSegment" in elf.sections,
                registers=any(symbol.name == _REGISTERS for symbol in undefined),
            ),
            exports=frozenset(s for s in defined if of_torch(s) or s.startswith(MODULE)),
        )


def _symbols_to_keep(symbols: Iterable[UndefinedSymbol]) -> Iterator[UndefinedSymbol]:
    """The symbols that are judged: a symbol with a version names its library, never torch's."""
    yield from {(s.version, s.library): s for s in symbols if s.version}.values()
    free = (symbol for symbol in symbols if not (symbol.version or symbol.weak))
    yield from (s for s in free if s.name.startswith(PYTHON) or of_torch(s.name))


def find_runtimes(
    needed: Iterable[str], *, has_code: bool, registers: bool
) -> tuple[GpuRuntime, ...]:
    """The GPU runtimes of a library.

    Args:
        needed: names of the libraries that it needs.
        has_code: whether it has CUDA code.
        registers: whether it asks another library for the function that registers CUDA code.
    """
    found = []
    for name in needed:
        if match := _RUNTIME.fullmatch(name):
            how: Literal["shared", "grafted"] = "grafted" if match[2] else "shared"
            version = match[3].lstrip(".") or None
            found.append(GpuRuntime(how, _BACKENDS[match[1]], name, version))
    if has_code and not registers:
        found.append(GpuRuntime("static", "cuda"))
    return tuple(found)


def read_targets(library: Path, cpu: CpuTime) -> tuple[GpuTarget, ...]:
    """The targets of a library, CUDA's first, in numeric order; malformed code is a WheelError."""
    found: dict[tuple[str, Arch], GpuTarget] = {}
    with open_elf(library) as elf:
        section = elf.window(cuda.code_section(elf))
        has_hip = hip.SECTION in elf.sections
        for module in _cuda_modules(section, cpu):
            _add(found, module)
    for code in hip.read_hip_code(library, cpu) if has_hip else ():
        _add(found, GpuTarget(code.kind, code.arch, 1, len(code.kernels), 0, 0, ("bundle",)))
    return tuple(
        sorted(found.values(), key=lambda t: (backend_of(t.arch), t.kind == "ptx", t.arch))
    )


def _add(found: dict[tuple[str, Arch], GpuTarget], module: GpuTarget) -> None:
    """Add a module to those of its kind and arch."""
    key = module.kind, module.arch
    if one := found.get(key):
        counts = one.kernels, module.kernels
        module = GpuTarget(
            *key,
            one.modules + 1,
            None if None in counts else sum(filter(None, counts)),
            one.size + module.size,
            one.packed + module.packed,
            tuple(sorted({*one.packings, *module.packings})),
        )
    found[key] = module


def _cuda_modules(section: Window, cpu: CpuTime) -> Iterator[GpuTarget]:
    size = 0
    for number, entry in enumerate(read_entries(section)):
        cpu.check()
        size += entry.size
        if number == budgets.MODULES or size > budgets.GPU_CODE_BYTES:
            raise WheelError(
                f"more than {budgets.MODULES} modules of GPU code, "
                f"or {budgets.GPU_CODE_BYTES} bytes of it"
            )
        try:
            kernels = kernels_of(section, entry)
        except (ValueError, struct.error, LookupError, TorchwheelError) as error:
            raise WheelError(f"module at byte {entry.at}: {error}") from error
        packings = (entry.packing,)
        yield GpuTarget(entry.kind, entry.arch, 1, kernels, entry.size, entry.packed, packings)


def kernels_of(section: Window, entry: FatbinEntry) -> int | None:
    """How many kernels a module has, after a look at whether it is what its header says."""
    if entry.kind == "ptx":
        return None
    packed = section.read(entry.at, entry.packed)
    if entry.packing == "lz4" and entry.size > SMALL:
        require_cubin_arch(unpack_entry(packed, entry, _START), entry.arch)
        return None
    code = unpack_entry(packed, entry)
    require_cubin_arch(code, entry.arch)
    return kernel_count(code)
