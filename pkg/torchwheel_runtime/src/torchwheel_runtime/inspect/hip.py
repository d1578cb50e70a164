"""Reads the HIP code in a library: clang's bundles, their code objects and their kernels."""

import dataclasses
import functools
import re
import struct
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from torchwheel_runtime.arch.model import Arch, parse_binary_name
from torchwheel_runtime.data import read
from torchwheel_runtime.inspect import budgets, cuda
from torchwheel_runtime.inspect.elf import GpuCode, section_names
from torchwheel_runtime.inspect.elf_file import (
    AMDGPU,
    UNDEFINED,
    ElfFile,
    elf_of_bytes,
    open_elf,
    refuse_malformed,
)
from torchwheel_runtime.inspect.packing import unpack_zlib, unpack_zstd
from torchwheel_runtime.inspect.window import CpuTime, WheelError, Window

DESCRIPTOR = ".kd"
"""The suffix of a kernel's descriptor."""
_ABI_VERSIONS = range(2, 5)
"""Code object versions 4 to 6, which have the same e_flags."""
# In the order in which a target names them. State 0: the processor lacks the feature. State 1:
# the code runs with it and without it.
_FEATURES = {"sramecc": 10, "xnack": 8}
_STATES = {2: "-", 3: "+"}


@functools.cache
def _machines() -> Mapping[int, str]:
    return {int(number): name for number, name in read("amdgpu.json")["machines"].items()}


def read_code_object(code: bytes) -> GpuCode:
    """Read an ELF file of AMD's; its header names the arch, e.g. "gfx90a:xnack-"."""
    with refuse_malformed("code object"):
        elf = elf_of_bytes(code)
        if elf.machine != AMDGPU:
            raise WheelError(f"code object: for {elf.machine_name}; amdgpu expected")
        if elf.abi_version not in _ABI_VERSIONS:
            raise WheelError(f"code object: ABI version {elf.abi_version}; 2, 3 or 4 expected")
        return GpuCode("hsaco", _arch(elf.flags), _kernels(elf))


def _arch(flags: int) -> Arch:
    name = _machines().get(flags & 0xFF)
    if name is None:
        raise WheelError(f"code object: processor {flags & 0xFF:#x} is in no table of ours")
    states = ((feature, _STATES.get(flags >> shift & 3)) for feature, shift in _FEATURES.items())
    return parse_binary_name(
        ":".join((name, *(f"{feature}{state}" for feature, state in states if state)))
    )


def _kernels(elf: ElfFile) -> tuple[str, ...]:
    if ".dynsym" not in elf.sections:
        raise WheelError("code object: no table of symbols in it")
    names = (symbol.name for symbol in elf.symbols() if symbol.section != UNDEFINED)
    return tuple(sorted(n.removesuffix(DESCRIPTOR) for n in names if n.endswith(DESCRIPTOR)))


MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"
PACKED_MAGIC = b"CCOB"
_START = max(len(MAGIC), len(PACKED_MAGIC))

_COUNT = struct.Struct("<Q")
_ENTRY = struct.Struct("<QQQ")
_PACKED = struct.Struct("<4sHH")
# By the format's version: the size of the compressed bundle with its header, and its plain size.
_PACKED_SIZES = {2: struct.Struct("<II8x"), 3: struct.Struct("<QQ8x")}


@dataclasses.dataclass(frozen=True)
class BundleEntry:
    """A code object of the bundle of that number, the first of which is 1.

    `name` tells its target, e.g. "hipv4-amdgcn-amd-amdhsa--gfx90a:xnack-".
    """

    bundle: int
    name: str
    code: bytes


def read_bundles(section: Window) -> Iterator[BundleEntry]:
    """The entries of all bundles in a section; anything else in it is a WheelError."""
    number = at = 0
    while (at := section.skip_zeros(at)) < section.size:
        number += 1
        where = f"bundle {number} (byte {at})"
        try:
            plain, size = _plain_bundle(section, at)
            end = 0
            for name, start, length in _entries(plain):
                yield BundleEntry(number, name, plain.read(start, length))
                end = start + length
            # A bundle without code is as long as its header, at least.
            at += size or max(end, len(MAGIC) + _COUNT.size)
        except WheelError as error:
            raise WheelError(f"{where}: {error}") from error


