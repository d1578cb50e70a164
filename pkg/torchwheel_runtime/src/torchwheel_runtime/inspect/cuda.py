"""Reads the CUDA code in a library: machine code (SASS), PTX and kernels.

The library's own headers say what is in it. Where a cuobjdump that can be trusted is at hand, the
gates compare: two readers that differ are a fault.
"""

import collections
import importlib.metadata
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from torchwheel_runtime import process
from torchwheel_runtime.arch.model import Arch, parse_binary_name
from torchwheel_runtime.errors import TorchwheelError, program_error
from torchwheel_runtime.inspect import budgets
from torchwheel_runtime.inspect.elf import GpuCode
from torchwheel_runtime.inspect.elf_file import ElfFile, open_elf
from torchwheel_runtime.inspect.fatbin import read_entries, read_fatbin
from torchwheel_runtime.inspect.window import CpuTime, WheelError
from torchwheel_runtime.text import shorten

VARIABLE = "TORCHWHEEL_CUOBJDUMP"
PACKAGE = "nvidia-cuda-cuobjdump"
NO_CODE = "does not contain device code"


def find_cuobjdump(
    explicit: Path | None = None, environ: Mapping[str, str] = os.environ
) -> Path | None:
    """The cuobjdump to compare with: explicit > $TORCHWHEEL_CUOBJDUMP > PyPI's package > CUDA_HOME.

    None if there is none. What lies on PATH is not asked: anybody may have put it there.
    """
    named = explicit or (Path(environ[VARIABLE]) if environ.get(VARIABLE) else None)
    if named is not None:
        if not named.is_file():
            raise TorchwheelError(f"cuobjdump expected at {named}, where there is no file")
        return named
    if packaged := _find_in_package():
        return packaged
    of_toolkit = Path(environ.get("CUDA_HOME", ""), "bin", "cuobjdump")
    return of_toolkit if environ.get("CUDA_HOME") and of_toolkit.is_file() else None


def _find_in_package() -> Path | None:
    """The cuobjdump of PyPI's package, e.g. nvidia/cu13/bin/cuobjdump in site-packages."""
    try:
        files = importlib.metadata.files(PACKAGE) or []
    except importlib.metadata.PackageNotFoundError:
        return None
    paths = (Path(str(file.locate())) for file in files if file.name == "cuobjdump")
    return next((path for path in paths if path.is_file()), None)


class CuobjdumpStoppedError(TorchwheelError):
    """It took an uncompressed cubin for no ELF file and stopped, as 13.2 to 13.5 do.

    Attributes:
        output: what it printed before: the last module in it is incomplete.
    """

    def __init__(self, text: str, output: str) -> None:
        super().__init__(text)
        self.output = output


_STOPPED = "fatal   : Invalid ELF in "


def dump_symbols(program: Path, library: Path) -> str:
    """The output of `cuobjdump -symbols`; empty if the library has no device code.

    Raises:
        CuobjdumpStoppedError: it did not get to the end.
    """
    try:
        done = process.run([program, "-symbols", library], timeout=budgets.CUOBJDUMP_SECONDS)
    except process.NotRunError as error:
        raise TorchwheelError(f"{program} cannot be run: {error.reason}") from error
    if done.status == 0 and not done.errors.strip():
        return done.output
    if NO_CODE in done.errors and not done.output.strip():
        return ""
    why = process.ProcessResult(done.status, "", done.errors).reason(otherwise=str(done.status))
    text = f"{program} failed on {library.name}: {why}"
    if _STOPPED in why and done.output.strip():
        raise CuobjdumpStoppedError(text, done.output)
    raise program_error(text)


SECTIONS = (".nv_fatbin", "__nv_relfatbin")
"""The sections where nvcc puts device code; a library without them has none. If it was linked on
the device, the first has the linked code, and the second what it was linked from."""

_HEADER = re.compile(r"Fatbin (elf|ptx) code:")
_ARCH = re.compile(r"arch = (sm_[1-9]\d{1,2}[af]?)")
# A line of the symbol table that is a kernel, as 13.2 to 13.4 print it, and as 13.5 does:
#   STT_FUNC         STB_GLOBAL STO_ENTRY      _Z6kernelPf
#   FUNC          GLOBAL  DEFAULT    ENTRY                                _Z6kernelPf
# What they have no name for is "?", "STO_?" (managed variables) or "UNKNOWN(0xc0)"; 13.5 also joins
# names: "ENTRY|UNIFIED_FUNC".
_SYMBOL = re.compile(
    r"(?:STT_\S+\s+STB_\S+\s+ST[OV]_\S+"
    r"|[A-Z?]\S*\s+(?:LOCAL|GLOBAL|WEAK|\?)\s+(?:DEFAULT|INTERNAL|HIDDEN|PROTECTED)\s+\S+)"
    r"\s+(?:U\s+)?\S+"
)
_KERNEL = re.compile(r"(?:STT_)?FUNC\s.*\s(?:STO_|[A-Z_]+\|)?ENTRY(?:\|[A-Z_|]+)?\s+(?:U\s+)?(\S+)")
_FIELD = re.compile(
    r"=+|symbols:|compressed|code version = .*|host = .*|compile_size = .*|ptxasOptions =.*"
    r"|identifier(:| =) .*|has debug info|producer = .*"
)


def read_cuda_code(
    library: Path, program: Path | None = None, cpu: CpuTime | None = None
) -> tuple[GpuCode, ...]:
    """The modules of a CUDA library, in the order of the file.

    Args:
        library: its file.
        program: a cuobjdump, which must find the same modules. Where it stops at an uncompressed
            cubin, it must have found the same ones up to there.
        cpu: the processor time that is left for it.
    """
    cpu = cpu or CpuTime()
    with open_elf(library) as elf:
        section = elf.window(code_section(elf))
        found = read_fatbin(section, cpu)
        uncompressed = [entry.packing == "none" for entry in read_entries(section)]
    cpu.check()
    if program is not None:
        try:
            _require_same(found, parse_symbols(dump_symbols(program, library)), program)
        except CuobjdumpStoppedError as error:
            complete = parse_symbols(error.output)[:-1]
            if uncompressed[len(complete) : len(complete) + 1] != [True]:
                raise
            _require_same(found[: len(complete)], complete, program)
    return found


def read_cuda_headers(library: Path) -> tuple[GpuCode, ...]:
    """The modules of a CUDA library by their headers, for a Python that cannot unpack them.

    The names of their kernels are not read: machine code has one without a name.
    """
    with open_elf(library) as elf:
        entries = list(read_entries(elf.window(code_section(elf))))
    return tuple(
        GpuCode(entry.kind, entry.arch, ("",) if entry.kind == "sass" else ()) for entry in entries
    )


def code_section(elf: ElfFile) -> str:
    """The section of a library that has its device code, if it has any."""
    return next((name for name in SECTIONS if name in elf.sections), SECTIONS[0])


def _require_same(found: Sequence[GpuCode], other: Sequence[GpuCode], program: Path) -> None:
    """Raise a WheelError unless the library's headers and cuobjdump name the same modules."""
    ours, theirs = collections.Counter(found), collections.Counter(other)
    if differing := [*(ours - theirs), *(theirs - ours)]:
        first = differing[0]
        raise WheelError(
            f"{len(found)} modules of GPU code by the library's headers, {len(other)} by "
            f"{program}; they differ in {first.kind} for {first.arch.binary_name}"
        )


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
        f"cuobjdump printed {shorten(line)!r}, which is not understood: 13.2 to 13.5 are; set "
        f"{VARIABLE} to one of these"
    )
