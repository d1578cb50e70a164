"""The symbols that each torch release exports, in a table made from its wheels.

It has C++ of torch's namespaces, C shims and libtorch_python's C names: a hash of 40 bits for each
of 123,000 names, and the releases that have it. Two names share a hash by a chance of one in ten
million. Of some releases it also has the C symbols of each library that an extension is linked
with, as "libtorch_cpu.so:NAME": a stable-ABI library may use these only.

`python -m torchwheel.check.torch_symbols torch-2.11.0-….whl …` adds CUDA wheels of torch; those of
PyPI for Linux are in it.
"""

import dataclasses
import functools
import hashlib
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

FILE = "torch_exports.bin"
_C_SYMBOL = re.compile(r"(aoti_torch|torch)_\w+")
_FOLDER = "torch/lib/"
CPU = "libtorch_cpu.so"
"""The library whose symbols every torch has, a CPU-only one too."""
GPU = "libtorch_cuda.so"
_EXPORTING = frozenset({"libc10.so", "libc10_cuda.so", CPU, GPU, "libtorch_python.so"})
"""Libraries whose symbols are in the table of exports."""
_HASH_BYTES = 5
_GROUP = struct.Struct("<II")


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

    def home_of(self, name: str, release: str) -> str | None:
        """The library of a release that has a C symbol; None if none is known to have it."""
        return next((h for h in (CPU, GPU) if release in self.releases_with(f"{h}:{name}")), None)

    @property
    def releases_by_library(self) -> tuple[str, ...]:
        """The releases of which it has the C symbols of each library."""
        return tuple(text for text in self.releases if text in self.releases_with(CPU))


def hash_of(name: str) -> int:
    """The number that stands for a name."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=_HASH_BYTES).digest(), "big")


@functools.cache
def export_table() -> ExportTable:
    """The table of the data file."""
    return decode((data.FOLDER / FILE).read_bytes())


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


def read_torch_wheel(path: Path) -> tuple[str, frozenset[str]]:
    """The minor release of a wheel of torch, e.g. "2.11", and its names for the table."""
    name, version, _, _ = parse_wheel_filename(path.name)
    if name != "torch":
        raise UsageError(f"a wheel of torch expected, got {path.name}")
    found: set[str] = set()
    with open_archive(path) as archive, tempfile.TemporaryDirectory() as folder:
        for member in archive.files:
            home = member.name.removeprefix(_FOLDER)
            if home not in _EXPORTING or member.name == home:
                continue
            library = Path(folder, home)
            with library.open("wb") as file:
                file.writelines(archive.blocks(member))
            names = exported_symbols(library)
            library.unlink()
            found |= set(filter(of_torch, names))
            if home in (CPU, GPU):
                found |= {home, *(f"{home}:{name}" for name in names if _C_SYMBOL.fullmatch(name))}
    if not {CPU, GPU} <= found:
        raise TorchwheelError(f"{path.name}: {CPU} and {GPU} expected in it")
    return f"{version.major}.{version.minor}", frozenset(found)


def main(arguments: Sequence[str]) -> int:
    """Add the wheels named to the data file."""
    if not arguments:
        print("usage: python -m torchwheel.check.torch_symbols TORCH_WHEEL…", file=sys.stderr)
        return UsageError.status
    table = export_table()
    try:
        for argument in arguments:
            release, names = read_torch_wheel(Path(argument))
            table = add_release(table, release, names)
            homes = [name.partition(":")[0] for name in names if ":" in name]
            counts = ", ".join(f"{library} {homes.count(library)}" for library in (CPU, GPU))
            print(f"torch {release}: {counts}; {len(names) - len(homes) - 2} symbols")
    except TorchwheelError as error:
        print(error, file=sys.stderr)
        return error.status
    with files.write_atomically(data.FOLDER / FILE) as temporary:
        temporary.write_bytes(encode(table))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
