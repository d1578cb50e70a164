"""Products with int8 weights in plain PyTorch: of the weights times their scales, rounded."""

from torch import Tensor

from fusedops.families.dequantize.reference import dequantize
from fusedops.families.gemm import reference


def vector_matmul_int8(x: Tensor, weight: Tensor, scale: Tensor) -> Tensor:
    """X weight."""
    return reference.vector_matmul(x, _dense(weight, scale, x))


def linear_layer_int8(
    x: Tensor, weight: Tensor, scale: Tensor, bias: Tensor | None = None
) -> Tensor:
    """X weight [+ bias]."""
    return reference.linear_layer(x, _dense(weight, scale, x), bias)


def fused_gemm_gelu_int8(
    x: Tensor, weight: Tensor, scale: Tensor, bias: Tensor, weight2: Tensor, scale2: Tensor
) -> Tensor:
    """GELU(x weight + bias) weight2."""
    first, second = _dense(weight, scale, x), _dense(weight2, scale2, x)
    return reference.fused_gemm_gelu(x, first, bias, second)


def qkv_gemm_int8(
    x: Tensor,
    weight: Tensor,
    scale: Tensor,
    bias: Tensor | None,
    gamma: Tensor,
    beta: Tensor,
    *,
    eps: float = 1e-5,
) -> tuple[Tensor, Tensor]:
    """U = LN(x); u weight [+ bias], and u."""
    return reference.qkv_gemm(x, _dense(weight, scale, x), bias, gamma, beta, eps=eps)


def rms_qkv_gemm_int8(
    x: Tensor, weight: Tensor, scale: Tensor, gamma: Tensor, *, eps: float = 1e-6
) -> tuple[Tensor, Tensor]:
    """U = RMS(x); u weight, and u."""
    return reference.rms_qkv_gemm(x, _dense(weight, scale, x), gamma, eps=eps)


def mlp_gemm_int8(
    x: Tensor,
    residual: Tensor,
    input_bias: Tensor,
    weight: Tensor,
    scale: Tensor,
    bias: Tensor,
    weight2: Tensor,
    scale2: Tensor,
    gamma: Tensor,
    beta: Tensor,
    *,
    eps: float = 1e-5,
    pre_ln: bool = True,
    mlp_after_attn: bool = True,
    activation: str = "gelu",
) -> tuple[Tensor, Tensor]:
    """U = LN of the sum, or of residual alone; f(u weight + bias) weight2, and u."""
    return reference.mlp_gemm(
        x,
        residual,
        input_bias,
        _dense(weight, scale, x),
        bias,
        _dense(weight2, scale2, x),
        gamma,
        beta,
        eps=eps,
        pre_ln=pre_ln,
        mlp_after_attn=mlp_after_attn,
        activation=activation,
    )


def rms_mlp_gemm_int8(
    x: Tensor,
    residual: Tensor,
    weight: Tensor,
    scale: Tensor,
    weight2: Tensor,
    scale2: Tensor,
    gamma: Tensor,
    *,
    eps: float = 1e-6,
    activation: str = "swiglu",
) -> Tensor:
    """Residual += x; f(RMS(residual) weight) weight2."""
    first, second = _dense(weight, scale, x), _dense(weight2, scale2, x)
    return reference.rms_mlp_gemm(x, residual, first, second, gamma, eps=eps, activation=activation)


def _dense(weight: Tensor, scale: Tensor, like: Tensor) -> Tensor:
    return dequantize(weight, scale, dtype=like.dtype)
