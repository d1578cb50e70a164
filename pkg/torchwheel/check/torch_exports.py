"""Which torch releases export a symbol: C++ of its namespaces, C shims, libtorch_python's C names.

The table has a hash of 40 bits for each of 123,000 names, and the releases that have it: two names
share a hash by a chance of one in ten million. `python -m torchwheel.check.torch_exports
TORCH_WHEEL…` adds the releases of wheels of torch; those of PyPI for Linux are in it.
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

from torchwheel import data, files
from torchwheel.errors import TorchwheelError, UsageError
from torchwheel.inspect.archive import open_archive
from torchwheel.inspect.elf import exported_symbols
from torchwheel.inspect.library_facts import of_torch
from torchwheel.versions import version_numbers

FILE = "torch_exports.bin"
_LIBRARY = re.compile(
    r"torch/lib/(?:libc10|libc10_cuda|libtorch_cpu|libtorch_cuda|libtorch_python)\.so"
)
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
    """The minor release of a wheel of torch, and the symbols that extensions may use of it."""
    name, version, _, _ = parse_wheel_filename(path.name)
    if name != "torch":
        raise UsageError(f"{path.name}: expected a wheel of torch, found one of {name}")
    names: set[str] = set()
    with open_archive(path) as archive, tempfile.TemporaryDirectory() as folder:
        for member in archive.files:
            if _LIBRARY.fullmatch(member.name):
                library = Path(folder, Path(member.name).name)
                with library.open("wb") as file:
                    file.writelines(archive.blocks(member))
                names |= set(filter(of_torch, exported_symbols(library)))
                library.unlink()
    return f"{version.major}.{version.minor}", frozenset(names)


def main(arguments: Sequence[str]) -> int:
    """Add the releases of the wheels named to the data file."""
    if not arguments:
        print("usage: python -m torchwheel.check.torch_exports TORCH_WHEEL…", file=sys.stderr)
        return UsageError.status
    target = data.FOLDER / FILE
    table = decode(target.read_bytes()) if target.exists() else ExportTable((), {})
    try:
        for argument in arguments:
            release, names = read_torch_wheel(Path(argument))
            table = add_release(table, release, names)
            print(f"torch {release}: {len(names)} symbols")
    except TorchwheelError as error:
        print(error, file=sys.stderr)
        return error.status
    with files.write_atomically(target) as temporary:
        temporary.write_bytes(encode(table))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
