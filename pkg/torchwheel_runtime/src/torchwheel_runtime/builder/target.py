"""The inputs of a build beside its sources; together they decide its bytes."""

import dataclasses
from pathlib import Path

from torchwheel_runtime.arch.model import Arch, Backend
from torchwheel_runtime.arch.releases import ToolkitRelease, cxx_standard
from torchwheel_runtime.claims import NativeAbi, PartKind


@dataclasses.dataclass(frozen=True)
class DeviceCompiler:
    """The compiler of a toolkit, and what it compiles for.

    Attributes:
        release: the toolkit's release, e.g. CUDA 13.0.
        root: the toolkit's folder: CUDA_HOME or ROCM_PATH.
        archs: the arch list.
        runtime: the runtime library to link with: libcudart_static.a or libamdhip64.so.
    """

    release: ToolkitRelease
    root: Path
    archs: tuple[Arch, ...]
    runtime: Path

    @property
    def backend(self) -> Backend:
        """The backend of the release."""
        return self.release.backend


@dataclasses.dataclass(frozen=True)
class TorchHeaders:
    """torch's headers.

    Attributes:
        root: the folder that holds torch/include.
        release: the floor of a stable library, or the minor of an aten one, e.g. "2.11".
        old_abi: whether this torch was built with libstdc++'s old strings.
    """

    root: Path
    release: str
    old_abi: bool = False

    @property
    def include(self) -> Path:
        """Torch's include folder."""
        return self.root / "torch" / "include"


@dataclasses.dataclass(frozen=True)
class Python:
    """The CPython that an aten library is for.

    Attributes:
        include: folder of Python.h.
        pybind11: pybind11's include folder.
        suffix: of extension modules, e.g. ".cpython-312-x86_64-linux-gnu.so".
    """

    include: Path
    pybind11: Path
    suffix: str


@dataclasses.dataclass(frozen=True)
class Target:
    """The library to build, its tools and its platform.

    Attributes:
        name: the variant, e.g. "cu130-stable"; it names a stable library's file.
        abi: ABI flavour.
        source: the project's folder.
        toolkit: the device compiler.
        torch: torch's headers.
        platform: "linux_x86_64" or "linux_aarch64".
        cross: whether the platform is not the compiler's own.
        cxx: the host compiler.
        python: the CPython it is for, in the aten flavour.
        sysroot: flags of the older system that is compiled and linked against, if any.
        part: the part of a universal wheel that it is; None for an extension in one library.
        probes: names of the extension's probes that hold for `cxx`.
        operators_off: names of operators that are left out.
    """

    name: str
    abi: NativeAbi
    source: Path
    toolkit: DeviceCompiler
    torch: TorchHeaders
    platform: str
    cross: bool
    cxx: str
    python: Python | None = None
    sysroot: tuple[str, ...] = ()
    part: PartKind | None = None
    probes: frozenset[str] = frozenset()
    operators_off: frozenset[str] = frozenset()

    @property
    def standard(self) -> str:
        """The flag with the C++ standard: that of torch's headers, in the aten flavour."""
        return f"-std=c++{cxx_standard(self.torch.release if self.abi == 'aten' else None)}"
