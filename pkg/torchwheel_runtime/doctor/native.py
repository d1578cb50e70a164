"""Reads the native libraries of a package: GPU code, dependencies, glibc."""

import dataclasses
import re
from collections.abc import Iterable
from pathlib import Path

from torchwheel_runtime.arch.model import Arch, Backend, CudaArch
from torchwheel_runtime.claims import Claims
from torchwheel_runtime.doctor.loader import Links, Loader
from torchwheel_runtime.errors import TorchwheelError
from torchwheel_runtime.inspect.elf import SHIMS, GpuCode, glibc_floor, is_cxx, read_library
from torchwheel_runtime.inspect.gpu_code import read_gpu_code
from torchwheel_runtime.inspect.window import CpuTime

_RUNTIME = re.compile(r"lib(?:cudart|amdhip64)\.so\.\d+(?:\.\d+)*")
_BACKENDS: tuple[tuple[Backend, tuple[str, ...]], ...] = (
    ("cuda", ("libtorch_cuda", "libc10_cuda", "libcudart.", "libcublas", "libcudnn")),
    ("rocm", ("libtorch_hip", "libc10_hip", "libamdhip64.")),
)
"""Prefixes of libraries that only code for this backend needs."""


@dataclasses.dataclass(frozen=True)
class NativeLibrary:
    """One native library of a package.

    Attributes:
        name: its path below the folder that it is installed in.
        path: its file.
        loaded: whether the import of the package loaded it.
        problem: why it cannot be read; the other fields are then empty.
        machine: the processor that it is for, e.g. "x86_64".
        code: its GPU code, module by module; as the wheel claims it, if it cannot be read.
        code_problem: why its GPU code cannot be read.
        glibc: the newest glibc version that it needs, e.g. "2.34".
        needed: sonames of the libraries that it needs.
        links: its dependencies on this system.
    """

    name: str
    path: Path
    loaded: bool
    problem: str | None = None
    machine: str = ""
    code: tuple[GpuCode, ...] = ()
    code_problem: str | None = None
    glibc: str | None = None
    needed: tuple[str, ...] = ()
    links: Links | None = None

    @property
    def backend(self) -> Backend | None:
        """The backend of its GPU code or of a library that it needs; None if it has neither."""
        if self.code:
            return "rocm" if self.code[0].kind == "hsaco" else "cuda"
        for backend, prefixes in _BACKENDS:
            if any(name.startswith(prefixes) for name in self.needed):
                return backend
        return None

    @property
    def archs(self) -> tuple[Arch, ...]:
        """Archs with machine code that has a kernel: nvcc's link step adds empty modules."""
        return sort_archs(m.arch for m in self.code if m.kind != "ptx" and m.kernels)

    @property
    def ptx(self) -> tuple[CudaArch, ...]:
        """Archs with PTX, which a driver can compile for newer GPUs."""
        archs = {m.arch for m in self.code if m.kind == "ptx"}
        return tuple(sorted(arch for arch in archs if isinstance(arch, CudaArch)))

    @property
    def runtime(self) -> str | None:
        """The shared CUDA or HIP runtime that it needs, e.g. "libcudart.so.12"."""
        return next((name for name in self.needed if _RUNTIME.fullmatch(name)), None)

    @property
    def uses_torch(self) -> bool:
        """Whether it uses a symbol of torch."""
        if self.links is None:
            return False
        undefined = (n for n in self.links.undefined if is_cxx(n) or n.startswith(SHIMS))
        return bool(self.links.torch_symbols) or any(undefined)

    @property
    def for_one_torch(self) -> bool:
        """Whether it uses C++ symbols of torch, which change with every minor release."""
        names = self.links.torch_symbols | self.links.undefined if self.links else ()
        return any(map(is_cxx, names))


def read_native(
    path: Path, root: Path, loader: Loader, claims: Claims | None, cpu: CpuTime, *, loaded: bool
) -> NativeLibrary:
    """Read a library that is installed below `root`. It is not loaded.

    Args:
        path: its file.
        root: the folder that its package is installed in.
        loader: finds the libraries that it needs.
        claims: those of its wheel.
        cpu: the processor time that is left for it.
        loaded: whether the import of the package loaded it.
    """
    name = str(path.relative_to(root)) if path.is_relative_to(root) else str(path)
    try:
        cpu.check()
        library = read_library(path, name)
        links = loader.links(library, path)
    except TorchwheelError as error:
        return NativeLibrary(name, path, loaded, problem=str(error))
    code: tuple[GpuCode, ...] = ()
    code_problem = None
    try:
        code = read_gpu_code(path, cpu=cpu)
    except TorchwheelError as error:
        code, code_problem = claimed_code(claims, name), str(error)
    floor = glibc_floor(library)
    return NativeLibrary(
        name=name,
        path=path,
        loaded=loaded,
        machine=library.machine,
        code=code,
        code_problem=code_problem,
        glibc=".".join(map(str, floor.version)) if floor else None,
        needed=library.needed,
        links=links,
    )


def claimed_code(claims: Claims | None, file: str) -> tuple[GpuCode, ...]:
    """The GPU code that a wheel claims for one of its libraries, as it would be read."""
    if claims is None:
        return ()
    needs = (claims.part_of(file) or claims).needs
    code = [
        GpuCode("hsaco" if needs.backend == "rocm" else "sass", arch.with_ptx(False), ("",))
        for arch in needs.archs
    ]
    return (*code, *(GpuCode("ptx", arch.with_ptx(False)) for arch in needs.archs if arch.ptx))


def sort_archs(archs: Iterable[Arch]) -> tuple[Arch, ...]:
    """The archs in numeric order, e.g. 8.9 before 10.0, each once."""
    return tuple(sorted(set(archs), key=lambda arch: (type(arch).__name__, arch)))
