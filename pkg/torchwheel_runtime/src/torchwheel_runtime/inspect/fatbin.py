"""Reads nvcc's fat binaries: containers of machine code (SASS) and PTX, packed or plain.

A section holds containers one after the other. A container is a header and entries; an entry is a
header with the kind, the arch and the sizes, and then the code. NVIDIA documents none of it; the
tests compare what is read here with cuobjdump.
"""

import dataclasses
import itertools
import re
import struct
from collections.abc import Iterator
from typing import Literal

from torchwheel_runtime.arch.model import Arch, CudaArch, parse_binary_name
from torchwheel_runtime.inspect import budgets
from torchwheel_runtime.inspect.elf import GpuCode
from torchwheel_runtime.inspect.elf_file import CUDA, elf_of_bytes, machine_name, refuse_malformed
from torchwheel_runtime.inspect.packing import unpack_lz4, unpack_zstd
from torchwheel_runtime.inspect.window import CpuTime, WheelError, Window

MAGIC = 0xBA55ED50
_VERSION = 1
_CONTAINER = struct.Struct("<IHHQ")
_ENTRY = struct.Struct("<HHIQIIHHIIIQQQ")
_MOST_HEADER = 4096
_KINDS: dict[int, Literal["ptx", "sass"]] = {1: "ptx", 2: "sass"}
# An entry's flags.
_LZ4, _ZSTD = 0x2000, 0x8000
_SUFFIXES = {0: "", 0x10_0000: "a", 0x20_0000: "f"}
"""How far an arch's code is bound to it: to the GPU ("a"), to its family ("f")."""
_SUFFIX = 0x30_0000

