"""A library and targets for it, one of each kind."""

import dataclasses
from pathlib import Path

from torchwheel_runtime.arch.model import parse
from torchwheel_runtime.arch.releases import ToolkitRelease
from torchwheel_runtime.builder import variables
from torchwheel_runtime.builder.extension import ArchFilter, Extension, Module, Operator
from torchwheel_runtime.builder.sources import Sources
from torchwheel_runtime.builder.target import DeviceCompiler, Python, Target, TorchHeaders

EXTENSION = Extension(
    package="pkg",
    sources="csrc",
    operators=(
        Operator("a", ("a.cu",), ("a.cpp",), {"stable": ("a_stable.cpp",)}),
        Operator(
            "b",
            ("b c.cu",),
            (),
            {"stable": ("b_stable.cpp",), "aten": ("b_aten.cpp",)},
            ArchFilter(cuda=(10, 0), rocm=("gfx9[45]*",)),
        ),
    ),
    host=("host.cpp",),
    module=Module("pkg._C", "aten.cpp", ("module.cpp",)),
    macros={"ANSWER": "42", "FLAG": ""},
)
CUDA_STABLE = Target(
    name="cu130-stable",
    abi="stable",
    source=Path("/project"),
    toolkit=DeviceCompiler(
        release=ToolkitRelease("cuda", "13.0"),
        root=Path("/cuda"),
        archs=(parse("9.0"), parse("12.0+PTX")),
        runtime=Path("/cuda/lib64/libcudart_static.a"),
    ),
    torch=TorchHeaders(Path("/torch"), "2.11"),
    platform="linux_x86_64",
    cross=False,
    cxx="/usr/bin/g++",
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
    CUDA_ATEN, name="cu130-torch2.6-cp312", torch=TorchHeaders(Path("/torch"), "2.6", old_abi=True)
)
ROCM_STABLE = dataclasses.replace(
    CUDA_STABLE,
    name="rocm6.4-stable",
    toolkit=DeviceCompiler(
        release=ToolkitRelease("rocm", "6.4"),
        root=Path("/rocm"),
        archs=(parse("gfx90a"), parse("gfx942")),
        runtime=Path("/rocm/lib/libamdhip64.so"),
    ),
    cxx="/rocm/llvm/bin/clang++",
    sysroot=(
        "--sysroot=/sysroot",
        "--gcc-install-dir=/sysroot/usr/lib/gcc/x86_64-linux-gnu/10",
    ),
)
EVERY = {
    "cuda-stable": CUDA_STABLE,
    "cuda-cross": CUDA_CROSS,
    "cuda-aten": CUDA_ATEN,
    "cuda-aten-old": CUDA_ATEN_OLD,
    "rocm-stable": ROCM_STABLE,
}


def environ_of(folder: Path, **changes: str) -> dict[str, str]:
    """The variables of a stable build with a CUDA and a torch in one folder."""
    return {
        variables.ABI: "stable",
        variables.CUDA_HOME: str(folder),
        variables.TOOLKIT: "13.0",
        variables.ARCH_LIST: "9.0",
        variables.TORCH: str(folder),
        variables.TORCH_RELEASE: "2.11",
        **changes,
    }


def sources(target: Target) -> Sources:
    """Two device files, one with a blank in its name and fewer archs, and one of each kind."""
    archs = target.toolkit.archs
    return Sources(
        device={"a.cu": archs, "b c.cu": archs[1:]},
        host=["host.cpp"],
        binding=[f"{target.abi}.cpp"],
        python=["module.cpp"] if target.python else (),
        included=["b_aten.cpp"] if target.python else (),
    )
