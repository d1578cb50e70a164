"""Bundles: how clang packs the code objects of several GPUs into a library (`.hip_fatbin`).

Its documentation calls them offload bundles. One translation unit gives one bundle; the linker puts
bundles one after the other, with zeros between. A bundle is a header and its entries, or that
whole packed with zlib or zstd.
"""

import dataclasses
import importlib
import re
import struct
import zlib
from types import ModuleType

from torchwheel.inspect.errors import WheelError

MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"
PACKED_MAGIC = b"CCOB"
MAX_ENTRIES = 1024
MAX_NAME = 256
MAX_UNPACKED = 1 << 30

_COUNT = struct.Struct("<Q")
_ENTRY = struct.Struct("<QQQ")
_PACKED = struct.Struct("<4sHH")
# By the format's version: bytes of the packed whole, header included, and of what is in it.
_PACKED_SIZES = {2: struct.Struct("<II8x"), 3: struct.Struct("<QQ8x")}
_NOT_ZERO = re.compile(rb"[^\0]")


@dataclasses.dataclass(frozen=True)
class Entry:
    """One code object; `name` says whose, e.g. "hipv4-amdgcn-amd-amdhsa--gfx90a:xnack-"."""

    name: str
    code: bytes


def parse(section: bytes) -> tuple[tuple[Entry, ...], ...]:
    """The entries of each bundle in a section; whatever else is in it is a WheelError."""
    bundles: list[tuple[Entry, ...]] = []
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


def _bundle(section: bytes, at: int) -> tuple[tuple[Entry, ...], int]:
    """The bundle at a place, and how many bytes it takes there."""
    if section.startswith(PACKED_MAGIC, at):
        plain, size = _unpacked(section, at)
        return _plain(plain, 0)[0], size
    return _plain(section, at)


def _plain(data: bytes, start: int) -> tuple[tuple[Entry, ...], int]:
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
        entries.append(Entry(name, data[start + offset : start + offset + size]))
        end = max(end, start + offset + size)
    return tuple(entries), max(end, at) - start


def _unpacked(data: bytes, start: int) -> tuple[bytes, int]:
    _, version, method = _PACKED.unpack_from(data, start)
    if version not in _PACKED_SIZES:
        raise WheelError(f"is packed in version {version}; 2 or 3 expected")
    sizes = _PACKED_SIZES[version]
    packed, plain = sizes.unpack_from(data, start + _PACKED.size)
    first, end = start + _PACKED.size + sizes.size, start + packed
    if end > len(data) or end < first or plain > MAX_UNPACKED:
        raise WheelError(f"{packed} bytes unpack to {plain}: cut short, or no such bundle")
    # A byte more than it names, to see that there is none.
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
    # zstd's own error is a type of a module that may not be there.
    except Exception as error:
        raise WheelError(f"cannot be unpacked: {error}") from error


def _zstd() -> ModuleType:
    """Python's own module (3.14) or its backport, which has the same names."""
    for name in ("compression.zstd", "backports.zstd"):
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    raise WheelError("is packed with zstd: install backports.zstd, or use Python 3.14, to read it")