def _plain_bundle(section: Window, at: int) -> tuple[Window, int]:
    """The bundle at a byte, unpacked; its size there, 0 if the last entry's end tells it."""
    start = section.read(at, min(_START, section.size - at))
    if not start.startswith(PACKED_MAGIC):
        return section.part(at), 0
    _, version, method = _PACKED.unpack(section.read(at, _PACKED.size))
    if version not in _PACKED_SIZES:
        raise WheelError(f"is packed in version {version}; 2 or 3 expected")
    sizes = _PACKED_SIZES[version]
    packed, plain = sizes.unpack(section.read(at + _PACKED.size, sizes.size))
    header = _PACKED.size + sizes.size
    if at + packed > section.size or packed < header or plain > budgets.MODULE_BYTES:
        raise WheelError(f"{packed} bytes unpack to {plain}: cut short, or no such bundle")
    if method not in _UNPACK:
        raise WheelError(f"is packed by method {method}; 0 (zlib) or 1 (zstd) expected")
    try:
        # One byte more than named, to see that there is none.
        unpacked = _UNPACK[method](section.read(at + header, packed - header), plain + 1)
    except ValueError as error:
        raise WheelError(str(error)) from error
    if len(unpacked) != plain:
        raise WheelError(f"does not unpack to the {plain} bytes that it names")
    return Window.of_bytes(unpacked), packed


def _entries(bundle: Window) -> Iterator[tuple[str, int, int]]:
    """The name, the place and the size of each entry; they follow each other."""
    if (start := bundle.read(0, min(len(MAGIC), bundle.size))) != MAGIC:
        raise WheelError(f"starts with {start[:8]!r}, not with {MAGIC!r}")
    at = len(MAGIC)
    (count,) = _COUNT.unpack(bundle.read(at, _COUNT.size))
    if not 0 < count <= budgets.BUNDLE_ENTRIES:
        raise WheelError(f"{count} entries; 1 to {budgets.BUNDLE_ENTRIES} expected")
    at += _COUNT.size
    end = 0
    for _ in range(count):
        offset, size, length = _ENTRY.unpack(bundle.read(at, _ENTRY.size))
        at += _ENTRY.size
        if length > budgets.BUNDLE_NAME or offset < end or offset + size > bundle.size:
            raise WheelError("an entry leads out of it, or into another (cut short?)")
        if size > budgets.MODULE_BYTES:
            raise WheelError(f"an entry of {size} bytes; at most {budgets.MODULE_BYTES} expected")
        name = bundle.read(at, length).decode("ascii", "replace")
        at += length
        end = offset + size
        yield name, offset, size


_UNPACK: Mapping[int, Callable[[bytes, int], bytes]] = {0: unpack_zlib, 1: unpack_zstd}


SECTION = ".hip_fatbin"
"""The section where clang puts device code; a library without it has none."""
_WRAPPERS = ".hipFatBinSegment"
"""The section that registers bundles with the runtime, one record each."""
_WRAPPER_BYTES = 24
_DEVICE = re.compile(r"hip(?:v4)?-amdgcn-amd-amdhsa-(?:unknown)?-(gfx\S+)", re.ASCII)


def read_hip_code(library: Path, cpu: CpuTime | None = None) -> tuple[GpuCode, ...]:
    """The code objects of a library, in the order of the file; a malformed one is a WheelError."""
    cpu = cpu or CpuTime()
    found: list[GpuCode] = []
    bundles = size = 0
    with open_elf(library) as elf:
        for entry in read_bundles(elf.window(SECTION)):
            cpu.check()
            bundles = entry.bundle
            size += len(entry.code)
            if len(found) == budgets.MODULES or size > budgets.GPU_CODE_BYTES:
                raise WheelError(
                    f"{SECTION} has more than {budgets.MODULES} code objects, "
                    f"or {budgets.GPU_CODE_BYTES} bytes of them"
                )
            if not _is_host(entry):
                found.append(_code(entry))
        registered = elf.window(_WRAPPERS).size // _WRAPPER_BYTES
    if registered != bundles:
        raise WheelError(f"{SECTION} holds {bundles} bundles, {registered} are registered")
    return tuple(found)


def _is_host(entry: BundleEntry) -> bool:
    """The first entry is an empty one for the host, whose code is the library itself."""
    return entry.name.startswith("host-") and not entry.code


def _code(entry: BundleEntry) -> GpuCode:
    device = _DEVICE.fullmatch(entry.name)
    if device is None:
        raise WheelError(f"entry {entry.name!r} of {SECTION} is for no AMD GPU")
    code = read_code_object(entry.code)
    if code.arch.binary_name != device[1]:
        raise WheelError(f"entry {entry.name!r} of {SECTION} holds code for {code.arch}")
    return code


def read_gpu_code(
    library: Path,
    find_program: Callable[[], Path | None] = lambda: None,
    cpu: CpuTime | None = None,
) -> tuple[GpuCode, ...]:
    """The modules in a library, CUDA's first.

    Args:
        library: its file.
        find_program: finds a cuobjdump, which must find the same modules of CUDA.
        cpu: the processor time that is left for it.
    """
    cpu = cpu or CpuTime()
    found: list[GpuCode] = []
    sections = section_names(library)
    if not sections.isdisjoint(cuda.SECTIONS):
        found += cuda.read_cuda_code(library, find_program(), cpu)
    if SECTION in sections:
        found += read_hip_code(library, cpu)
    return tuple(found)
