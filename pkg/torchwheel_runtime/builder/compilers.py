"""The compilers of CUDA and ROCm, and their flags."""

import dataclasses
from pathlib import Path

from torchwheel_runtime.builder.discovery import CUDA_TARGETS
from torchwheel_runtime.builder.target import Target
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
        compiler=(str(root / "bin" / "nvcc"), "-std=c++17", "-O3"),
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
    return ("--target-directory", _other(target), "-isystem", str(own))


def _headers(target: Target) -> Path:
    """Headers of the platform that is built for."""
    root = target.toolkit.root
    return root / "targets" / _other(target) / "include" if target.cross else root / "include"


def _other(target: Target) -> str:
    return CUDA_TARGETS[target.platform.removeprefix("linux_")]


# HIP's own headers ask which of two platforms they are for.
_AMD = "-D__HIP_PLATFORM_AMD__"


def rocm(target: Target) -> GpuCompiler:
    """The parts of a build with ROCm."""
    root = target.toolkit.root
    return GpuCompiler(
        label="HIP",
        compiler=(str(root / "bin" / "hipcc"), "-x", "hip", "-std=c++17", "-O3"),
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
        # libstdc++.a refers weakly to pthread's functions, for which --as-needed alone would
        # name no library. The runtime by its path: -L would let this system's libraries in before
        # a sysroot's.
        link=(
            "-Wl,--no-as-needed",
            "-lpthread",
            "-Wl,--as-needed",
            str(target.toolkit.runtime),
        ),
    )
