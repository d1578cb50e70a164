"""The operators of x[..., N] and bias[N] in plain PyTorch."""

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from fusedops.widths import narrow, widen

# Outside +-this the slope of GELU is 0 or 1 in every dtype.
_FLAT = 64.0


def bias_add(x: Tensor, bias: Tensor) -> Tensor:
    """X + bias."""
    return narrow(widen(x) + widen(bias), x)


def bias_relu(x: Tensor, bias: Tensor) -> Tensor:
    """max(x + bias, 0)."""
    return narrow(torch.relu(widen(x) + widen(bias)), x)


def bias_gelu(x: Tensor, bias: Tensor, *, approximate: str = "tanh") -> Tensor:
    """GELU of x + bias; at the infinities its limits, where torch's may give NaN."""
    v = widen(x) + widen(bias)
    y = torch.where(v.isinf(), v.clamp_min(0), F.gelu(v, approximate=approximate))
    return narrow(y, x)


def bias_relu_backward(grad: Tensor, x: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of bias_relu with respect to x and bias."""
    v = widen(x) + widen(bias)
    return _with_bias_gradient(torch.where(v <= 0, 0, widen(grad)), x)


def bias_gelu_backward(
    grad: Tensor, x: Tensor, bias: Tensor, *, approximate: str = "tanh"
) -> tuple[Tensor, Tensor]:
    """Gradients of bias_gelu with respect to x and bias."""
    v = (widen(x) + widen(bias)).clamp(-_FLAT, _FLAT)
    wide = torch.ops.aten.gelu_backward(widen(grad), v, approximate=approximate)
    return _with_bias_gradient(wide, x)


def _with_bias_gradient(wide: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    rows = tuple(range(x.dim() - 1))
    bias_gradient = wide.sum(rows) if rows else wide.clone()
    return narrow(wide, x), narrow(bias_gradient, x)
