"""What the products with weights demand, each."""

from torch import Tensor

from fusedops import checks
from fusedops.families.gemm.weights import Weight, check_weight, gemm_gelu, linear, mlp, qkv


def vector_matmul(x: Tensor, weight: Tensor) -> None:
    """A matrix and a weight."""
    linear("vector_matmul", x, Weight("weight", weight))


def linear_layer(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> None:
    """A matrix, a weight, and a row if there is a bias."""
    linear("linear_layer", x, Weight("weight", weight), bias)


def fused_gemm_gelu(x: Tensor, weight: Tensor, bias: Tensor, weight2: Tensor) -> None:
    """A matrix, a weight, a row, and a weight that takes what the first gives."""
    gemm_gelu("fused_gemm_gelu", x, Weight("weight", weight), bias, Weight("weight2", weight2))


def einsum_sec_sm_ecm(q: Tensor, weight: Tensor) -> None:
    """Three dimensions, and a weight that takes the first."""
    op = "einsum_sec_sm_ecm"
    checks.check_floating(op, "q", q)
    if q.dim() != 3:
        checks.fail(op, "q", "3 dimensions", q.dim())
    which = "the first dimension of q"
    check_weight(op, Weight("weight", weight), "q", q, q.shape[0], which)


def qkv_gemm(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    gamma: Tensor,
    beta: Tensor,
    *,
    eps: float = 1e-5,
) -> None:
    """A matrix, its norm's rows, a weight, and a row if there is a bias."""
    del eps
    qkv("qkv_gemm", x, Weight("weight", weight), bias, gamma=gamma, beta=beta)


def rms_qkv_gemm(x: Tensor, weight: Tensor, gamma: Tensor, *, eps: float = 1e-6) -> None:
    """A matrix, its norm's row and a weight."""
    del eps
    qkv("rms_qkv_gemm", x, Weight("weight", weight), None, gamma=gamma)


def mlp_gemm(
    x: Tensor,
    residual: Tensor,
    input_bias: Tensor,
    weight: Tensor,
    bias: Tensor,
    weight2: Tensor,
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
    first, second = Weight("weight", weight), Weight("weight2", weight2)
    mlp("mlp_gemm", x, first, second, bias, activation, **norm)


def rms_mlp_gemm(
    x: Tensor,
    residual: Tensor,
    weight: Tensor,
    weight2: Tensor,
    gamma: Tensor,
    *,
    eps: float = 1e-6,
    activation: str = "swiglu",
) -> None:
    """Two matrices, a row for them, and the MLP's weights."""
    del eps
    norm = {"residual": residual, "gamma": gamma}
    first, second = Weight("weight", weight), Weight("weight2", weight2)
    mlp("rms_mlp_gemm", x, first, second, None, activation, **norm)
