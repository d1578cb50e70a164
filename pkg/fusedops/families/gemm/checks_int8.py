"""What the products with int8 weights demand, each."""

from torch import Tensor

from fusedops.families.gemm.weights import Weight, gemm_gelu, linear, mlp, qkv


def vector_matmul_int8(x: Tensor, weight: Tensor, scale: Tensor) -> None:
    """A matrix and a weight."""
    linear("vector_matmul_int8", x, _first(weight, scale))


def linear_layer_int8(x: Tensor, weight: Tensor, scale: Tensor, bias: Tensor | None = None) -> None:
    """A matrix, a weight, and a row if there is a bias."""
    linear("linear_layer_int8", x, _first(weight, scale), bias)


def fused_gemm_gelu_int8(
    x: Tensor, weight: Tensor, scale: Tensor, bias: Tensor, weight2: Tensor, scale2: Tensor
) -> None:
    """A matrix, a weight, a row, and a weight that takes what the first gives."""
    op = "fused_gemm_gelu_int8"
    gemm_gelu(op, x, _first(weight, scale), bias, _second(weight2, scale2))


def qkv_gemm_int8(
    x: Tensor,
    weight: Tensor,
    scale: Tensor,
    bias: Tensor | None,
    gamma: Tensor,
    beta: Tensor,
    *,
    eps: float = 1e-5,
) -> None:
    """A matrix, its norm's rows, a weight, and a row if there is a bias."""
    del eps
    qkv("qkv_gemm_int8", x, _first(weight, scale), bias, gamma=gamma, beta=beta)


def rms_qkv_gemm_int8(
    x: Tensor, weight: Tensor, scale: Tensor, gamma: Tensor, *, eps: float = 1e-6
) -> None:
    """A matrix, its norm's row and a weight."""
    del eps
    qkv("rms_qkv_gemm_int8", x, _first(weight, scale), None, gamma=gamma)


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
) -> None:
    """Two matrices, three rows for them, and the MLP's weights and bias."""
    del eps, pre_ln, mlp_after_attn
    norm = {"input_bias": input_bias, "residual": residual, "gamma": gamma, "beta": beta}
    first, second = _first(weight, scale), _second(weight2, scale2)
    mlp("mlp_gemm_int8", x, first, second, bias, activation, **norm)


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
) -> None:
    """Two matrices, a row for them, and the MLP's weights."""
    del eps
    norm = {"residual": residual, "gamma": gamma}
    first, second = _first(weight, scale), _second(weight2, scale2)
    mlp("rms_mlp_gemm_int8", x, first, second, None, activation, **norm)


def _first(weight: Tensor, scale: Tensor) -> Weight:
    return Weight("weight", weight, "scale", scale)


def _second(weight: Tensor, scale: Tensor) -> Weight:
    return Weight("weight2", weight, "scale2", scale)
