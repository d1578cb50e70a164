"""The family's operators."""

from collections.abc import Callable

from torch import Tensor

from fusedops.batching import by_rows
from fusedops.families.gemm import (
    checks,
    checks_int8,
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
        checks.vector_matmul,
        reference.vector_matmul,
        _product(),
        gradients.VECTOR_MATMUL,
        by_rows("x"),
    ),
    Op(
        "linear_layer",
        _FAMILY,
        "(Tensor x, Tensor weight, Tensor? bias=None) -> Tensor",
        checks.linear_layer,
        reference.linear_layer,
        _product(),
        gradients.LINEAR_LAYER,
        by_rows("x"),
    ),
    Op(
        "fused_gemm_gelu",
        _FAMILY,
        "(Tensor x, Tensor weight, Tensor bias, Tensor weight2) -> Tensor",
        checks.fused_gemm_gelu,
        reference.fused_gemm_gelu,
        _product(3),
        gradients.FUSED_GEMM_GELU,
        by_rows("x"),
    ),
    Op(
        "einsum_sec_sm_ecm",
        _FAMILY,
        "(Tensor q, Tensor weight) -> Tensor",
        checks.einsum_sec_sm_ecm,
        reference.einsum_sec_sm_ecm,
        _einsum,
        gradients.EINSUM_SEC_SM_ECM,
        by_rows(),
    ),
    Op(
        "qkv_gemm",
        _FAMILY,
        f"(Tensor x, Tensor weight, Tensor? bias, {_NORM}) -> (Tensor, Tensor)",
        checks.qkv_gemm,
        reference.qkv_gemm,
        _and_norm(),
        gradients.QKV_GEMM,
        by_rows("x"),
    ),
    Op(
        "rms_qkv_gemm",
        _FAMILY,
        f"(Tensor x, Tensor weight, {_RMS}) -> (Tensor, Tensor)",
        checks.rms_qkv_gemm,
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
        checks.mlp_gemm,
        reference.mlp_gemm,
        _and_norm(5),
        gradients.MLP_GEMM,
        by_rows("x", "residual"),
    ),
    Op(
        "rms_mlp_gemm",
        _FAMILY,
        f"({_SUM}, Tensor weight, Tensor weight2, {_RMS}, {_GATED}) -> Tensor",
        checks.rms_mlp_gemm,
        reference.rms_mlp_gemm,
        _product(3),
    ),
    Op(
        "vector_matmul_int8",
        _FAMILY,
        "(Tensor x, Tensor weight, Tensor scale) -> Tensor",
        checks_int8.vector_matmul_int8,
        reference_int8.vector_matmul_int8,
        _product(),
        gradients.INT8,
        by_rows("x"),
    ),
    Op(
        "linear_layer_int8",
        _FAMILY,
        "(Tensor x, Tensor weight, Tensor scale, Tensor? bias=None) -> Tensor",
        checks_int8.linear_layer_int8,
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
        checks_int8.fused_gemm_gelu_int8,
        reference_int8.fused_gemm_gelu_int8,
        _product(4),
        gradients.INT8,
        by_rows("x"),
    ),
    Op(
        "qkv_gemm_int8",
        _FAMILY,
        f"(Tensor x, Tensor weight, Tensor scale, Tensor? bias, {_NORM}) -> (Tensor, Tensor)",
        checks_int8.qkv_gemm_int8,
        reference_int8.qkv_gemm_int8,
        _and_norm(),
        gradients.INT8,
        by_rows("x"),
    ),
    Op(
        "rms_qkv_gemm_int8",
        _FAMILY,
        f"(Tensor x, Tensor weight, Tensor scale, {_RMS}) -> (Tensor, Tensor)",
        checks_int8.rms_qkv_gemm_int8,
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
        checks_int8.mlp_gemm_int8,
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
        checks_int8.rms_mlp_gemm_int8,
        reference_int8.rms_mlp_gemm_int8,
        _product(4),
    ),
)
