"""The HIP code in a library: for which AMD GPUs, and whose kernels."""

import re
from pathlib import Path

from torchwheel.inspect import bundle
from torchwheel.inspect.amdgpu import read_code_object
from torchwheel.inspect.bundle import Entry
from torchwheel.inspect.elf import section
from torchwheel.inspect.errors import WheelError
from torchwheel.inspect.gpu import GpuCode

SECTION = ".hip_fatbin"
"""Where clang puts it; a library without it has none."""
_WRAPPERS = ".hipFatBinSegment"
"""What the runtime is given: a record for each bundle."""
_WRAPPER_BYTES = 24
_DEVICE = re.compile(r"hip(?:v4)?-amdgcn-amd-amdhsa-(?:unknown)?-(gfx\S+)", re.ASCII)


def read_hip_code(library: Path) -> tuple[GpuCode, ...]:
    """The code objects of a library, in the order of the file; a bent one is a WheelError."""
    bundles = bundle.parse(section(library, SECTION) or b"")
    registered = len(section(library, _WRAPPERS) or b"") // _WRAPPER_BYTES
    if registered != len(bundles):
        raise WheelError(f"{SECTION} holds {len(bundles)} bundles, {registered} are registered")
    return tuple(_code(entry) for entries in bundles for entry in entries if not _is_host(entry))


def _is_host(entry: Entry) -> bool:
    """The first entry stands for the host's side, which is the library itself."""
    return entry.name.startswith("host-") and not entry.code


def _code(entry: Entry) -> GpuCode:
    device = _DEVICE.fullmatch(entry.name)
    if device is None:
        raise WheelError(f"entry {entry.name!r} of {SECTION} is for no AMD GPU")
    code = read_code_object(entry.code)
    if code.arch != device[1]:
        raise WheelError(f"entry {entry.name!r} of {SECTION} holds code for {code.arch}")
    return code
