"""What an ABI flavour, and the compiler of CUDA or ROCm, bring to a build, as flags."""

import dataclasses
from pathlib import Path

from torchwheel_runtime.builder.extension import Module
from torchwheel_runtime.builder.target import Python, Target, TorchHeaders
from torchwheel_runtime.builder.variables import python_include
from torchwheel_runtime.errors import UsageError
from torchwheel_runtime.machine.toolkit_layout import CUDA_TARGETS, cuda_headers
from torchwheel_runtime.versions import version_numbers


@dataclasses.dataclass(frozen=True)
class GpuCompiler:
    """Parts of command lines.

    Attributes:
        label: names device steps to a person: "CUDA" or "HIP".
        compiler: the device compiler and its language.
        strict: its flags that make a warning an error.
        flags: its other flags, but for the arch list and what every file gets.
        name_source: the device compiler's flag that names a source among the library's, if any.
        pass_on: put before each flag that is for the host compiler, e.g. ("-Xcompiler",).
        headers: flags with which host code finds the runtime's headers.
        link: what the library is linked with.
    """

    label: str
    compiler: tuple[str, ...]
    strict: tuple[str, ...]
    flags: tuple[str, ...]
    name_source: str
    pass_on: tuple[str, ...]
    headers: tuple[str, ...]
    link: tuple[str, ...]


_MODES_SINCE = (12, 8)  # of compression


def cuda(target: Target) -> GpuCompiler:
    """The parts of a build with CUDA; the decisions' measurements are in docs/design.md."""
    root, version = target.toolkit.root, target.toolkit.release.version
    # Measured on seven archs: 2.2 MB installed, not 7.2, and a smaller wheel too; with CUDA 12.4
    # a fifth of the size installed.
    modes = version_numbers(version) >= _MODES_SINCE
    return GpuCompiler(
        label="CUDA",
        compiler=(str(root / "bin" / "nvcc"), target.standard, "-O3"),
        # cudafe's own stubs warn under -Wextra, so only nvcc's diagnostics are errors here.
        strict=("-Werror=all-warnings",),
        flags=(
            # Archs side by side: half the time for a touched file on 2 cores (7.6 s, not 13.1).
            # A fixed number, so that the command is the same on every machine.
            "--threads=4",
            "--compress-mode=size" if modes else "-Xfatbin=-compress-all",
            *(_cross(target) if target.cross else ()),
            "-ccbin",
            target.cxx,
        ),
        name_source="",
        pass_on=("-Xcompiler",),
        # -isystem: CUDA's headers are not ours to make warning-free.
        headers=("-isystem", str(_headers(target))),
        link=(str(target.toolkit.runtime), "-lrt", "-ldl", "-lpthread"),
    )


def _cross(target: Target) -> tuple[str, ...]:
    """Another platform's headers come first; one that nvcc's output includes comes with nvcc."""
    own = target.toolkit.root / "include"
    return ("--target-directory", CUDA_TARGETS[_machine(target)], "-isystem", str(own))


def _headers(target: Target) -> Path:
    """Headers of the platform that is built for."""
    return cuda_headers(target.toolkit.root, _machine(target), cross=target.cross)


def _machine(target: Target) -> str:
    return target.platform.removeprefix("linux_")


# libstdc++.a refers weakly to pthread's functions, for which --as-needed alone would name no
# library. Before glibc 2.34 dlopen has one of its own.
HOST_LINK = ("-Wl,--no-as-needed", "-lpthread", "-Wl,--as-needed", "-ldl")

# HIP's own headers ask which of two platforms they are for.
_AMD = "-D__HIP_PLATFORM_AMD__"


def rocm(target: Target) -> GpuCompiler:
    """The parts of a build with ROCm."""
    root = target.toolkit.root
    return GpuCompiler(
        label="HIP",
        compiler=(str(root / "bin" / "hipcc"), "-x", "hip", target.standard, "-O3"),
        # That a loop was too long to unroll costs speed, and clang's releases differ in it.
        strict=("-Werror", "-Wno-error=pass-failed"),
        flags=(
            _AMD,
            # clang 21's own default, 6, is for ROCm 6.3 and later; this every ROCm 6 and 7 loads.
            "-mcode-object-version=5",
        ),
        # Else clang names objects by a hash of the source's folder: another folder, another wheel.
        name_source="-cuid=",
        pass_on=(),
        # After the system's own folders: a distribution's ROCm lies in /usr/include, which must
        # not come before the C++ library's headers, nor before a sysroot's.
        headers=(_AMD, "-idirafter", str(root / "include")),
        # The runtime by its path: -L would let this system's libraries in before a sysroot's.
        link=(*HOST_LINK, str(target.toolkit.runtime)),
    )


