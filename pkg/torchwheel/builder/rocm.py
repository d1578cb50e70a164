"""ROCm: hipcc for device code, a plain C++ compiler for the rest, the runtime the driver brings."""

from torchwheel.builder.backend import Backend
from torchwheel.builder.target import Target

# HIP's own headers ask which of two platforms they are for.
_AMD = "-D__HIP_PLATFORM_AMD__"


def rocm(target: Target) -> Backend:
    """The parts of a build with ROCm."""
    root = target.toolkit.root
    return Backend(
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
