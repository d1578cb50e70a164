"""The aten flavour's binding compiles against the headers of the torches it is built for.

Its wheels are built in containers; this is the compiler's word in seconds.
"""

import subprocess
from pathlib import Path

import pytest

from torchwheel_runtime.builder.recipe import INCLUDE
from torchwheel_runtime.console import Quiet
from torchwheel_runtime.toolkit.headers import torch_headers

pytestmark = pytest.mark.integration

CSRC = Path(__file__).parents[2] / "csrc"


ATEN = sorted(str(path.relative_to(CSRC)) for path in (CSRC / "torch" / "aten").glob("*.cpp"))


# What defines the operators is in the unit of the typed entry points too.
@pytest.mark.parametrize(
    "source",
    [
        pytest.param(
            source,
            id=(name := Path(source).stem),
            marks=pytest.mark.nightly if name == "library" else (),
        )
        for source in ATEN
    ],
)
def test_it_compiles(source, nvcc, cache):
    module = []
    if not source.endswith("library.cpp"):
        module = ["-DTORCH_EXTENSION_NAME=_C"]
    if source.endswith("entry_points.cpp"):  # one unit with library.cpp
        module += ["-include", str(CSRC / "torch/aten/library.cpp")]
    if source.endswith("module.cpp"):
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
            f"-I{INCLUDE}",
            *(word for folder in folders for word in ("-isystem", str(folder))),
        ]
        + [*module, str(CSRC / source)],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