_HERE = Path(__file__).parent
# What torch gives device code beside its headers, so that sources written for it compile.
_ORDINARY_DEVICE = {
    "cuda": (
        "-D__CUDA_NO_HALF_OPERATORS__",
        "-D__CUDA_NO_HALF_CONVERSIONS__",
        "-D__CUDA_NO_HALF2_OPERATORS__",
        "-D__CUDA_NO_BFLOAT16_CONVERSIONS__",
        "--expt-relaxed-constexpr",
    ),
    "rocm": (
        "-DUSE_ROCM=1",
        "-DCUDA_HAS_FP16=1",
        "-DHIPBLAS_V2",
        "-D__HIP_NO_HALF_OPERATORS__=1",
        "-D__HIP_NO_HALF_CONVERSIONS__=1",
        "-DHIP_ENABLE_WARP_SYNC_BUILTINS=1",
    ),
}


@dataclasses.dataclass(frozen=True)
class ObjectGroup:
    """C++ files that are compiled alike; the flags depend on what the name says and no more."""

    name: str
    flags: tuple[str, ...]


# An old libstdc++ has no operator delete with a size.
_OLD_STRINGS = ("-D_GLIBCXX_USE_CXX11_ABI=0", "-fno-sized-deallocation")
_FRONT_END = "-DTORCHWHEEL_FRONT_END"
# gcc lets its memory grow before it looks for garbage: torch's C++ API takes 4.9 CPU seconds, not
# 5.7, and 576 MB, not 472, for the same object. clang has no such parameter and says so.
_FEWER_COLLECTIONS = ("-Wno-unused-command-line-argument", "--param=ggc-min-expand=400")


@dataclasses.dataclass(frozen=True)
class Flavour:
    """Parts of command lines.

    Attributes:
        device: device code.
        host: torch-free host code.
        binding: what meets torch.
        python: what meets Python.
        stubs: sonames of torch's that the library needs; it is linked against empty ones.
        link: the linker's flags.
        exports: the linker's list of what the library shows.
        output: the library's file name.
        warnings: whether a warning is an error: not in sources that others wrote.
    """

    output: str
    exports: Path
    device: ObjectGroup = ObjectGroup("device", ())
    host: ObjectGroup = ObjectGroup("host", ("-O2",))
    binding: ObjectGroup = ObjectGroup("binding", ())
    python: ObjectGroup | None = None
    stubs: tuple[str, ...] = ()
    # Any libstdc++ of the user serves then, and the platform tag falls.
    # Not libgcc too: its unwinder would bring glibc 2.35's _dl_find_object.
    link: tuple[str, ...] = ("-static-libstdc++",)
    warnings: bool = True


def kernels(target: Target) -> Flavour:
    """The kernel library of a toolkit: it knows neither torch nor Python."""
    return Flavour(f"{target.name}.so", _HERE / "part.map")


def front_end(target: Target, whole: Flavour) -> Flavour:
    """The operators for one torch ABI, without kernels; `whole` is the flavour of that ABI."""
    old = target.torch.old_abi
    return dataclasses.replace(
        whole,
        # Only old strings of two copies of libstdc++ must not meet (see aten).
        link=whole.link if old else ("-static-libstdc++",),
        host=_for_front_end(whole.host),
        binding=_for_front_end(whole.binding),
        exports=_HERE / "part.map",
        output=f"{target.name}.so",
    )


def entry_points(target: Target) -> Flavour:
    """An extension module over DLPack for every CPython. It needs one header of torch's alone."""
    python = (
        *("-O2", _FRONT_END, "-DPy_LIMITED_API=0x030a0000"),
        *headers(python_include(), "python"),
        *headers(target.torch.include, "torch"),
    )
    return Flavour(
        f"{target.name}.abi3.so",
        _HERE / "part.map",
        host=_for_front_end(Flavour.host),
        python=ObjectGroup("entry-points", python),
    )


def _for_front_end(group: ObjectGroup) -> ObjectGroup:
    return ObjectGroup(f"front-{group.name}", (*group.flags, _FRONT_END))


