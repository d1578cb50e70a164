"""The symbols that each torch release exports, in two tables made from its wheels.

`torch_symbols.json` has the C symbols of each library: a stable-ABI library may use these only.
`torch_exports.bin` has C++ of torch's namespaces, C shims and libtorch_python's C names: a hash of
40 bits for each of 123,000 names, and the releases that have it. Two names share a hash by a chance
of one in ten million.

`python -m torchwheel.check.torch_symbols torch-2.11.0-….whl …` adds CUDA wheels of torch to both;
those of PyPI for Linux are in them.
"""

import dataclasses
import functools
import hashlib
import json
import re
import struct
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from packaging.utils import parse_wheel_filename

from torchwheel import data
from torchwheel.inspect.archive import open_archive
from torchwheel.inspect.library_facts import of_torch
from torchwheel_runtime import files
from torchwheel_runtime.errors import TorchwheelError, UsageError
from torchwheel_runtime.inspect.elf import exported_symbols
from torchwheel_runtime.versions import version_numbers

FILE = "torch_symbols.json"
EXPORTS_FILE = "torch_exports.bin"
_C_SYMBOL = re.compile(r"(aoti_torch|torch)_\w+")
_LIBRARY = re.compile(r"torch/lib/(lib(?:torch|c10)\w*\.so)")
NOT_LINKED = ("libtorch_python.so", "libtorch_global_deps.so")
"""Libraries that libtorch.so does not load; an extension names libtorch.so only."""
_EXPORTING = frozenset(
    {"libc10.so", "libc10_cuda.so", "libtorch_cpu.so", "libtorch_cuda.so", "libtorch_python.so"}
)
"""Libraries whose symbols are in the table of exports."""
_HASH_BYTES = 5
_GROUP = struct.Struct("<II")

Symbols = Mapping[str, frozenset[str]]
"""Library of torch, e.g. libtorch_cpu.so, to the C symbols it exports."""


@functools.cache
def symbols_by_release() -> Mapping[str, Symbols]:
    """Torch minor, e.g. "2.11", to its symbols, from the data file."""
    return {
        release: {library: frozenset(names) for library, names in libraries.items()}
        for release, libraries in data.read(FILE)["releases"].items()
    }


@dataclasses.dataclass(frozen=True)
class ExportTable:
    """The releases that have each symbol.

    Attributes:
        releases: torch minors in order, e.g. "2.6".
        masks: for the hash of each name, bit n is set if releases[n] has it.
    """

    releases: tuple[str, ...]
    masks: Mapping[int, int]

    def releases_with(self, name: str) -> frozenset[str]:
        """The releases that export a symbol."""
        mask = self.masks.get(hash_of(name), 0)
        return frozenset(text for bit, text in enumerate(self.releases) if mask >> bit & 1)


