"""One code object: an ELF file for an AMD GPU, read for its target and its kernels."""

import functools
import io
from collections.abc import Mapping

from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from torchwheel.data import read
from torchwheel.inspect.elf import bent_is_an_error
from torchwheel.inspect.errors import WheelError
from torchwheel.inspect.gpu import GpuCode

DESCRIPTOR = ".kd"
"""A kernel's descriptor bears its name and this."""
_ABI_VERSIONS = range(2, 5)
"""Code object versions 4 to 6: their e_flags are alike."""
# In the order in which a target names them. 0: the processor has no such thing, 1: either way.
_FEATURES = {"sramecc": 10, "xnack": 8}
_STATES = {2: "-", 3: "+"}


@functools.cache
def _machines() -> Mapping[int, str]:
    return {int(number): name for number, name in read("amdgpu.json")["machines"].items()}


def read_code_object(code: bytes) -> GpuCode:
    """Read an ELF file of AMD's; `arch` is what its header names, e.g. "gfx90a:xnack-"."""
    with bent_is_an_error("code object"):
        elf = ELFFile(io.BytesIO(code))
        if elf["e_machine"] != "EM_AMDGPU":
            raise WheelError(f"code object: for {elf['e_machine']}; EM_AMDGPU expected")
        version = elf["e_ident"]["EI_ABIVERSION"]
        if version not in _ABI_VERSIONS:
            raise WheelError(f"code object: ABI version {version}; 2, 3 or 4 expected")
        return GpuCode("hsaco", _target(elf["e_flags"]), _kernels(elf))


def _target(flags: int) -> str:
    name = _machines().get(flags & 0xFF)
    if name is None:
        raise WheelError(f"code object: processor {flags & 0xFF:#x} is in no table of ours")
    states = ((feature, _STATES.get(flags >> shift & 3)) for feature, shift in _FEATURES.items())
    return ":".join((name, *(f"{feature}{state}" for feature, state in states if state)))


def _kernels(elf: ELFFile) -> tuple[str, ...]:
    table = elf.get_section_by_name(".dynsym")
    if not isinstance(table, SymbolTableSection):
        raise WheelError("code object: no table of symbols in it")
    names = (s.name for s in table.iter_symbols() if s["st_shndx"] != "SHN_UNDEF")
    return tuple(sorted(n.removesuffix(DESCRIPTOR) for n in names if n.endswith(DESCRIPTOR)))
