"""Fused inference kernels for PyTorch on CUDA and HIP.

Every operator works on every device. It runs on the kernels of the installed wheel's native
library; where that has none for this GPU, on kernels built at the first call there; elsewhere on a
reference written in plain PyTorch. `status()` says which, `python -m fusedops` says why.

Each operator also has entry points by type, e.g. `bias_gelu_fp16` (fusedops.typed).
"""

import sys
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

try:
    from fusedops import registry, typed
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    if sys.argv[:1] == ["-m"]:  # python -m fusedops, which says it with the remedy
        from torchwheel_runtime.doctor import main

        sys.exit(main("fusedops", sys.argv[1:]))
    raise ModuleNotFoundError(
        f"fusedops needs torch, which {sys.executable} does not have: "
        f"run `{sys.executable} -m pip install torch`",
        name="torch",
    ) from None

from fusedops.extension import EXTENSION
from fusedops.families.attention import *
from fusedops.families.bias_act import *
from fusedops.families.dequantize import *
from fusedops.families.gated import *
from fusedops.families.gemm import *
from fusedops.families.layout import *
from fusedops.families.norm import *
from fusedops.families.residual import *
from fusedops.families.rotary import *
from fusedops.families.softmax import *
from fusedops.families.vector_add import *
from torchwheel_runtime import runtime

if TYPE_CHECKING:
    from fusedops.models.convert import convert
    from fusedops.models.decoder import Decoder
    from fusedops.workspace import Workspace

try:
    __version__ = version("fusedops")
except PackageNotFoundError:  # the source tree, not installed
    __version__ = "0+unknown"

registry.register()
_LOADED = runtime.load(EXTENSION, Path(__file__).parent, registry.families())


def status() -> runtime.ExtensionStatus:
    """What the operators run on, as of now, and why on nothing better."""
    return runtime.status_of(__name__) or _LOADED


__all__ = ["Decoder", "Workspace", "__version__", "convert", "status"]
__all__.extend(registry.public_functions())
__all__.extend(typed.names())

# Importing the operators alone does not need these.
_LAZY = {
    "Decoder": "fusedops.models",
    "Workspace": "fusedops.workspace",
    "convert": "fusedops.models",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401 - whatever has that name
    if name in _LAZY:
        attribute = getattr(import_module(_LAZY[name]), name)
    else:
        attribute = typed.entry_point(name, _LOADED.module)
    if attribute is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return globals().setdefault(name, attribute)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
