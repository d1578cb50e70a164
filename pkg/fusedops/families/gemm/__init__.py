"""Products with weights, dense or of int8, and what a transformer has before and between them."""

from fusedops.families.gemm import decode, int8, mlp, products, qkv
from fusedops.families.gemm.decode import decode_gemm
from fusedops.families.gemm.int8 import (
    fused_gemm_gelu_int8,
    linear_layer_int8,
    mlp_gemm_int8,
    qkv_gemm_int8,
    rms_mlp_gemm_int8,
    rms_qkv_gemm_int8,
    vector_matmul_int8,
)
from fusedops.families.gemm.mlp import mlp_gemm, rms_mlp_gemm
from fusedops.families.gemm.products import (
    einsum_sec_sm_ecm,
    fused_gemm_gelu,
    linear_layer,
    vector_matmul,
)
from fusedops.families.gemm.qkv import qkv_gemm, rms_qkv_gemm

__all__ = [
    "decode_gemm",
    "einsum_sec_sm_ecm",
    "fused_gemm_gelu",
    "fused_gemm_gelu_int8",
    "linear_layer",
    "linear_layer_int8",
    "mlp_gemm",
    "mlp_gemm_int8",
    "qkv_gemm",
    "qkv_gemm_int8",
    "rms_mlp_gemm",
    "rms_mlp_gemm_int8",
    "rms_qkv_gemm",
    "rms_qkv_gemm_int8",
    "vector_matmul",
    "vector_matmul_int8",
]

OPS = products.OPS + qkv.OPS + mlp.OPS + decode.OPS + int8.OPS
