"""A stable-ABI extension as torch's tutorials write it; torchwheel is not in it."""

from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CUDAExtension

STABLE = "-DTORCH_TARGET_VERSION=0x020b000000000000"

setup(
    packages=["axpy"],
    ext_modules=[
        CUDAExtension(
            "axpy._C",
            ["axpy/csrc/axpy.cpp", "axpy/csrc/axpy.cu"],
            extra_compile_args={
                "cxx": ["-DPy_LIMITED_API=0x030a0000", STABLE],
                "nvcc": ["-DUSE_CUDA", STABLE],
            },
            py_limited_api=True,
        )
    ],
    cmdclass={"build_ext": BuildExtension},
    options={"bdist_wheel": {"py_limited_api": "cp310"}},
)
