"""A small foreign extension, as others write them; its setup.py must never be run to be read."""

from pathlib import Path

SETUP = """\
import os
from setuptools import setup, find_packages
from packaging.version import Version
import torch
from torch.utils.cpp_extension import CUDA_HOME, BuildExtension, CUDAExtension

FORCE_BUILD = os.getenv("DEMO_FORCE_BUILD", "FALSE") == "TRUE"
if not FORCE_BUILD and not os.getenv("DEMO_NO_QUESTIONS"):
    input("download a wheel? ")

flags = ["-O3", "-gencode", "arch=compute_80,code=sm_80"]
if torch.version.cuda and Version(torch.version.cuda) >= Version("12.8"):
    flags += ["-gencode", "arch=compute_120,code=[sm_120,compute_120]"]
if torch.version.cuda and Version(torch.version.cuda) < Version("13.0"):
    flags += ["-gencode", "arch=compute_60,code=sm_60"]

setup(
    name="foreign_demo",
    version="1.2",
    python_requires=">=3.11",
    install_requires=["torch>=2.6", "einops"],
    packages=find_packages(exclude=["tests"]),
    ext_modules=[
        CUDAExtension("foreign_demo._C", ["csrc/demo.cu"], extra_compile_args={"nvcc": flags})
    ],
    cmdclass={"build_ext": BuildExtension},
)
"""
FILES = {
    "setup.py": SETUP,
    "pyproject.toml": '[build-system]\nrequires = ["setuptools", "wheel", "torch"]\n'
    'build-backend = "setuptools.build_meta"\n',
    "foreign_demo/__init__.py": "from foreign_demo import _C\n",
    "csrc/demo.cu": "__global__ void demo() {}\n",
    "tests/test_demo.py": "import einops\nimport numpy\nimport foreign_demo\nimport torch\n",
    ".gitignore": "*.whl\n*.so\n",
}


def write_foreign_project(folder: Path, **changed: str) -> Path:
    """Write the project into `folder`; `changed` gives setup.py another text."""
    for name, text in FILES.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(changed.get(file.stem, text) if name == "setup.py" else text)
    return folder
