"""The CUDA code in a library: which machine code (SASS), which PTX, and whose kernels.

`cuobjdump -symbols` is read rather than `--list-elf`, for two reasons seen with 13.0 to 13.2: the
list calls `sm_100f` plain `sm_100`, and nvcc's own device link adds an empty cubin for each
arch, so that an arch without a single kernel is in the list all the same.
"""

import re
from pathlib import Path
from typing import Literal

from torchwheel.errors import TorchwheelError
from torchwheel.inspect import cuobjdump
from torchwheel.inspect.gpu import GpuCode

SECTIONS = frozenset({".nv_fatbin", "__nv_relfatbin"})
"""Where nvcc puts it; a library with neither has none."""

_HEADER = re.compile(r"Fatbin (elf|ptx) code:")
_ARCH = re.compile(r"arch = (sm_\d+[a-z]?)")
# A line of the symbol table, and one of a kernel; as 13.2 to 13.4 print it, then as 13.5 does:
#   STT_FUNC         STB_GLOBAL STO_ENTRY      _Z6kernelPf
#   FUNC          GLOBAL  DEFAULT    ENTRY                                _Z6kernelPf
_SYMBOL = re.compile(
    r"(?:STT_\S+\s+STB_\w+\s+ST[OV]_\w+"
    r"|[A-Z]+\s+(?:LOCAL|GLOBAL|WEAK)\s+(?:DEFAULT|INTERNAL|HIDDEN|PROTECTED)\s+(?:[A-Z_]+|-))"
    r"\s+(?:U\s+)?\S+"
)
_KERNEL = re.compile(r"(?:STT_)?FUNC\s.*\s(?:STO_)?ENTRY\s+(?:U\s+)?(\S+)")
_FIELD = re.compile(
    r"=+|symbols:|compressed|code version = .*|host = .*|compile_size = .*|ptxasOptions =.*"
    r"|identifier: .*|has debug info|producer = .*"
)


def read_cuda_code(library: Path, program: Path) -> tuple[GpuCode, ...]:
    """The modules of a CUDA library, in the order of the file."""
    return parse(cuobjdump.symbols(program, library))


def parse(text: str) -> tuple[GpuCode, ...]:
    """Read what `cuobjdump -symbols` prints; a line that is not understood is an error."""
    modules: list[GpuCode] = []
    kind: Literal["sass", "ptx"] | None = None
    arch: str | None = None
    kernels: list[str] = []

    def close() -> None:
        if kind is None:
            return
        if arch is None:
            raise TorchwheelError(f"cuobjdump names no arch for {kind} module {len(modules) + 1}")
        modules.append(GpuCode(kind, arch, tuple(sorted(kernels))))

    for line in (raw.strip() for raw in text.splitlines()):
        if not line:
            continue
        if header := _HEADER.fullmatch(line):
            close()
            kind, arch, kernels = ("sass" if header[1] == "elf" else "ptx"), None, []
        elif kind is None:
            raise _unknown(line)
        elif found := _ARCH.fullmatch(line):
            arch = found[1]
        elif _SYMBOL.fullmatch(line):
            if kernel := _KERNEL.fullmatch(line):
                kernels.append(kernel[1])
        elif not _FIELD.fullmatch(line):
            raise _unknown(line)
    close()
    return tuple(modules)


def _unknown(line: str) -> TorchwheelError:
    return TorchwheelError(
        f"cuobjdump printed {line!r}, which is not understood: 13.2 to 13.5 are; set "
        f"{cuobjdump.VARIABLE} to one of these"
    )
