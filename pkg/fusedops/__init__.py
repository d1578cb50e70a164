"""Fused inference kernels for PyTorch on CUDA and HIP.

Every operator works on every device: on the kernels of the installed wheel's native library; where
that has none for this GPU, on kernels built at its first call there; elsewhere on a reference
written in plain PyTorch. `status()` tells which, `python -m fusedops` tells why.

Beside each operator there are its entry points by type, e.g. `bias_gelu_fp16` (fusedops.typed).
"""

from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from fusedops import registration
from fusedops.extension import EXTENSION
from fusedops.families.bias_act.functions import bias_add, bias_gelu, bias_relu
from fusedops.families.vector_add.functions import vector_add
from fusedops.schemas import families
from fusedops.typed import entry_points
from torchwheel import runtime

try:
    __version__ = version("fusedops")
except PackageNotFoundError:  # the source tree, not installed
    __version__ = "0+unknown"

registration.register()
_LOADED = runtime.load(EXTENSION, Path(__file__).parent, families())


def status() -> runtime.ExtensionStatus:
    """What the operators run on, as of now, and why on nothing better."""
    return runtime.status_of(__name__) or _LOADED


__all__ = [
    "__version__",
    "bias_add",
    "bias_gelu",
    "bias_relu",
    "status",
    "vector_add",
]

# As many as operators times types: not written down one by one.
_ENTRY_POINTS = entry_points(_LOADED.module)
globals().update(_ENTRY_POINTS)
__all__.extend(_ENTRY_POINTS)