def hash_of(name: str) -> int:
    """The number that stands for a name."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=_HASH_BYTES).digest(), "big")


@functools.cache
def export_table() -> ExportTable:
    """The table of the data file."""
    return decode((data.FOLDER / EXPORTS_FILE).read_bytes())


def encode(table: ExportTable) -> bytes:
    """A line with the releases; then for each set of releases the sorted hashes."""
    groups: dict[int, list[int]] = {}
    for number, mask in table.masks.items():
        groups.setdefault(mask, []).append(number)
    out = bytearray(f"{' '.join(table.releases)}\n".encode())
    for mask in sorted(groups):
        out += _GROUP.pack(mask, len(groups[mask]))
        last = 0
        for number in sorted(groups[mask]):
            step, last = number - last, number
            # Seven bits a byte; the highest one says that more follow.
            while step > 0x7F:
                out.append(step & 0x7F | 0x80)
                step >>= 7
            out.append(step)
    return bytes(out)


def decode(content: bytes) -> ExportTable:
    """The table that `encode` wrote."""
    head, _, body = content.partition(b"\n")
    masks: dict[int, int] = {}
    at = 0
    while at < len(body):
        mask, count = _GROUP.unpack_from(body, at)
        at += _GROUP.size
        number = 0
        for _ in range(count):
            shift = 0
            while body[at] & 0x80:
                number += (body[at] & 0x7F) << shift
                shift, at = shift + 7, at + 1
            number += body[at] << shift
            at += 1
            masks[number] = mask
    return ExportTable(tuple(head.decode().split()), masks)


def add_release(table: ExportTable, release: str, names: Iterable[str]) -> ExportTable:
    """The table with the symbols of a release, which replace those that it had of it."""
    releases = tuple(sorted({*table.releases, release}, key=version_numbers))
    moved = {bit: releases.index(text) for bit, text in enumerate(table.releases)}
    own = 1 << releases.index(release)
    masks: dict[int, int] = {}
    for number, mask in table.masks.items():
        new = sum(1 << to for bit, to in moved.items() if mask >> bit & 1) & ~own
        if new:
            masks[number] = new
    for name in names:
        masks[hash_of(name)] = masks.get(hash_of(name), 0) | own
    return ExportTable(releases, masks)


@dataclasses.dataclass(frozen=True)
class TorchWheel:
    """What a wheel of torch exports.

    Attributes:
        release: its minor release, e.g. "2.11".
        c_symbols: the sorted C symbols of each library.
        exports: the symbols that extensions may use of it.
    """

    release: str
    c_symbols: Mapping[str, Sequence[str]]
    exports: frozenset[str]


def read_torch_wheel(path: Path) -> TorchWheel:
    """Read the libraries of a wheel of torch."""
    name, version, _, _ = parse_wheel_filename(path.name)
    if name != "torch":
        raise UsageError(f"a wheel of torch expected, got {path.name}")
    c_symbols: dict[str, Sequence[str]] = {}
    exports: set[str] = set()
    with open_archive(path) as archive, tempfile.TemporaryDirectory() as folder:
        for member in archive.files:
            match = _LIBRARY.fullmatch(member.name)
            if match is None:
                continue
            library = Path(folder, match[1])
            with library.open("wb") as file:
                file.writelines(archive.blocks(member))
            names = exported_symbols(library)
            library.unlink()
            if match[1] in _EXPORTING:
                exports |= set(filter(of_torch, names))
            if match[1] not in NOT_LINKED and (own := sorted(filter(_C_SYMBOL.fullmatch, names))):
                c_symbols[match[1]] = own
    if not {"libtorch_cpu.so", "libtorch_cuda.so"} <= c_symbols.keys():
        raise TorchwheelError(f"{path.name}: libtorch_cpu.so and libtorch_cuda.so expected in it")
    return TorchWheel(f"{version.major}.{version.minor}", c_symbols, frozenset(exports))


def main(arguments: Sequence[str]) -> int:
    """Add the wheels named to both data files."""
    if not arguments:
        print("usage: python -m torchwheel.check.torch_symbols TORCH_WHEEL…", file=sys.stderr)
        return UsageError.status
    releases = dict(data.read(FILE)["releases"])
    table = export_table()
    try:
        for argument in arguments:
            wheel = read_torch_wheel(Path(argument))
            releases[wheel.release] = wheel.c_symbols
            table = add_release(table, wheel.release, wheel.exports)
            counts = ", ".join(f"{library} {len(own)}" for library, own in wheel.c_symbols.items())
            print(f"torch {wheel.release}: {counts}; {len(wheel.exports)} symbols")
    except TorchwheelError as error:
        print(error, file=sys.stderr)
        return error.status
    text = json.dumps({"schema": 1, "releases": releases}, indent=1, sort_keys=True) + "\n"
    files.write_text(data.FOLDER / FILE, text)
    with files.write_atomically(data.FOLDER / EXPORTS_FILE) as temporary:
        temporary.write_bytes(encode(table))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
