"""Fused inference kernels for PyTorch on CUDA and HIP.

Every operator works on every device: where the installed wheel has a native library for it, on that
library's kernels; elsewhere on a reference written in plain PyTorch. `native_status()` tells which.

Beside each operator there are its entry points by type, e.g. `bias_gelu_fp16` (fusedops.typed).
"""

from importlib.metadata import PackageNotFoundError, version

from fusedops import _native, registration
from fusedops._native import NativeStatus, native_status
from fusedops.ops import bias_add, bias_gelu, bias_relu, vector_add
from fusedops.typed import entry_points

try:
    __version__ = version("fusedops")
except PackageNotFoundError:  # the source tree, not installed
    __version__ = "0+unknown"

registration.register()
_native.load()

__all__ = [
    "NativeStatus",
    "__version__",
    "bias_add",
    "bias_gelu",
    "bias_relu",
    "native_status",
    "vector_add",
]

# As many as operators times types: not written down one by one.
_ENTRY_POINTS = entry_points(native_status().module)
globals().update(_ENTRY_POINTS)
__all__.extend(_ENTRY_POINTS)
