"""The aten flavour's binding compiles against the headers of a torch it is built for.

Its wheels are built in containers; this is the compiler's word in seconds.
"""

import subprocess
from pathlib import Path

import pytest

from fusedops.extension import EXTENSION
from torchwheel.builder.recipe import INCLUDE
from torchwheel.console import Quiet
from torchwheel.toolkit.headers import torch_headers

pytestmark = pytest.mark.integration

CSRC = Path(__file__).parents[2] / "csrc"


FAMILIES = [f"torch/families/{operator.name}.cpp" for operator in EXTENSION.operators]


ATEN = sorted(str(path.relative_to(CSRC)) for path in (CSRC / "torch" / "aten").glob("*.cpp"))


# Most families alone are test_jit_families.py's word; the one with a header of its own is here too.
ALONE = ["torch/families/gemm.cpp"]


@pytest.mark.parametrize("source", [*ALONE, *ATEN], ids=lambda source: Path(source).stem)
def test_it_compiles(source, nvcc, cache):
    module = ["-DTORCH_EXTENSION_NAME=_C"] if source not in FAMILIES else []
    if source.endswith("typed.cpp"):  # one unit with the families
        module += [word for file in FAMILIES for word in ("-include", str(CSRC / file))]
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
