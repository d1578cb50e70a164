"""Reads the HIP code in a library: clang's bundles, their code objects and their kernels."""

import dataclasses
import functools
import importlib
import io
import re
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from torchwheel.arch.model import Arch, parse_binary_name
from torchwheel.data import read
from torchwheel.inspect.archive import WheelError
from torchwheel.inspect.elf import GpuCode, refuse_malformed, section

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
        elf = ELFFile(io.BytesIO(code))
        if elf["e_machine"] != "EM_AMDGPU":
            raise WheelError(f"code object: for {elf['e_machine']}; EM_AMDGPU expected")
        version = elf["e_ident"]["EI_ABIVERSION"]
        if version not in _ABI_VERSIONS:
            raise WheelError(f"code object: ABI version {version}; 2, 3 or 4 expected")
        return GpuCode("hsaco", _arch(elf["e_flags"]), _kernels(elf))


def _arch(flags: int) -> Arch:
    name = _machines().get(flags & 0xFF)
    if name is None:
        raise WheelError(f"code object: processor {flags & 0xFF:#x} is in no table of ours")
    states = ((feature, _STATES.get(flags >> shift & 3)) for feature, shift in _FEATURES.items())
    return parse_binary_name(
        ":".join((name, *(f"{feature}{state}" for feature, state in states if state)))
    )


def _kernels(elf: ELFFile) -> tuple[str, ...]:
    table = elf.get_section_by_name(".dynsym")
    if not isinstance(table, SymbolTableSection):
        raise WheelError("code object: no table of symbols in it")
    names = (s.name for s in table.iter_symbols() if s["st_shndx"] != "SHN_UNDEF")
    return tuple(sorted(n.removesuffix(DESCRIPTOR) for n in names if n.endswith(DESCRIPTOR)))


MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"
PACKED_MAGIC = b"CCOB"
MAX_ENTRIES = 1024
MAX_NAME = 256
MAX_UNPACKED = 1 << 30

_COUNT = struct.Struct("<Q")
_ENTRY = struct.Struct("<QQQ")
_PACKED = struct.Struct("<4sHH")
# By the format's version: the size of the compressed bundle with its header, and its plain size.
_PACKED_SIZES = {2: struct.Struct("<II8x"), 3: struct.Struct("<QQ8x")}
_NOT_ZERO = re.compile(rb"[^\0]")


@dataclasses.dataclass(frozen=True)
class BundleEntry:
    """A code object; `name` tells its target, e.g. "hipv4-amdgcn-amd-amdhsa--gfx90a:xnack-"."""

    name: str
    code: bytes


def parse_bundles(section: bytes) -> tuple[tuple[BundleEntry, ...], ...]:
    """The entries of each bundle in a section; anything else in it is a WheelError."""
    bundles: list[tuple[BundleEntry, ...]] = []
    at = 0
    while found := _NOT_ZERO.search(section, at):
        at = found.start()
        where = f"bundle {len(bundles) + 1} (byte {at})"
        try:
            entries, size = _bundle(section, at)
        except struct.error as error:
            raise WheelError(f"{where}: cut short") from error
        except WheelError as error:
            raise WheelError(f"{where}: {error}") from error
        bundles.append(entries)
        at += size
    return tuple(bundles)


def _bundle(section: bytes, at: int) -> tuple[tuple[BundleEntry, ...], int]:
    """The bundle at an offset, and its size in bytes."""
    if section.startswith(PACKED_MAGIC, at):
        plain, size = _decompress_bundle(section, at)
        return _parse_plain(plain, 0)[0], size
    return _parse_plain(section, at)


def _parse_plain(data: bytes, start: int) -> tuple[tuple[BundleEntry, ...], int]:
    if not data.startswith(MAGIC, start):
        raise WheelError(f"starts with {data[start : start + 8]!r}, not with {MAGIC!r}")
    at = start + len(MAGIC)
    (count,) = _COUNT.unpack_from(data, at)
    if count > MAX_ENTRIES:
        raise WheelError(f"{count} entries; at most {MAX_ENTRIES} expected")
    at += _COUNT.size
    entries = []
    end = at
    for _ in range(count):
        offset, size, length = _ENTRY.unpack_from(data, at)
        at += _ENTRY.size
        if length > MAX_NAME or at + length > len(data) or start + offset + size > len(data):
            raise WheelError("an entry leads out of it (cut short?)")
        name = data[at : at + length].decode("ascii", "replace")
        at += length
        entries.append(BundleEntry(name, data[start + offset : start + offset + size]))
        end = max(end, start + offset + size)
    return tuple(entries), max(end, at) - start


def _decompress_bundle(data: bytes, start: int) -> tuple[bytes, int]:
    _, version, method = _PACKED.unpack_from(data, start)
    if version not in _PACKED_SIZES:
        raise WheelError(f"is packed in version {version}; 2 or 3 expected")
    sizes = _PACKED_SIZES[version]
    packed, plain = sizes.unpack_from(data, start + _PACKED.size)
    first, end = start + _PACKED.size + sizes.size, start + packed
    if end > len(data) or end < first or plain > MAX_UNPACKED:
        raise WheelError(f"{packed} bytes unpack to {plain}: cut short, or no such bundle")
    # Ask for one byte more than the header names, to see that there is none.
    unpacked = _decompress(method, data[first:end], plain + 1)
    if len(unpacked) != plain:
        raise WheelError(f"does not unpack to the {plain} bytes that it names")
    return unpacked, packed


def _decompress(method: int, packed: bytes, limit: int) -> bytes:
    if method not in (0, 1):
        raise WheelError(f"is packed by method {method}; 0 (zlib) or 1 (zstd) expected")
    decompressor = _zstd().ZstdDecompressor() if method else zlib.decompressobj()
    try:
        return bytes(decompressor.decompress(packed, limit))
    # The type of zstd's error is in a module that may be absent.
    except Exception as error:
        raise WheelError(f"cannot be unpacked: {error}") from error


def _zstd() -> ModuleType:
    """The zstd module of Python 3.14, or its backport, which has the same names."""
    for name in ("compression.zstd", "backports.zstd"):
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    raise WheelError("is packed with zstd: install backports.zstd, or use Python 3.14, to read it")


SECTION = ".hip_fatbin"
"""The section where clang puts device code; a library without it has none."""
_WRAPPERS = ".hipFatBinSegment"
"""The section that registers bundles with the runtime, one record each."""
_WRAPPER_BYTES = 24
_DEVICE = re.compile(r"hip(?:v4)?-amdgcn-amd-amdhsa-(?:unknown)?-(gfx\S+)", re.ASCII)


def read_hip_code(library: Path) -> tuple[GpuCode, ...]:
    """The code objects of a library, in the order of the file; a malformed one is a WheelError."""
    bundles = parse_bundles(section(library, SECTION) or b"")
    registered = len(section(library, _WRAPPERS) or b"") // _WRAPPER_BYTES
    if registered != len(bundles):
        raise WheelError(f"{SECTION} holds {len(bundles)} bundles, {registered} are registered")
    return tuple(_code(entry) for entries in bundles for entry in entries if not _is_host(entry))


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
