"""fusedops' native build; the logic is torchwheel's, taken from this tree."""

import sys
from pathlib import Path

from setuptools import setup

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "pkg"))

from torchwheel.builder import NativeLibrary, setup_arguments  # noqa: E402

FUSEDOPS = NativeLibrary(
    package="fusedops._lib",
    device=("csrc/kernels/*.cu",),
    host=("csrc/ops/*.cpp",),
    bindings={"stable": ("csrc/torch/stable.cpp",), "aten": ("csrc/torch/aten.cpp",)},
    module="fusedops._C",
    python=("csrc/torch/module.cpp",),
    include_dirs=("csrc",),
)

setup(**setup_arguments(FUSEDOPS, HERE))
