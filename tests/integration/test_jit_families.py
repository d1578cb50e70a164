"""Every family of fusedops is a library by itself, built as the first call of an operator does it.

The families' kernels then have the order of instructions that overlap.h asks for. Objects are
compiled once for all families, so that this takes half as long as the libraries' own builds.
"""

import os
import struct
import subprocess
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from fusedops.extension import EXTENSION
from programmaker import run_python
from torchwheel_runtime.builder.ninja import build, parallel_jobs
from torchwheel_runtime.builder.recipe import INCLUDE, Recipe
from torchwheel_runtime.builder.sources import sources_of
from torchwheel_runtime.console import Quiet
from torchwheel_runtime.inspect.cuda import find_cuobjdump
from torchwheel_runtime.runtime.operator_library import find_local_build

torch = pytest.importorskip("torch", reason="torch is not installed")
pytestmark = pytest.mark.integration

CSRC = Path(__file__).parents[2] / "csrc"
LOAD = "import sys, torch\nfor path in sys.argv[1:]: torch.ops.load_library(path)"
# Of instructions of compute capability 9.0, 16 bytes each: the lowest 12 bits.
WAIT = 0x82E  # ACQBULK, of griddepcontrol.wait
COPY = 0xFAE  # LDGSTS, of an asynchronous copy
LOADS = {0x980, 0x981, COPY}  # LD, LDG


def opcodes(code: bytes) -> list[int]:
    return [word & 0xFFF for word, _ in struct.iter_unpack("<QQ", code)]


def kernels(cubin: Path) -> dict[str, list[int]]:
    with cubin.open("rb") as file:
        return {
            section.name.removeprefix(".text."): opcodes(section.data())
            for section in ELFFile(file).iter_sections()
            if section.name.startswith(".text.")
        }


def kernels_that_wait(library: Path, folder: Path) -> dict[str, list[int]]:
    """The kernels of a library or an object that start early; its cubins go into `folder`."""
    folder.mkdir()
    subprocess.run(
        [find_cuobjdump(), "-xelf", "all", library], cwd=folder, check=True, capture_output=True
    )
    found = {name: code for cubin in folder.iterdir() for name, code in kernels(cubin).items()}
    assert found, f"{library.name} has no kernel"
    return {name: code for name, code in found.items() if WAIT in code}


def reads_early(name: str, kernel: list[int]) -> bool:
    """Whether a load stands before the wait, or there is no load that it could guard.

    Kernels that are told of constant memory may copy that before.
    """
    wait = kernel.index(WAIT)
    allowed = {COPY} if "decode_kernel" in name else set()
    return bool((LOADS - allowed).intersection(kernel[:wait])) or not LOADS.intersection(
        kernel[wait:]
    )


EVERY = tuple(operator.name for operator in EXTENSION.operators)


@pytest.mark.parametrize(
    "families",
    [("layout",), pytest.param(EVERY, marks=pytest.mark.nightly)],
    ids=["one", "every"],
)
def test_a_family_loads_by_itself_and_nothing_is_read_before_the_wait(
    nvcc, tmp_path, monkeypatch, families
):
    environ = {
        **os.environ,
        "CUDA_HOME": str(nvcc.parents[1]),
        "TORCH_CUDA_ARCH_LIST": "9.0",
    }
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    libraries = []
    for family in families:
        target, _ = find_local_build(EXTENSION, family, CSRC, environ, Quiet())
        recipe = Recipe(EXTENSION, sources_of(EXTENSION, target, family), target)
        objects = tmp_path / "objects"
        libraries.append(
            build(recipe, tmp_path / family, objects, parallel_jobs(environ), lambda _: None)
        )
    for library in libraries:
        # One at a time: what one family lacks, another could bring.
        done = run_python(LOAD, library)
        assert done.returncode == 0, done.stderr
    waiting = {
        library.stem: kernels_that_wait(library, tmp_path / f"{library.stem}-cubins")
        for library in libraries
    }
    early = [
        name
        for found in waiting.values()
        for name, code in found.items()
        if reads_early(name, code)
    ]
    assert not early
    assert any(waiting.values()), "no kernel starts early"


def test_a_load_before_the_wait_is_seen(nvcc, tmp_path):
    source = tmp_path / "early.cu"
    source.write_text("""
#include "platform/gpu.h"
#include "platform/overlap.h"
__global__ void early(float* y, const float* x) {
  const float v = *x;
  fusedops::overlap::wait();
  *y = v + y[1];
}
__global__ void late(float* y, const float* x) {
  fusedops::overlap::wait();
  *y = *x + y[1];
}
""")
    object_file = tmp_path / "early.o"
    options = ["-c", "-std=c++17", "-O3", "-arch=sm_90", f"-I{CSRC}", f"-I{INCLUDE}"]
    subprocess.run([nvcc, *options, source, "-o", object_file], check=True)
    found = kernels_that_wait(object_file, tmp_path / "cubins")
    assert sorted(reads_early(*one) for one in found.items()) == [False, True]
