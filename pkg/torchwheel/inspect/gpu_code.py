"""Reads the GPU code in a library, for either backend."""

from pathlib import Path

from torchwheel.inspect import cuda, hip
from torchwheel.inspect.elf import GpuCode, section_names


def read_gpu_code(library: Path, program: Path | None = None) -> tuple[GpuCode, ...]:
    """The modules in a library, CUDA's first; cuobjdump is needed for CUDA code only."""
    found: list[GpuCode] = []
    sections = section_names(library)
    if cuda.SECTIONS & sections:
        found += cuda.read_cuda_code(library, cuda.find_cuobjdump(program))
    if hip.SECTION in sections:
        found += hip.read_hip_code(library)
    return tuple(found)