_FUNCTION = 2
_ENTRY_POINT = 0x10
"""The bit that marks a function of a cubin as a kernel."""
_ARCH_AT = {7: 0, 8: 8}
"""Where the arch stands in the flags of a cubin, by the version of its ABI."""
_MACHINE, _FLAGS = struct.Struct("<H"), struct.Struct("<I")
_SECTIONS_AT, _SECTION_COUNT = struct.Struct("<Q"), struct.Struct("<HH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMTAB, _SYMBOL_BYTES = 2, 24
_TARGET = re.compile(rb"^\.target\s+(sm_\w+)", re.MULTILINE)
_PTX_VERSION = re.compile(rb"^\.version\s+(\d{1,3}\.\d{1,3})\b", re.MULTILINE)
_PTX_HEAD = 4096


@dataclasses.dataclass(frozen=True)
class FatbinEntry:
    """A module of code, by the header before it.

    Attributes:
        kind: machine code or PTX.
        arch: the GPU that it is for.
        packing: how its code is packed.
        at: where its code begins in the section.
        packed: bytes of its code in the section.
        size: bytes of its code.
        header: where its header begins in the section.
        end: where the next module begins, or its container ends.
    """

    kind: Literal["ptx", "sass"]
    arch: CudaArch
    packing: Literal["none", "lz4", "zstd"]
    at: int
    packed: int
    size: int
    header: int
    end: int

    @property
    def room(self) -> int:
        """Bytes of its header and its code in the section."""
        return self.end - self.header


@dataclasses.dataclass(frozen=True)
class FatbinContainer:
    """Modules of the same sources for several archs, of which the driver takes one.

    Attributes:
        at: where its header begins in the section.
        end: where it ends.
        entries: its modules, in its order; a container may have none.
    """

    at: int
    end: int
    entries: tuple[FatbinEntry, ...]

    def moved(self, by: int) -> "FatbinContainer":
        """The same container with its places in the file, whose section begins at byte `by`."""
        entries = (
            dataclasses.replace(one, at=one.at + by, header=one.header + by, end=one.end + by)
            for one in self.entries
        )
        return FatbinContainer(self.at + by, self.end + by, tuple(entries))


def container_header(size: int) -> bytes:
    """The header of a container whose modules have so many bytes."""
    return _CONTAINER.pack(MAGIC, _VERSION, _CONTAINER.size, size)


def read_fatbin(section: Window, cpu: CpuTime) -> tuple[GpuCode, ...]:
    """The modules of a section, in its order, each with its kernels."""
    modules: list[GpuCode] = []
    kernels = size = 0
    for entry in read_entries(section):
        cpu.check()
        size += entry.size
        if len(modules) == budgets.MODULES or size > budgets.GPU_CODE_BYTES:
            raise WheelError(
                f"more than {budgets.MODULES} modules of GPU code, "
                f"or {budgets.GPU_CODE_BYTES} bytes of it"
            )
        module = read_module(section, entry)
        kernels += len(module.kernels)
        if kernels > budgets.KERNELS:
            raise WheelError(f"more than {budgets.KERNELS} kernels")
        modules.append(module)
    return tuple(modules)


def read_entries(section: Window) -> Iterator[FatbinEntry]:
    """The headers of all modules; a WheelError if the section holds anything else."""
    return itertools.chain.from_iterable(one.entries for one in read_containers(section))


def read_containers(section: Window) -> Iterator[FatbinContainer]:
    """The containers of a section, without their code; a WheelError for anything else in it."""
    at = containers = modules = 0
    while (at := section.skip_zeros(at)) < section.size:
        # A container begins at a multiple of 8 bytes, and so do zeros before it.
        at -= at % 8
        magic, version, header, size = _CONTAINER.unpack(section.read(at, _CONTAINER.size))
        if magic != MAGIC or version != _VERSION or header != _CONTAINER.size:
            raise WheelError(f"byte {at}: no container of GPU code of a known version")
        start, at = at, at + header
        end = at + size
        if end > section.size:
            raise WheelError(f"byte {at}: a container leads out of its section (cut short?)")
        entries: list[FatbinEntry] = []
        while at < end:
            entries.append(_entry(section, at, end))
            at = entries[-1].end
            if len(entries) + modules > budgets.MODULES:
                raise WheelError(f"more than {budgets.MODULES} modules of GPU code")
        containers, modules = containers + 1, modules + len(entries)
        if containers > budgets.MODULES:
            raise WheelError(f"more than {budgets.MODULES} containers of GPU code")
        yield FatbinContainer(start, end, tuple(entries))


def _entry(section: Window, at: int, end: int) -> FatbinEntry:
    fields = _ENTRY.unpack(section.read(at, _ENTRY.size))
    number, _, header, room, packed, _, _, _, arch, _, _, flags, _, size = fields
    start = at + header
    kind = _KINDS.get(number)
    if kind is None:
        raise WheelError(f"byte {at}: GPU code of kind {number}; 1 (PTX) or 2 (ELF) expected")
    if not _ENTRY.size <= header <= _MOST_HEADER or start + room > end:
        raise WheelError(f"byte {at}: a module leads out of its container")
    packing: Literal["none", "lz4", "zstd"] = (
        "lz4" if flags & _LZ4 else "zstd" if flags & _ZSTD else "none"
    )
    if packing == "none":
        packed = size = room
    if packed > room or max(packed, size) > budgets.MODULE_BYTES:
        raise WheelError(
            f"byte {at}: {packed} bytes in {room} unpack to {size}; "
            f"at most {budgets.MODULE_BYTES} expected"
        )
    suffix = _SUFFIXES.get(flags & _SUFFIX)
    if suffix is None:
        raise WheelError(f"byte {at}: flags {flags:#x} are not understood")
    try:
        found = parse_binary_name(f"sm_{arch}{suffix}")
    except ValueError as error:
        raise WheelError(f"byte {at}: GPU code for {arch}{suffix}, which is no GPU") from error
    assert isinstance(found, CudaArch)  # noqa: S101 - no other has such a name
    return FatbinEntry(kind, found, packing, start, packed, size, at, start + room)


def read_module(section: Window, entry: FatbinEntry) -> GpuCode:
    """A module with its kernels; of PTX its beginning is read, which must name the arch."""
    where = f"module at byte {entry.at}"
    with refuse_malformed(where):
        packed = section.read(entry.at, entry.packed)
        if entry.kind == "sass":
            return GpuCode("sass", entry.arch, _kernels(unpack_entry(packed, entry), entry.arch))
        head = unpack_entry(packed, entry, _PTX_HEAD)
        target = _TARGET.search(head)
    if target is None or target[1].decode() != entry.arch.binary_name:
        found = target[1].decode() if target else "nothing"
        raise WheelError(f"{where}: PTX for {found}; its header says {entry.arch.binary_name}")
    version = _PTX_VERSION.search(head)
    return GpuCode("ptx", entry.arch, ptx_version=version[1].decode() if version else None)


def unpack_entry(packed: bytes, entry: FatbinEntry, most: int = budgets.MODULE_BYTES) -> bytes:
    """The code of an entry, or its beginning."""
    size = min(entry.size, most)
    if entry.packing == "none":
        return packed[:size]
    if entry.packing == "lz4":
        code = unpack_lz4(packed, size, entry.size)
    else:
        # Whether it ends there is asked by one byte more.
        code = unpack_zstd(packed, size + (size == entry.size))
    if len(code) != size:
        raise ValueError(f"does not unpack to the {entry.size} bytes that it names")
    return code


def _kernels(code: bytes, arch: Arch) -> tuple[str, ...]:
    elf = elf_of_bytes(code)
    require_arch(code, arch)
    return tuple(
        sorted(
            symbol.name
            for symbol in elf.symbols(".symtab")
            if symbol.kind == _FUNCTION and symbol.other & _ENTRY_POINT
        )
    )


def require_arch(code: bytes, arch: Arch) -> None:
    """Raise a ValueError unless the header of a cubin names the arch; its first bytes suffice."""
    if not code.startswith(b"\x7fELF\2\1"):
        raise ValueError("machine code that is no ELF file")
    (machine,), (flags,) = _MACHINE.unpack_from(code, 18), _FLAGS.unpack_from(code, 48)
    shift = _ARCH_AT.get(code[8])
    if machine != CUDA or shift is None:
        raise ValueError(f"machine code for {machine_name(machine)}, ABI {code[8]}")
    number = flags >> shift & 0xFF
    if arch.binary_name.rstrip("af") != f"sm_{number}":
        raise ValueError(f"machine code for sm_{number}; its header says {arch.binary_name}")


def kernel_count(code: bytes) -> int:
    """How many kernels a cubin has, without their names."""
    (start,) = _SECTIONS_AT.unpack_from(code, 40)
    size, count = _SECTION_COUNT.unpack_from(code, 58)
    if (count and size != _SECTION.size) or count > budgets.SECTIONS:
        raise ValueError(f"{count} sections of {size} bytes")
    total = 0
    table = code[start : start + count * _SECTION.size]
    if len(table) != count * _SECTION.size:
        raise ValueError("its sections are cut short")
    for _, kind, _, _, at, length, _, _, _, _ in _SECTION.iter_unpack(table):
        if kind == _SYMTAB:
            rows = code[at : at + length]
            if len(rows) != length or length > budgets.SYMBOLS * _SYMBOL_BYTES:
                raise ValueError("its symbols are cut short, or too many")
            kinds, others = rows[4::_SYMBOL_BYTES], rows[5::_SYMBOL_BYTES]
            total += sum(
                info & 15 == _FUNCTION and bool(other & _ENTRY_POINT)
                for info, other in zip(kinds, others, strict=False)
            )
    return total
