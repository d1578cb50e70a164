"""Facts read from libraries that gcc and nvcc have just made."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from torchwheel.inspect.inspection import inspect_library
from torchwheel.inspect.library_facts import read_targets
from torchwheel_runtime.inspect import cuda, hip
from torchwheel_runtime.inspect.elf import (
    exported_symbols,
    glibc_floor,
    read_library,
    section_names,
)
from torchwheel_runtime.inspect.window import CpuTime

pytestmark = pytest.mark.integration

C = """
#include <stdio.h>
extern void torch_thing(void);
__attribute__((weak)) extern void maybe(void);
int visible(void) { torch_thing(); if (maybe) maybe(); return puts("x"); }
"""
CUDA = "__global__ void kernel(float *p) { *p += 1; }\n"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not (gcc := shutil.which("gcc")):
        pytest.skip("no gcc on PATH")
    folder = tmp_path_factory.mktemp("elf")
    (folder / "x.c").write_text(C)
    command = [gcc, "-shared", "-fPIC", "-Wl,-soname,libx.so.1", "x.c", "-o", "libx.so"]
    subprocess.run(command, cwd=folder, check=True)
    return folder / "libx.so"


def test_dynamic_facts(library: Path) -> None:
    facts = read_library(library, "demo/libx.so")
    symbols = {symbol.name: symbol for symbol in facts.undefined}
    assert (facts.name, facts.soname) == ("demo/libx.so", "libx.so.1")
    assert facts.machine == {"x86_64": "x86_64", "aarch64": "aarch64"}[os.uname().machine]
    assert "libc.so.6" in facts.needed
    assert not symbols["torch_thing"].weak
    assert symbols["torch_thing"].version is None
    assert symbols["maybe"].weak
    assert (symbols["puts"].version or "").startswith("GLIBC_2.")
    assert symbols["puts"].library == "libc.so.6"
    assert "visible" not in symbols
    assert "visible" in exported_symbols(library)
    assert "torch_thing" not in exported_symbols(library)
    assert (glibc_floor(facts) or "").startswith("2.")


def test_gpu_code_of_a_real_library(tmp_path: Path, nvcc: Path) -> None:
    (tmp_path / "k.cu").write_text(CUDA)
    archs = ("arch=compute_80,code=sm_80", "arch=compute_90a,code=[sm_90a,compute_90a]")
    flags = ("-shared", "-Xcompiler=-fPIC", *(f"-gencode={arch}" for arch in archs))
    subprocess.run([nvcc, *flags, "k.cu", "-o", "libk.so"], cwd=tmp_path, check=True)
    assert {*cuda.SECTIONS} & section_names(tmp_path / "libk.so")
    code = cuda.read_cuda_code(tmp_path / "libk.so", cuda.find_cuobjdump())
    found = {(module.kind, module.arch.binary_name, module.kernels) for module in code}
    kernels = ("_Z6kernelPf",)
    assert {("sass", "sm_80", kernels), ("sass", "sm_90a", kernels), ("ptx", "sm_90a", ())} <= found
    assert {module.arch.binary_name for module in code} == {"sm_80", "sm_90a"}
    targets = read_targets(tmp_path / "libk.so", CpuTime())
    assert [(target.kind, str(target.arch), target.kernels) for target in targets] == [
        ("sass", "8.0", 1),
        ("sass", "9.0a", 1),
        ("ptx", "9.0a", None),
    ]
    (runtime,) = inspect_library(tmp_path / "libk.so").libraries[0].runtimes
    assert runtime.how == "static"


def test_a_library_of_gcc_has_no_gpu_code(library: Path) -> None:
    assert cuda.read_cuda_code(library, cuda.find_cuobjdump()) == ()
    assert not {*cuda.SECTIONS, hip.SECTION} & section_names(library)
