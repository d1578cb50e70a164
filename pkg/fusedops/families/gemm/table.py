"""The family's operators."""

from collections.abc import Callable

from torch import Tensor

from fusedops.batching import by_rows
from fusedops.families.gemm import (
    checks,
    gradients,
    reference,
    reference_int8,
)
from fusedops.op import Op

_FAMILY = "gemm"
_NORM = "Tensor gamma, Tensor beta, *, float eps=1e-5"
_RMS = "Tensor gamma, *, float eps=1e-6"
_MLP = 'bool pre_ln=True, bool mlp_after_attn=True, str activation="gelu"'
_INPUT = "Tensor x, Tensor residual, Tensor input_bias"
_SUM = "Tensor x, Tensor(a!) residual"
_GATED = 'str activation="swiglu"'


def _product(at: int = 1) -> Callable[..., Tensor]:
    """As wide as the weight among the arguments, at `at`."""

    def like(x: Tensor, *args: Tensor, **_: object) -> Tensor:
        return x.new_empty(*x.shape[:-1], args[at - 1].shape[1])

    return like


def _and_norm(at: int = 1) -> Callable[..., tuple[Tensor, Tensor]]:
    """That, and what was normalised."""
    product = _product(at)

    def like(x: Tensor, *args: Tensor, **_: object) -> tuple[Tensor, Tensor]:
        return product(x, *args), x.new_empty(x.shape)

    return like


def _einsum(q: Tensor, weight: Tensor) -> Tensor:
    return q.new_empty(*q.shape[1:], weight.shape[1])


OPS = (
    Op(
        "vector_matmul",
        _FAMILY,
        "(Tensor x, Tensor weight) -> Tensor",
        checks.dense("vector_matmul", checks.linear, 1),
        reference.vector_matmul,
        _product(),
        gradients.VECTOR_MATMUL,
        by_rows("x"),
    ),
    Op(
        "linear_layer",
        _FAMILY,
        "(Tensor x, Tensor weight, Tensor? bias=None) -> Tensor",
        checks.dense("linear_layer", checks.linear, 1),
        reference.linear_layer,
        _product(),
        gradients.LINEAR_LAYER,
        by_rows("x"),
    ),
    Op(
        "fused_gemm_gelu",
        _FAMILY,
        "(Tensor x, Tensor weight, Tensor bias, Tensor weight2) -> Tensor",
        checks.dense("fused_gemm_gelu", checks.gemm_gelu, 1, 3),
        reference.fused_gemm_gelu,
        _product(3),
        gradients.FUSED_GEMM_GELU,
        by_rows("x"),
    ),
    Op(
        "einsum_sec_sm_ecm",
        _FAMILY,
        "(Tensor q, Tensor weight) -> Tensor",
        checks.dense("einsum_sec_sm_ecm", checks.einsum, 1),
        reference.einsum_sec_sm_ecm,
        _einsum,
        gradients.EINSUM_SEC_SM_ECM,
        by_rows(),
    ),
    Op(
        "qkv_gemm",
        _FAMILY,
        f"(Tensor x, Tensor weight, Tensor? bias, {_NORM}) -> (Tensor, Tensor)",
        checks.dense("qkv_gemm", checks.qkv, 1),
        reference.qkv_gemm,
        _and_norm(),
        gradients.QKV_GEMM,
        by_rows("x"),
    ),
    Op(
        "rms_qkv_gemm",
        _FAMILY,
        f"(Tensor x, Tensor weight, {_RMS}) -> (Tensor, Tensor)",
        checks.dense("rms_qkv_gemm", checks.rms_qkv, 1),
        reference.rms_qkv_gemm,
        _and_norm(),
        gradients.RMS_QKV_GEMM,
        by_rows("x"),
    ),
    Op(
        "mlp_gemm",
        _FAMILY,
        f"({_INPUT}, Tensor weight, Tensor bias, Tensor weight2, {_NORM}, {_MLP})"
        " -> (Tensor, Tensor)",
        checks.dense("mlp_gemm", checks.mlp, 3, 5),
        reference.mlp_gemm,
        _and_norm(5),
        gradients.MLP_GEMM,
        by_rows("x", "residual"),
    ),
    Op(
        "rms_mlp_gemm",
        _FAMILY,
        f"({_SUM}, Tensor weight, Tensor weight2, {_RMS}, {_GATED}) -> Tensor",
        checks.dense("rms_mlp_gemm", checks.rms_mlp, 2, 3),
        reference.rms_mlp_gemm,
        _product(3),
    ),
    Op(
        "vector_matmul_int8",
        _FAMILY,
        "(Tensor x, Tensor weight, Tensor scale) -> Tensor",
        checks.int8("vector_matmul_int8", checks.linear, 1),
        reference_int8.vector_matmul_int8,
        _product(),
        gradients.INT8,
        by_rows("x"),
    ),
    Op(
        "linear_layer_int8",
        _FAMILY,
        "(Tensor x, Tensor weight, Tensor scale, Tensor? bias=None) -> Tensor",
        checks.int8("linear_layer_int8", checks.linear, 1),
        reference_int8.linear_layer_int8,
        _product(),
        gradients.INT8,
        by_rows("x"),
    ),
    Op(
        "fused_gemm_gelu_int8",
        _FAMILY,
        "(Tensor x, Tensor weight, Tensor scale, Tensor bias, Tensor weight2, Tensor scale2)"
        " -> Tensor",
        checks.int8("fused_gemm_gelu_int8", checks.gemm_gelu, 1, 3),
        reference_int8.fused_gemm_gelu_int8,
        _product(4),
        gradients.INT8,
        by_rows("x"),
    ),
    Op(
        "qkv_gemm_int8",
        _FAMILY,
        f"(Tensor x, Tensor weight, Tensor scale, Tensor? bias, {_NORM}) -> (Tensor, Tensor)",
        checks.int8("qkv_gemm_int8", checks.qkv, 1),
        reference_int8.qkv_gemm_int8,
        _and_norm(),
        gradients.INT8,
        by_rows("x"),
    ),
    Op(
        "rms_qkv_gemm_int8",
        _FAMILY,
        f"(Tensor x, Tensor weight, Tensor scale, {_RMS}) -> (Tensor, Tensor)",
        checks.int8("rms_qkv_gemm_int8", checks.rms_qkv, 1),
        reference_int8.rms_qkv_gemm_int8,
        _and_norm(),
        gradients.INT8,
        by_rows("x"),
    ),
    Op(
        "mlp_gemm_int8",
        _FAMILY,
        f"({_INPUT}, Tensor weight, Tensor scale, Tensor bias, Tensor weight2, Tensor scale2, "
        f"{_NORM}, {_MLP}) -> (Tensor, Tensor)",
        checks.int8("mlp_gemm_int8", checks.mlp, 3, 5),
        reference_int8.mlp_gemm_int8,
        _and_norm(6),
        gradients.INT8,
        by_rows("x", "residual"),
    ),
    Op(
        "rms_mlp_gemm_int8",
        _FAMILY,
        f"({_SUM}, Tensor weight, Tensor scale, Tensor weight2, Tensor scale2, {_RMS}, {_GATED})"
        " -> Tensor",
        checks.int8("rms_mlp_gemm_int8", checks.rms_mlp, 2, 3),
        reference_int8.rms_mlp_gemm_int8,
        _product(4),
    ),
)
