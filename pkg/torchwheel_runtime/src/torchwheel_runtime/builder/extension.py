"""What an extension says of itself, once: for setup.py, for the build at first use, for the doctor.

Standard library only: an extension's `setup.py` and its import both read it.
"""

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

from torchwheel_runtime.builder.flags import NO_FLAGS, Flags, Probe, check_flags, flags_of_toolkit

if TYPE_CHECKING:  # no import of an extension asks for archs
    from torchwheel_runtime.arch.model import Arch
    from torchwheel_runtime.arch.releases import ToolkitRelease

STABLE_SINCE = "2.11"
"""The first torch with the whole of the stable ABI."""
LIBRARIES = "_lib"
"""Folder of an installed package that holds its prebuilt stable libraries."""
OBJECTS = "objects"
"""Folder of a build with objects that it compiled for other builds, or took from one."""
SOURCES = "_sources"
"""Folder of an installed package that holds the sources it can be built from."""


@dataclasses.dataclass(frozen=True)
class ArchFilter:
    """The GPUs that an operator has kernels for.

    Attributes:
        cuda: the lowest compute capability, e.g. (8, 0).
        rocm: patterns of processors, e.g. ("gfx9*",).
    """

    cuda: tuple[int, int] = (0, 0)
    rocm: tuple[str, ...] = ("*",)

    def takes(self, arch: "Arch") -> bool:
        """Whether kernels are compiled for `arch`."""
        import fnmatch  # noqa: PLC0415

        from torchwheel_runtime.arch.model import CudaArch  # noqa: PLC0415

        if isinstance(arch, CudaArch):
            return (arch.major, arch.minor) >= self.cuda
        return any(fnmatch.fnmatchcase(arch.name, pattern) for pattern in self.rocm)


@dataclasses.dataclass(frozen=True)
class Operator:
    """A family of operators that is one native library when it is built at first use.

    Files are globs relative to the extension's source folder. Several operators may name a file:
    each alone has it, and the whole has it once.

    Attributes:
        name: e.g. "bias_act".
        device: device code (.cu); it includes no torch header, but in an ordinary extension.
        host: host code (.cpp) that is not common to all; it includes no torch header.
        bindings: per ABI flavour ("stable", "aten"), the files that meet torch. A library built
            from them registers its kernels when it is loaded.
        archs: the GPUs it has kernels for.
    """

    name: str
    device: tuple[str, ...]
    host: tuple[str, ...] = ()
    bindings: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    archs: ArchFilter = ArchFilter()


@dataclasses.dataclass(frozen=True)
class Module:
    """The extension module that a prebuilt aten library is.

    Attributes:
        name: e.g. "fusedops._C".
        binding: the file that meets torch. It includes no Python.h, so one object serves every
            Python. The operators' own bindings are compiled with it as one unit, before it and in
            the extension's order: torch's headers take seconds to read, and are read once.
        python: files that meet Python, through pybind11; they include no torch header, so one
            object serves every torch with the same std::string.
    """

    name: str
    binding: str = ""
    python: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Split:
    """How an extension divides into kernel libraries and front ends, for a universal wheel.

    A kernel library has the device code of one toolkit and knows neither torch nor Python. A front
    end has the rest, for one torch ABI, and knows no toolkit. <torchwheel/kernels.h> is how the one
    exports kernels and the other calls them.

    Attributes:
        interface: the headers that both sides include, without torchwheel's own. Their digest is
            a text in each library, and libraries with different texts are not joined.
        kernels: torch-free host files of a kernel library, beside its device code.
        entry_points: files of an extension module over DLPack that knows no torch ABI, if any.
    """

    interface: tuple[str, ...]
    kernels: tuple[str, ...] = ()
    entry_points: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Extension:
    """A package with native operators.

    Attributes:
        package: the Python package, e.g. "fusedops".
        sources: the project's folder of sources, e.g. "csrc"; the installed package has it too.
        operators: its operators.
        host: torch-free host code that every operator needs.
        module: the extension module of the aten flavour, if it has that flavour.
        include_dirs: folders for -I, relative to the source folder.
        macros: preprocessor macros, name to value ("" for none).
        torch: the oldest torch that its stable library runs with.
        dispatch: the dispatch key that its libraries register kernels for.
        namespace: of its operators in torch.ops; the package's name if none is given.
        ordinary: whether its sources, device code too, include torch/extension.h. Then it is an
            extension module in the aten flavour, for one torch and one Python, whole.
        split: how it divides for a universal wheel; None if it cannot be divided.
        flags: flags of compilers and the linker, for every toolkit.
        toolkit_flags: further flags by toolkit, e.g. by "rocm" or "cuda>=12.8".
        probes: further flags that depend on what the C++ compiler can build.
        verbose: whether a build prints its commands.
    """

    package: str
    sources: str
    operators: tuple[Operator, ...]
    host: tuple[str, ...] = ()
    module: Module | None = None
    include_dirs: tuple[str, ...] = (".",)
    macros: Mapping[str, str] = dataclasses.field(default_factory=dict)
    torch: str = STABLE_SINCE
    dispatch: str = "CUDA"
    namespace: str = ""
    ordinary: bool = False
    split: Split | None = None
    flags: Flags = NO_FLAGS
    toolkit_flags: Mapping[str, Flags] = dataclasses.field(default_factory=dict)
    probes: tuple[Probe, ...] = ()
    verbose: bool = False

    def __post_init__(self) -> None:
        """The package's name serves where no namespace is given."""
        if not self.namespace:
            object.__setattr__(self, "namespace", self.package)

    def operator(self, name: str) -> Operator:
        """One of its operators, by name."""
        return next(operator for operator in self.operators if operator.name == name)

    def flags_for(self, release: "ToolkitRelease", probes: frozenset[str]) -> Flags:
        """The flags of a build with a toolkit, where the probes of these names hold.

        Raises:
            UsageError: one of the extension's flags is refused, whatever the toolkit is.
        """
        check_flags(self.flags, "Extension.flags")
        for condition, flags in self.toolkit_flags.items():
            check_flags(flags, f"Extension.toolkit_flags[{condition!r}]")
        chosen = self.flags + flags_of_toolkit(self.toolkit_flags, release)
        for probe in self.probes:
            check_flags(probe.flags, f"Probe({probe.name!r})")
            if probe.name in probes:
                chosen += probe.flags
        unused = "hip" if release.backend == "cuda" else "cuda"
        return dataclasses.replace(chosen, **{unused: ()})
