"""Reads the CUDA code in a library with cuobjdump: machine code (SASS), PTX and kernels."""

import importlib.metadata
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from torchwheel import process
from torchwheel.arch.model import Arch, parse_binary_name
from torchwheel.errors import TorchwheelError, program_error
from torchwheel.inspect.elf import GpuCode

VARIABLE = "TORCHWHEEL_CUOBJDUMP"
PACKAGE = "nvidia-cuda-cuobjdump"
NO_CODE = "does not contain device code"
SECONDS = 300


def find_cuobjdump(explicit: Path | None = None, environ: Mapping[str, str] = os.environ) -> Path:
    """The cuobjdump to use: explicit > $TORCHWHEEL_CUOBJDUMP > PATH > CUDA_HOME > PyPI package."""
    named = explicit or (Path(environ[VARIABLE]) if environ.get(VARIABLE) else None)
    if named is not None:
        if not named.is_file():
            raise TorchwheelError(f"cuobjdump expected at {named}, where there is no file")
        return named
    if on_path := shutil.which("cuobjdump", path=environ.get("PATH", os.defpath)):
        return Path(on_path)
    if home := environ.get("CUDA_HOME"):
        candidate = Path(home) / "bin" / "cuobjdump"
        if candidate.is_file():
            return candidate
    if packaged := _find_in_package():
        return packaged
    raise TorchwheelError(
        "no cuobjdump, which lists the GPU code of a library: "
        f'run `pip install "torchwheel[pipeline]"`, or set {VARIABLE} to its path'
    )


def _find_in_package() -> Path | None:
    """The cuobjdump of PyPI's package, e.g. nvidia/cu13/bin/cuobjdump in site-packages."""
    try:
        files = importlib.metadata.files(PACKAGE) or []
    except importlib.metadata.PackageNotFoundError:
        return None
    paths = (Path(str(file.locate())) for file in files if file.name == "cuobjdump")
    return next((path for path in paths if path.is_file()), None)


def dump_symbols(program: Path, library: Path) -> str:
    """The output of `cuobjdump -symbols`; empty if the library has no device code."""
    try:
        done = process.run([program, "-symbols", library], timeout=SECONDS)
    except process.NotRunError as error:
        raise TorchwheelError(f"{program} cannot be run: {error.reason}") from error
    if done.status == 0:
        return done.output
    if NO_CODE in done.errors and not done.output.strip():
        return ""
    why = done.reason(otherwise=str(done.status))
    raise program_error(f"{program} failed on {library.name}: {why}")


SECTIONS = frozenset({".nv_fatbin", "__nv_relfatbin"})
"""The sections where nvcc puts device code; a library without them has none."""

_HEADER = re.compile(r"Fatbin (elf|ptx) code:")
_ARCH = re.compile(r"arch = (sm_[1-9]\d{1,2}[af]?)")
# A line of the symbol table that is a kernel, as 13.2 to 13.4 print it, and as 13.5 does:
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
    return parse_symbols(dump_symbols(program, library))


def parse_symbols(text: str) -> tuple[GpuCode, ...]:
    """Parse the output of `cuobjdump -symbols`; an unknown line is an error."""
    modules: list[GpuCode] = []
    kind: Literal["sass", "ptx"] | None = None
    arch: Arch | None = None
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
            raise _unknown_line(line)
        elif found := _ARCH.fullmatch(line):
            arch = parse_binary_name(found[1])
        elif _SYMBOL.fullmatch(line):
            if kernel := _KERNEL.fullmatch(line):
                kernels.append(kernel[1])
        elif not _FIELD.fullmatch(line):
            raise _unknown_line(line)
    close()
    return tuple(modules)


def _unknown_line(line: str) -> TorchwheelError:
    return TorchwheelError(
        f"cuobjdump printed {line!r}, which is not understood: 13.2 to 13.5 are; set "
        f"{VARIABLE} to one of these"
    )
