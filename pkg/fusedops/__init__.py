"""Fused inference kernels for PyTorch on CUDA and HIP.

Every operator works on every device: on the kernels of the installed wheel's native library; where
that has none for this GPU, on kernels built at its first call there; elsewhere on a reference
written in plain PyTorch. `status()` tells which, `python -m fusedops` tells why.

Beside each operator there are its entry points by type, e.g. `bias_gelu_fp16` (fusedops.typed).
"""

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fusedops import registration, typed
from fusedops.extension import EXTENSION
from fusedops.families.attention.functions import (
    softmax_context,
    softmax_context_bf16,
    softmax_context_fp16,
    softmax_context_fp32,
)
from fusedops.families.bias_act.functions import bias_add, bias_gelu, bias_relu
from fusedops.families.dequantize.functions import (
    dequantize,
    dequantize_bf16,
    dequantize_fp16,
    dequantize_fp32,
)
from fusedops.families.dequantize.quantize import quantize
from fusedops.families.gated.functions import gated_activation
from fusedops.families.gemm.functions import (
    einsum_sec_sm_ecm,
    fused_gemm_gelu,
    linear_layer,
    mlp_gemm,
    qkv_gemm,
    rms_mlp_gemm,
    rms_qkv_gemm,
    vector_matmul,
)
from fusedops.families.gemm.functions_int8 import (
    fused_gemm_gelu_int8,
    linear_layer_int8,
    mlp_gemm_int8,
    qkv_gemm_int8,
    rms_mlp_gemm_int8,
    rms_qkv_gemm_int8,
    vector_matmul_int8,
)
from fusedops.families.layout.functions import add_padding, pad_transform
from fusedops.families.norm.functions import (
    layer_norm,
    layer_norm_residual,
    layer_norm_residual_store,
    pre_rms_norm,
    rms_norm,
)
from fusedops.families.residual.functions import (
    bias_residual,
    moe_res_matmul,
    residual_add_bias,
)
from fusedops.families.rotary.functions import apply_rotary_pos_emb, apply_rotary_pos_emb_
from fusedops.families.softmax.functions import softmax
from fusedops.families.vector_add.functions import vector_add
from fusedops.schemas import families
from torchwheel import runtime

if TYPE_CHECKING:
    from fusedops.models.convert import convert
    from fusedops.models.decoder import Decoder
    from fusedops.workspace import Workspace

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
    "Decoder",
    "Workspace",
    "__version__",
    "add_padding",
    "apply_rotary_pos_emb",
    "apply_rotary_pos_emb_",
    "bias_add",
    "bias_gelu",
    "bias_relu",
    "bias_residual",
    "convert",
    "dequantize",
    "dequantize_bf16",
    "dequantize_fp16",
    "dequantize_fp32",
    "einsum_sec_sm_ecm",
    "fused_gemm_gelu",
    "fused_gemm_gelu_int8",
    "gated_activation",
    "layer_norm",
    "layer_norm_residual",
    "layer_norm_residual_store",
    "linear_layer",
    "linear_layer_int8",
    "mlp_gemm",
    "mlp_gemm_int8",
    "moe_res_matmul",
    "pad_transform",
    "pre_rms_norm",
    "qkv_gemm",
    "qkv_gemm_int8",
    "quantize",
    "residual_add_bias",
    "rms_mlp_gemm",
    "rms_mlp_gemm_int8",
    "rms_norm",
    "rms_qkv_gemm",
    "rms_qkv_gemm_int8",
    "softmax",
    "softmax_context",
    "softmax_context_bf16",
    "softmax_context_fp16",
    "softmax_context_fp32",
    "status",
    "vector_add",
    "vector_matmul",
    "vector_matmul_int8",
]

# As many as operators times types: not written down one by one.
__all__.extend(typed.names())

# What an import of operators alone has no use for.
_LAZY = {
    "Decoder": "fusedops.models",
    "Workspace": "fusedops.workspace",
    "convert": "fusedops.models",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401 - whatever has that name
    if name in _LAZY:
        found = getattr(import_module(_LAZY[name]), name)
    else:
        found = typed.entry_point(name, _LOADED.module)
    if found is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return globals().setdefault(name, found)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
