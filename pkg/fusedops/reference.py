"""The operators in plain PyTorch: what they mean, and what runs where no kernel is loaded.

Arithmetic is float32 (float64 for float64) and is rounded once, on the result. Results are
contiguous, as the kernels' are.
"""

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from fusedops import checks

# Outside +-this the slope of GELU is 0 or 1 in every dtype.
_FLAT = 64.0


def vector_add(a: Tensor, b: Tensor, *, gamma: float = 1.0) -> Tensor:
    """Gamma a + b."""
    checks.check_vector_add(a, b)
    return _narrow(torch.add(_widen(b), _widen(a), alpha=gamma), a)


def bias_add(x: Tensor, bias: Tensor) -> Tensor:
    """X + bias."""
    checks.check_bias("bias_add", x, bias)
    return _narrow(_widen(x) + _widen(bias), x)


def bias_relu(x: Tensor, bias: Tensor) -> Tensor:
    """max(x + bias, 0)."""
    checks.check_bias("bias_relu", x, bias)
    return _narrow(torch.relu(_widen(x) + _widen(bias)), x)


def bias_gelu(x: Tensor, bias: Tensor, *, approximate: str = "tanh") -> Tensor:
    """GELU of x + bias; at the infinities its limits, where torch's may give NaN."""
    checks.check_approximate("bias_gelu", approximate)
    checks.check_bias("bias_gelu", x, bias)
    v = _widen(x) + _widen(bias)
    y = torch.where(v.isinf(), v.clamp_min(0), F.gelu(v, approximate=approximate))
    return _narrow(y, x)


def bias_relu_backward(grad: Tensor, x: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of bias_relu with respect to x and bias."""
    checks.check_bias_backward("bias_relu_backward", grad, x, bias)
    v = _widen(x) + _widen(bias)
    return _with_bias_gradient(torch.where(v <= 0, 0, _widen(grad)), x)


def bias_gelu_backward(
    grad: Tensor, x: Tensor, bias: Tensor, *, approximate: str = "tanh"
) -> tuple[Tensor, Tensor]:
    """Gradients of bias_gelu with respect to x and bias."""
    checks.check_approximate("bias_gelu_backward", approximate)
    checks.check_bias_backward("bias_gelu_backward", grad, x, bias)
    v = (_widen(x) + _widen(bias)).clamp(-_FLAT, _FLAT)
    wide = torch.ops.aten.gelu_backward(_widen(grad), v, approximate=approximate)
    return _with_bias_gradient(wide, x)


def _widen(tensor: Tensor) -> Tensor:
    return tensor if tensor.dtype == torch.float64 else tensor.float()


def _narrow(wide: Tensor, like: Tensor) -> Tensor:
    return wide.to(like.dtype).contiguous()


def _with_bias_gradient(wide: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    rows = tuple(range(x.dim() - 1))
    bias_gradient = wide.sum(rows) if rows else wide.clone()
    return _narrow(wide, x), _narrow(bias_gradient, x)
