"""Takes modules of GPU code out of a library, and compares what is left.

A library finds its containers by their addresses, so each stays where it is. The modules that are
kept move to its beginning, its header gets the new size, and zeros fill the rest. So the library
keeps its size on disk, and the wheel shrinks, as zeros pack to a thousandth.
"""

import contextlib
import dataclasses
import itertools
from collections.abc import Iterator
from pathlib import Path

from torchwheel.inspect.library_facts import kernels_of
from torchwheel.split.labels import SplitLabel, kept, taken
from torchwheel_runtime.arch.model import CudaArch
from torchwheel_runtime.inspect import cuda, hip
from torchwheel_runtime.inspect.elf_file import open_elf, refuse_malformed
from torchwheel_runtime.inspect.fatbin import (
    FatbinContainer,
    FatbinEntry,
    container_header,
    read_containers,
    read_module,
)
from torchwheel_runtime.inspect.window import CpuTime, WheelError, Window

_BLOCK = 1 << 20


@dataclasses.dataclass(frozen=True)
class CudaLibrary:
    """A library with CUDA code.

    Attributes:
        name: its name in the wheel.
        path: its file.
        containers: with their places in the file, in order.
    """

    name: str
    path: Path
    containers: tuple[FatbinContainer, ...]

    def entries(self, label: SplitLabel | None = None) -> Iterator[FatbinEntry]:
        """All modules, or those that a label keeps."""
        for one in self.containers:
            yield from one.entries if label is None else kept(one.entries, label)

    @contextlib.contextmanager
    def open(self) -> Iterator[Window]:
        """Open its file."""
        with self.path.open("rb") as file:
            yield Window(file, 0, self.path.stat().st_size)


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
            container.moved(elf.sections[section].offset)
            for section in cuda.SECTIONS
            for container in read_containers(elf.window(section))
        ]
    found.sort(key=lambda one: one.at)
    for one, other in itertools.pairwise(found):
        if one.end > other.at:
            raise WheelError(f"{name}: expected sections of their own bytes, found shared ones")
    return CudaLibrary(name, path, tuple(found)) if found else None


def archs_of_code(library: CudaLibrary) -> frozenset[CudaArch]:
    """The archs of a library's machine code, without suffixes.

    The empty modules that link steps of nvcc add do not count.
    """
    found: set[CudaArch] = set()
    cpu = CpuTime()
    with library.open() as window:
        for entry in library.entries():
            arch = entry.arch.of_gpu
            cpu.check()
            with refuse_malformed(f"{library.name}: module at byte {entry.at}"):
                if entry.kind == "sass" and arch not in found and kernels_of(window, entry) != 0:
                    found.add(arch)
    return frozenset(found)


def ptx_versions(library: CudaLibrary, label: SplitLabel) -> frozenset[str]:
    """The versions of the PTX that a GPU of a label has instead of machine code."""
    needed = {
        entry
        for one in library.containers
        for gpu in label.gpus
        for entry in taken(one.entries, gpu)
        if entry.kind == "ptx"
    }
    with library.open() as window:
        versions = {read_module(window, entry).ptx_version for entry in needed}
    return frozenset(filter(None, versions))


def blocks_for(library: CudaLibrary, label: SplitLabel) -> Iterator[bytes]:
    """The bytes of a library with the modules of a label alone, block by block."""
    with library.open() as window:
        done = 0
        for one in library.containers:
            yield from _blocks(window, done, one.at)
            modules = kept(one.entries, label)
            size = sum(entry.room for entry in modules)
            yield (header := container_header(size))
            for entry in modules:
                yield from _blocks(window, entry.header, entry.end)
            yield from _zeros(one.end - one.at - len(header) - size)
            done = one.end
        yield from _blocks(window, done, window.size)


def _blocks(window: Window, at: int, end: int) -> Iterator[bytes]:
    for start in range(at, end, _BLOCK):
        yield window.read(start, min(_BLOCK, end - start))


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

    def differ(what: str) -> WheelError:
        return WheelError(f"{before.name}: expected the plain wheel's {what} in {label.name}")

    places = [[one.at for one in library.containers] for library in (before, after) if library]
    if after is None or places[0] != places[1]:
        raise differ("containers of GPU code")
    modules = done = 0
    with before.open() as old, after.open() as new:
        if old.size != new.size:
            raise differ("size")
        for one, other in zip(before.containers, after.containers, strict=True):
            if not _same(old, new, done, one.at):
                raise differ(f"bytes from {done} to {one.at}, which are no GPU code")
            done = one.end
            pairs = {
                pair
                for gpu in label.targets
                for pair in itertools.zip_longest(
                    taken(one.entries, gpu), taken(other.entries, gpu)
                )
            }
            same = {second for _, second in pairs} == {*other.entries}
            if not same or not all(
                first
                and second
                and old.read(first.header, first.room) == new.read(second.header, second.room)
                for first, second in pairs
            ):
                raise differ(f"code in the container at byte {one.at}")
            modules += len(pairs)
        if not _same(old, new, done, old.size):
            raise differ(f"bytes from {done} on, which are no GPU code")
    return modules


def _same(old: Window, new: Window, at: int, end: int) -> bool:
    pairs = zip(_blocks(old, at, end), _blocks(new, at, end), strict=True)
    return all(one == other for one, other in pairs)
