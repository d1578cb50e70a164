"""An extension as its author wrote it: torch's own build, and nothing of torchwheel."""

import os

from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CUDAExtension

# As many projects do; tests say what is hard-coded.
hard = [f"-gencode=arch=compute_{a},code=sm_{a}" for a in os.environ.get("PLUS_ARCHS", "").split()]

setup(
    name="plus",
    version="1.0",
    packages=["plus"],
    ext_modules=[
        CUDAExtension(
            "plus._C",
            ["csrc/module.cpp", "csrc/add.cu"],
            extra_compile_args={"cxx": ["-O1"], "nvcc": ["-O1", *hard]},
        )
    ],
    cmdclass={"build_ext": BuildExtension},
    install_requires=["torch"],
)
