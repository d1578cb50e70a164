from pathlib import Path

from setuptools import setup

from torchwheel.builder import NativeLibrary, setup_arguments

LIBRARY = NativeLibrary(
    package="tiny._lib",
    device=("csrc/*.cu",),
    host=(),
    bindings={"stable": ("csrc/stable.cpp",)},
    include_dirs=("csrc",),
)

setup(**setup_arguments(LIBRARY, Path(__file__).resolve().parent))
