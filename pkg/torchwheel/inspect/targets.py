"""The GPU targets of a library: for each arch, what it has and how that is packed.

The gates read every kernel's name. Here kernels are counted, and large LZ4 modules, which nvcc made
before CUDA 13 and which are slow to unpack in Python, are read as far as their first bytes.
"""

import dataclasses
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from torchwheel_runtime.arch.model import Arch, backend_of
from torchwheel_runtime.errors import TorchwheelError
from torchwheel_runtime.inspect import budgets, cuda, hip
from torchwheel_runtime.inspect.elf_file import open_elf
from torchwheel_runtime.inspect.fatbin import FatbinEntry, kernel_count, read_entries, unpack_entry
from torchwheel_runtime.inspect.fatbin import require_arch as require_cubin_arch
from torchwheel_runtime.inspect.window import CpuTime, WheelError, Window

_START = 64
"""Bytes of a module with the header of its ELF file."""
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
class _Module:
    kind: Literal["sass", "ptx", "hsaco"]
    arch: Arch
    kernels: int | None
    size: int
    packed: int
    packing: str


def read_targets(library: Path, cpu: CpuTime) -> tuple[GpuTarget, ...]:
    """The targets of a library, CUDA's first, in numeric order; malformed code is a WheelError."""
    groups: dict[tuple[str, Arch], list[_Module]] = {}
    with open_elf(library) as elf:
        section = elf.window(cuda.code_section(elf))
        has_hip = hip.SECTION in elf.sections
        for module in _cuda_modules(section, cpu):
            groups.setdefault((module.kind, module.arch), []).append(module)
    for code in hip.read_hip_code(library, cpu) if has_hip else ():
        module = _Module(code.kind, code.arch, len(code.kernels), 0, 0, "bundle")
        groups.setdefault((module.kind, module.arch), []).append(module)
    targets = [_target(modules) for modules in groups.values()]
    return tuple(sorted(targets, key=lambda t: (backend_of(t.arch), t.kind == "ptx", t.arch)))


def _target(modules: list[_Module]) -> GpuTarget:
    counts = [module.kernels for module in modules]
    known = [count for count in counts if count is not None]
    return GpuTarget(
        modules[0].kind,
        modules[0].arch,
        len(modules),
        sum(known) if len(known) == len(counts) else None,
        sum(module.size for module in modules),
        sum(module.packed for module in modules),
        tuple(sorted({module.packing for module in modules})),
    )


def _cuda_modules(section: Window, cpu: CpuTime) -> Iterator[_Module]:
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
            kernels = _kernels_of(section, entry)
        except (ValueError, struct.error, LookupError, TorchwheelError) as error:
            raise WheelError(f"module at byte {entry.at}: {error}") from error
        yield _Module(entry.kind, entry.arch, kernels, entry.size, entry.packed, entry.packing)


def _kernels_of(section: Window, entry: FatbinEntry) -> int | None:
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
