"""An extension as its author wrote it: torch's own build, and nothing of torchwheel."""

import os

import torch
from setuptools import setup
from torch.utils.cpp_extension import CUDA_HOME, BuildExtension, CppExtension, CUDAExtension

# As many projects do; tests say what is hard-coded.
hard = [f"-gencode=arch=compute_{a},code=sm_{a}" for a in os.environ.get("PLUS_ARCHS", "").split()]

# As PyTorch's own example does; a build has no GPU.
use_cuda = torch.cuda.is_available() and CUDA_HOME is not None
extension = CUDAExtension if use_cuda else CppExtension

setup(
    name="plus",
    version="1.0",
    packages=["plus"],
    ext_modules=[
        extension(
            "plus._C",
            ["csrc/module.cpp", *(["csrc/add.cu"] if use_cuda else [])],
            extra_compile_args={"cxx": ["-O1"], "nvcc": ["-O1", *hard]},
        )
    ],
    cmdclass={"build_ext": BuildExtension},
    install_requires=["torch"],
)
