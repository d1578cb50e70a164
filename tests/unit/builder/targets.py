"""A library and targets for it, one of each kind."""

import dataclasses
from pathlib import Path

from torchwheel.builder.library import NativeLibrary
from torchwheel.builder.objects import Sources
from torchwheel.builder.target import Python, Sysroot, Target, Toolkit, Torch

LIBRARY = NativeLibrary(
    package="pkg._lib",
    device=("csrc/*.cu",),
    host=("csrc/*.cpp",),
    bindings={"stable": ("csrc/stable.cpp",), "aten": ("csrc/aten.cpp",)},
    module="pkg._C",
    python=("csrc/module.cpp",),
    include_dirs=("csrc",),
    macros={"ANSWER": "42", "FLAG": ""},
)
CUDA_STABLE = Target(
    name="cu130-stable",
    abi="stable",
    source=Path("/project"),
    toolkit=Toolkit(
        backend="cuda",
        root=Path("/cuda"),
        release="13.0",
        archs=(
            "-gencode=arch=compute_90,code=sm_90",
            "-gencode=arch=compute_120,code=[sm_120,compute_120]",
        ),
    ),
    torch=Torch(Path("/torch"), "2.11"),
    platform="linux_x86_64",
    cross=False,
    cxx="/usr/bin/g++",
    launcher=("sccache",),
)
CUDA_CROSS = dataclasses.replace(
    CUDA_STABLE,
    name="cu130-stable-linux_aarch64",
    platform="linux_aarch64",
    cross=True,
    cxx="aarch64-linux-gnu-g++",
)
PY312 = Python(Path("/py/include"), Path("/pybind11/include"), ".cpython-312-x86_64-linux-gnu.so")
PY311 = Python(Path("/py/include"), Path("/pybind11/include"), ".cpython-311-x86_64-linux-gnu.so")
CUDA_ATEN = dataclasses.replace(CUDA_STABLE, name="cu130-torch2.11-cp312", abi="aten", python=PY312)
# As torch 2.6 was built.
CUDA_ATEN_OLD = dataclasses.replace(
    CUDA_ATEN, name="cu130-torch2.6-cp312", torch=Torch(Path("/torch"), "2.6", old_abi=True)
)
ROCM_STABLE = dataclasses.replace(
    CUDA_STABLE,
    name="rocm6.4-stable",
    toolkit=Toolkit(
        backend="rocm",
        root=Path("/rocm"),
        release="6.4",
        archs=("--offload-arch=gfx90a", "--offload-arch=gfx942"),
        runtime=Path("/rocm/lib/libamdhip64.so"),
    ),
    cxx="/rocm/llvm/bin/clang++",
    sysroot=Sysroot(Path("/sysroot"), Path("/sysroot/usr/lib/gcc/x86_64-linux-gnu/10")),
)
EVERY = {
    "cuda-stable": CUDA_STABLE,
    "cuda-cross": CUDA_CROSS,
    "cuda-aten": CUDA_ATEN,
    "cuda-aten-old": CUDA_ATEN_OLD,
    "rocm-stable": ROCM_STABLE,
}


def sources(target: Target) -> Sources:
    """Two device files, one with a blank in its name, and one of each other kind."""
    return Sources(
        device=["csrc/a.cu", "csrc/b c.cu"],
        host=["csrc/host.cpp"],
        binding=[f"csrc/{target.abi}.cpp"],
        python=["csrc/module.cpp"] if target.python else (),
    )
