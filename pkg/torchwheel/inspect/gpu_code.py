"""All the GPU code in a library, of whichever backend."""

from pathlib import Path

from torchwheel.inspect import cuda, hip
from torchwheel.inspect.elf import section_names
from torchwheel.inspect.gpu import GpuCode


def read_gpu_code(library: Path, program: Path | None = None) -> tuple[GpuCode, ...]:
    """What a library holds, whatever it claims; cuobjdump is needed for CUDA code alone."""
    found: list[GpuCode] = []
    sections = section_names(library)
    if cuda.SECTIONS & sections:
        found += cuda.read_cuda_code(library, cuda.find_cuobjdump(program))
    if hip.SECTION in sections:
        found += hip.read_hip_code(library)
    return tuple(found)
