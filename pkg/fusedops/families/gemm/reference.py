"""Products with weights in plain PyTorch.

A product is summed in float32 (float64 for float64) and rounded once; the norm before it and the
activation after it take and give the tensors' type too. Products are given to `out`, so autocast
changes no type.
"""

import math

import torch
from torch import Tensor

from fusedops.families.bias_act.reference import bias_gelu, bias_relu
from fusedops.families.gated.reference import gated_activation
from fusedops.families.gemm.checks import PLAIN
from fusedops.families.norm.reference import (
    layer_norm,
    layer_norm_residual,
    pre_rms_norm,
    rms_norm,
)


def vector_matmul(x: Tensor, weight: Tensor) -> Tensor:
    """X weight."""
    return linear_layer(x, weight)


def linear_layer(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """X weight [+ bias]."""
    out = x.new_empty(*x.shape[:-1], weight.shape[1])
    rows = math.prod(x.shape[:-1])
    a, into = x.reshape(rows, x.shape[-1]), out.view(rows, weight.shape[1])
    if bias is None:
        torch.mm(a, weight, out=into)
    else:
        torch.addmm(bias, a, weight, out=into)
    return out


def fused_gemm_gelu(x: Tensor, weight: Tensor, bias: Tensor, weight2: Tensor) -> Tensor:
    """GELU(x weight + bias) weight2."""
    return _mlp(x, weight, bias, weight2, "gelu")


def einsum_sec_sm_ecm(q: Tensor, weight: Tensor) -> Tensor:
    """The sum over s of q[s, e, c] weight[s, m]."""
    return vector_matmul(q.permute(1, 2, 0), weight)


def qkv_gemm(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    gamma: Tensor,
    beta: Tensor,
    *,
    eps: float = 1e-5,
) -> tuple[Tensor, Tensor]:
    """U = LN(x); u weight [+ bias], and u."""
    u = layer_norm(x, gamma, beta, eps=eps)
    return linear_layer(u, weight, bias), u


def rms_qkv_gemm(
    x: Tensor, weight: Tensor, gamma: Tensor, *, eps: float = 1e-6
) -> tuple[Tensor, Tensor]:
    """U = RMS(x); u weight, and u."""
    u = rms_norm(x, gamma, eps=eps)
    return vector_matmul(u, weight), u


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
) -> tuple[Tensor, Tensor]:
    """U = LN of the sum, or of residual alone; f(u weight + bias) weight2, and u."""
    del pre_ln
    if mlp_after_attn:
        u = layer_norm_residual(x, input_bias, residual, gamma, beta, eps=eps)
    else:
        u = layer_norm(residual, gamma, beta, eps=eps)
    return _mlp(u, weight, bias, weight2, activation), u


def rms_mlp_gemm(
    x: Tensor,
    residual: Tensor,
    weight: Tensor,
    weight2: Tensor,
    gamma: Tensor,
    *,
    eps: float = 1e-6,
    activation: str = "swiglu",
) -> Tensor:
    """Residual += x; f(RMS(residual) weight) weight2."""
    u, total = pre_rms_norm(x, residual, gamma, eps=eps)
    residual.copy_(total)
    return _mlp(u, weight, None, weight2, activation)


def _mlp(
    u: Tensor, weight: Tensor, bias: Tensor | None, weight2: Tensor, activation: str
) -> Tensor:
    v = vector_matmul(u, weight)
    if activation not in PLAIN:
        return vector_matmul(gated_activation(v, bias, kind=activation), weight2)
    row = v.new_zeros(v.shape[-1]) if bias is None else bias
    if activation == "relu":
        return vector_matmul(bias_relu(v, row), weight2)
    form = "tanh" if activation == "gelu" else "none"
    return vector_matmul(bias_gelu(v, row, approximate=form), weight2)