def stable(target: Target) -> Flavour:
    """The stable ABI: C functions of torch's and no mangled name; any torch from the floor on."""
    version = f"-DTORCH_TARGET_VERSION={target_version(target.torch.release)}"
    return Flavour(
        binding=ObjectGroup(
            f"stable{target.torch.release}", ("-O2", "-DUSE_CUDA", version, *_torch(target.torch))
        ),
        # Without this entry the loader cannot find torch's C functions.
        stubs=("libtorch.so",),
        # torch loads the library for what it registers: it has nothing to show, least of all
        # libstdc++'s weak symbols.
        exports=_HERE / "library.map",
        output=f"{target.name}.so",
    )


def aten(target: Target, module: Module | None) -> Flavour:
    """Torch's C++ API, for one torch: an extension module for one CPython, else a plain library."""
    if target.toolkit.backend == "rocm":
        # Not tried with a torch for ROCm.
        raise UsageError("the aten flavour for ROCm: not provided; use the stable flavour")
    old, python = target.torch.old_abi, target.python
    strings = _OLD_STRINGS if old else ()
    # -O1: torch's and pybind11's templates compile in four fifths of -O2's time.
    # NDEBUG, as in Python's own flags: those headers' assertions are for their authors.
    quick = ("-O1", "-DNDEBUG", *_FEWER_COLLECTIONS)
    name = _module_name(module) if python and module else ()
    binding = (*quick, "-DUSE_CUDA", *name, *strings, *_torch(target.torch))
    return Flavour(
        host=ObjectGroup("host-old-strings" if old else "host", ("-O2", *strings)),
        binding=ObjectGroup(f"aten{target.torch.release}", binding),
        python=ObjectGroup(
            f"python{python.suffix.removesuffix('.so')}{'-old-strings' if old else ''}",
            (*quick, *name, *strings, *_python(python)),
        )
        if python
        else None,
        stubs=("libtorch.so", *(("libtorch_python.so",) if python else ())),
        # libstdc++ stays shared, as torch has it: strings and exceptions go there and come back.
        # With a static one torch 2.6 aborts at import, `free(): invalid pointer`: an empty string
        # of its ABI is a pointer into the copy of libstdc++ that made it.
        link=(),
        exports=_HERE / ("module.map" if python else "library.map"),
        output=f"{last(module)}{python.suffix}" if python and module else f"{target.name}.so",
    )


def ordinary(target: Target, module: Module | None) -> Flavour:
    """What torch's own build does for sources with torch/extension.h: an extension module."""
    python = target.python
    if python is None or module is None:
        raise UsageError("an ordinary extension is an extension module: name its `module`")
    strings = ("-D_GLIBCXX_USE_CXX11_ABI=0",) if target.torch.old_abi else ()
    flags = (
        *_module_name(module),
        "-DTORCH_API_INCLUDE_EXTENSION_H",
        *strings,
        *_torch(target.torch),
        # torch brings the pybind11 that its own module was built with.
        *headers(python.include, "python"),
    )
    # Every file meets torch and Python, so what two variants may share is named by both.
    of = f"{target.torch.release}-{python.suffix.removesuffix('.so').lstrip('.')}"
    return Flavour(
        device=ObjectGroup(f"device{of}", (*flags, *_ORDINARY_DEVICE[target.toolkit.backend])),
        host=ObjectGroup(f"host{of}", ("-O2", *flags)),
        binding=ObjectGroup(f"binding{of}", ("-O2", *flags)),
        stubs=("libtorch.so", "libtorch_python.so"),
        link=(),
        exports=_HERE / "module.map",
        output=f"{last(module)}{python.suffix}",
        warnings=False,
    )


def last(module: Module) -> str:
    """The last part of a module's name: "_C" of "fusedops._C"."""
    return module.name.rpartition(".")[2]


def _module_name(module: Module) -> tuple[str, ...]:
    """The macro that torch's own build defines for the sources of an extension module."""
    return (f"-DTORCH_EXTENSION_NAME={last(module)}",)


def target_version(floor: str) -> str:
    """TORCH_TARGET_VERSION of a torch release: "2.11" is 0x020b000000000000."""
    major, minor = (int(part) for part in floor.split(".")[:2])
    return f"0x{major:02x}{minor:02x}000000000000"


def headers(folder: Path, name: str) -> tuple[str, ...]:
    """An include folder that is not ours to make warning-free, known to __FILE__ as `name`."""
    return (f"-ffile-prefix-map={folder}={name}", "-isystem", str(folder))


def _torch(torch: TorchHeaders) -> tuple[str, ...]:
    api = torch.include / "torch" / "csrc" / "api" / "include"
    return (*headers(torch.include, "torch"), "-isystem", str(api))


def _python(python: Python) -> tuple[str, ...]:
    return (*headers(python.pybind11, "pybind11"), *headers(python.include, "python"))
