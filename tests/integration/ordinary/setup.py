"""An extension as torch's tutorials write it; torchwheel is not in it."""

from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CppExtension

setup(
    name="scaled",
    version="0.3",
    packages=["scaled"],
    install_requires=["torch>=2.0", "packaging"],
    ext_modules=[CppExtension("scaled._C", ["csrc/scaled.cpp"])],
    cmdclass={"build_ext": BuildExtension},
)
