"""Kernels that start before the one before them is done read nothing until that one is."""

import struct
import subprocess
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

pytestmark = pytest.mark.integration
CSRC = Path(__file__).parents[2] / "csrc"
# Of instructions of compute capability 9.0, 16 bytes each: the lowest 12 bits.
WAIT = 0x82E  # ACQBULK, of griddepcontrol.wait
LOADS = {0x980, 0x981, 0xFAE}  # LD, LDG, LDGSTS


def opcodes(code: bytes) -> list[int]:
    return [word & 0xFFF for word, _ in struct.iter_unpack("<QQ", code)]


def kernels(cubin: Path) -> dict[str, list[int]]:
    with cubin.open("rb") as file:
        return {
            section.name.removeprefix(".text."): opcodes(section.data())
            for section in ELFFile(file).iter_sections()
            if section.name.startswith(".text.")
        }


@pytest.fixture
def compiled(nvcc, tmp_path):
    def compile_for_9_0(source: Path) -> dict[str, list[int]]:
        cubin = tmp_path / "kernels.cubin"
        options = ["-cubin", "-std=c++17", "-O3", "-arch=sm_90", f"-I{CSRC}"]
        subprocess.run([nvcc, *options, source, "-o", cubin], check=True)
        return kernels(cubin)

    return compile_for_9_0


def reads_early(kernel: list[int]) -> bool:
    """Whether a load stands before the wait, or there is no load that it could guard."""
    wait = kernel.index(WAIT)
    return bool(LOADS.intersection(kernel[:wait])) or not LOADS.intersection(kernel[wait:])


@pytest.mark.parametrize(
    "source", sorted((CSRC / "kernels").glob("*.cu")), ids=lambda path: path.stem
)
def test_nothing_is_read_before_the_wait(source, compiled):
    early = [
        name for name, kernel in compiled(source).items() if WAIT in kernel and reads_early(kernel)
    ]
    assert not early


def test_a_load_before_the_wait_is_seen(compiled, tmp_path):
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
    found = {name: reads_early(kernel) for name, kernel in compiled(source).items()}
    assert sorted(found.values()) == [False, True]
