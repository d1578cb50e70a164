"""Takes modules of GPU code out of a library, and compares what is left.

A library finds its containers by their addresses, so each stays where it is. The modules that are
kept move to its beginning, its header gets the new size, and zeros fill the rest. So the library
keeps its size on disk, and the wheel shrinks, as zeros pack to a thousandth.
"""

import dataclasses
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from torchwheel.inspect.library_facts import kernels_of
from torchwheel.split.labels import SplitLabel, kept, taken
from torchwheel_runtime.arch.model import CudaArch
from torchwheel_runtime.inspect import cuda, hip
from torchwheel_runtime.inspect.elf_file import open_elf, refuse_malformed
from torchwheel_runtime.inspect.fatbin import (
    Container,
    FatbinEntry,
    container_header,
    read_containers,
    read_module,
)
from torchwheel_runtime.inspect.window import CpuTime, WheelError, Window

_BLOCK = 1 << 20


@dataclasses.dataclass(frozen=True)
class CodeSection:
    """A section with fat binaries.

    Attributes:
        name: the section's.
        at: where it begins in the library.
        containers: in their order.
    """

    name: str
    at: int
    containers: tuple[Container, ...]


@dataclasses.dataclass(frozen=True)
class CudaLibrary:
    """A library with CUDA code: its name in the wheel, its file, and its sections in order."""

    name: str
    path: Path
    sections: tuple[CodeSection, ...]

    @property
    def places(self) -> list[tuple[str, int, int]]:
        """The section of each container, where it begins, and where the container begins in it."""
        return [(of.name, of.at, one.at) for of in self.sections for one in of.containers]

    def entries(self, label: SplitLabel | None = None) -> Iterator[FatbinEntry]:
        """All modules, or those that a label keeps."""
        for one in itertools.chain.from_iterable(of.containers for of in self.sections):
            yield from one.entries if label is None else kept(one.entries, label)


def read_cuda_library(path: Path, name: str) -> CudaLibrary | None:
    """The containers of a library by their headers; None if it has no CUDA code.

    Raises:
        WheelError: it is malformed, or has code for AMD's GPUs.
    """
    with open_elf(path, name) as elf:
        if hip.SECTION in elf.sections:
            raise WheelError(
                f"{name}: expected code for NVIDIA's GPUs alone, found ROCm's, which cannot be "
                "split; build a wheel for each"
            )
        found = [
            CodeSection(section, elf.sections[section].offset, containers)
            for section in cuda.SECTIONS
            if (containers := tuple(read_containers(elf.window(section))))
        ]
    found.sort(key=lambda one: one.at)
    for one, other in itertools.pairwise(found):
        if one.at + one.containers[-1].end > other.at:
            raise WheelError(f"{name}: the sections {one.name} and {other.name} overlap")
    return CudaLibrary(name, path, tuple(found)) if found else None


def archs_of_code(library: CudaLibrary) -> frozenset[CudaArch]:
    """The archs of a library's machine code, without suffixes.

    The empty modules that link steps of nvcc add do not count.
    """
    found: set[CudaArch] = set()
    cpu = CpuTime()
    for window, one in _open_containers(library):
        for entry in one.entries:
            arch = entry.arch.of_gpu
            cpu.check()
            with refuse_malformed(f"{library.name}: module at byte {entry.at}"):
                if entry.kind == "sass" and arch not in found and kernels_of(window, entry) != 0:
                    found.add(arch)
    return frozenset(found)


def ptx_versions(library: CudaLibrary, label: SplitLabel) -> frozenset[str]:
    """The versions of the PTX that a GPU of a label has instead of machine code."""
    found: set[str] = set()
    for window, one in _open_containers(library):
        needed = {entry for gpu in label.gpus for entry in taken(one.entries, gpu)}
        modules = (read_module(window, entry) for entry in needed if entry.kind == "ptx")
        found |= {module.ptx_version for module in modules if module.ptx_version}
    return frozenset(found)


def _open_containers(library: CudaLibrary) -> Iterator[tuple[Window, Container]]:
    """All containers, each with the section that it is in."""
    with open_elf(library.path, library.name) as elf:
        for section in library.sections:
            window = elf.window(section.name)
            for one in section.containers:
                yield window, one


def blocks_for(library: CudaLibrary, label: SplitLabel) -> Iterator[bytes]:
    """The bytes of a library with the modules of a label alone, block by block."""
    with library.path.open("rb") as file:
        done = 0
        for section in library.sections:
            for one in section.containers:
                start, end = section.at + one.at, section.at + one.end
                yield from _part(file, done, start)
                modules = kept(one.entries, label)
                size = sum(entry.room for entry in modules)
                yield (header := container_header(size))
                for entry in modules:
                    yield from _part(file, section.at + entry.header, section.at + entry.end)
                yield from _zeros(end - start - len(header) - size)
                done = end
        yield from _part(file, done, library.path.stat().st_size)


def _part(file: IO[bytes], at: int, end: int) -> Iterator[bytes]:
    file.seek(at)
    while at < end:
        block = file.read(min(_BLOCK, end - at))
        if not block:
            raise WheelError(f"cut short: {end - at} bytes expected at byte {at}")
        at += len(block)
        yield block


def _zeros(size: int) -> Iterator[bytes]:
    for at in range(0, size, _BLOCK):
        yield bytes(min(_BLOCK, size - at))


def require_same_code(before: CudaLibrary, after: CudaLibrary | None, label: SplitLabel) -> int:
    """Compare a library with the one in the wheel of a label; returns the modules compared.

    In each container each GPU of the label must have the same modules, byte by byte, and all that
    is no container must be the same.

    Raises:
        WheelError: something differs, and where.
    """
    if after is None or before.places != after.places:
        raise WheelError(f"{before.name}: the label {label.name} has other containers of GPU code")
    modules = done = 0
    with before.path.open("rb") as old_file, after.path.open("rb") as new_file:
        for old, new in zip(before.sections, after.sections, strict=True):
            windows = [Window(file, old.at, 1 << 62) for file in (old_file, new_file)]
            for one, other in zip(old.containers, new.containers, strict=True):
                host = _part(old_file, done, old.at + one.at)
                _require_equal(before, label, done, host, new_file)
                done = old.at + one.end
                pairs = {
                    pair
                    for gpu in label.targets
                    for pair in itertools.zip_longest(
                        taken(one.entries, gpu), taken(other.entries, gpu)
                    )
                }
                same = {second for _, second in pairs} == {*other.entries}
                for pair in pairs if same else ():
                    first, second = (
                        window.read(entry.header, entry.room) if entry else b""
                        for window, entry in zip(windows, pair, strict=True)
                    )
                    same &= first == second
                if not same:
                    raise WheelError(
                        f"{before.name}: the label {label.name} has other code in the container "
                        f"at byte {old.at + one.at}"
                    )
                modules += len(pairs)
        size = before.path.stat().st_size
        _require_equal(before, label, done, _part(old_file, done, size), new_file)
        if new_file.read(1):
            raise WheelError(f"{before.name}: the label {label.name} has bytes after its end")
    return modules


def _require_equal(
    library: CudaLibrary, label: SplitLabel, at: int, blocks: Iterator[bytes], other: IO[bytes]
) -> None:
    other.seek(at)
    for block in blocks:
        if other.read(len(block)) != block:
            raise WheelError(
                f"{library.name}: the label {label.name} has other bytes from byte {at} on, "
                "which are no GPU code"
            )
        at += len(block)
