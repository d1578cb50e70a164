"""Reads the GPU code in a library, for either backend."""

from collections.abc import Callable
from pathlib import Path

from torchwheel_runtime.inspect import cuda, hip
from torchwheel_runtime.inspect.elf import GpuCode, section_names
from torchwheel_runtime.inspect.window import CpuTime


def read_gpu_code(
    library: Path,
    find_program: Callable[[], Path | None] = lambda: None,
    cpu: CpuTime | None = None,
) -> tuple[GpuCode, ...]:
    """The modules in a library, CUDA's first.

    Args:
        library: its file.
        find_program: finds a cuobjdump, which must find the same modules of CUDA.
        cpu: the processor time that is left for it.
    """
    cpu = cpu or CpuTime()
    found: list[GpuCode] = []
    sections = section_names(library)
    if not sections.isdisjoint(cuda.SECTIONS):
        found += cuda.read_cuda_code(library, find_program(), cpu)
    if hip.SECTION in sections:
        found += hip.read_hip_code(library, cpu)
    return tuple(found)
