"""The GPU code in a library, as every backend's reader gives it."""

import dataclasses
from typing import Literal


@dataclasses.dataclass(frozen=True)
class GpuCode:
    """One module of a library.

    Attributes:
        kind: machine code for NVIDIA ("sass") or AMD ("hsaco"), or PTX.
        arch: what it is for, e.g. "sm_90a", "gfx90a:xnack-".
        kernels: mangled names, sorted; none for PTX, whose kernels are not listed.
    """

    kind: Literal["sass", "ptx", "hsaco"]
    arch: str
    kernels: tuple[str, ...] = ()
