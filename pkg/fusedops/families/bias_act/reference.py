"""The operators of x[..., N] and bias[N] in plain PyTorch."""

import torch
from torch import Tensor

from fusedops import activation
from fusedops.widths import narrow, sum_over_rows, widen


def bias_add(x: Tensor, bias: Tensor) -> Tensor:
    """X + bias."""
    return narrow(widen(x) + widen(bias), x)


def bias_relu(x: Tensor, bias: Tensor) -> Tensor:
    """max(x + bias, 0)."""
    return narrow(torch.relu(widen(x) + widen(bias)), x)


def bias_gelu(x: Tensor, bias: Tensor, *, approximate: str = "tanh") -> Tensor:
    """GELU of x + bias."""
    return narrow(activation.gelu(widen(x) + widen(bias), approximate), x)


def bias_relu_backward(grad: Tensor, x: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of bias_relu with respect to x and bias."""
    v = widen(x) + widen(bias)
    return _with_bias_gradient(activation.relu_backward(widen(grad), v), x)


def bias_gelu_backward(
    grad: Tensor, x: Tensor, bias: Tensor, *, approximate: str = "tanh"
) -> tuple[Tensor, Tensor]:
    """Gradients of bias_gelu with respect to x and bias."""
    v = widen(x) + widen(bias)
    return _with_bias_gradient(activation.gelu_backward(widen(grad), v, approximate), x)


def _with_bias_gradient(wide: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    return narrow(wide, x), sum_over_rows(wide, x)
