"""The aten flavour's front end compiles against the headers of a torch it is built for.

Its wheels are built in containers; this is the compiler's word in seconds.
"""

import subprocess
from pathlib import Path

import pytest

from torchwheel.console import Quiet
from torchwheel.toolkit.headers import torch_headers

pytestmark = pytest.mark.integration

CSRC = Path(__file__).parents[2] / "csrc"


@pytest.mark.parametrize(
    "source", sorted((CSRC / "torch" / "aten").glob("*.cpp")), ids=lambda p: p.stem
)
def test_it_compiles(source, nvcc, cache):
    if source.name == "module.cpp":
        pybind11 = pytest.importorskip("pybind11", reason="pybind11 is not installed")
        import sysconfig

        folders = [pybind11.get_include(), sysconfig.get_path("include")]
    else:
        torch = torch_headers("2.11", cache, Quiet()) / "torch" / "include"
        folders = [torch, torch / "torch/csrc/api/include", nvcc.parents[1] / "include"]
    done = subprocess.run(
        ["g++", "-std=c++17", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-fvisibility=hidden"]
        + [
            "-DUSE_CUDA",
            f"-I{CSRC}",
            *(word for folder in folders for word in ("-isystem", str(folder))),
        ]
        + [str(source)],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
