"""Activations and their gradients in plain PyTorch, of what is wide already.

At the infinities they are the formulas' limits, where torch's own may give NaN.
"""

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

# Outside +-these the slopes are 0 or 1 in every dtype, and no exponential overflows to NaN.
_FLAT_GELU = 64.0
_FLAT_SILU = 700.0


def gelu(v: Tensor, approximate: str) -> Tensor:
    """GELU, of the form that torch calls "tanh" or "none"."""
    return _limited(v, F.gelu(v, approximate=approximate))


def gelu_backward(grad: Tensor, v: Tensor, approximate: str) -> Tensor:
    """The gradient with respect to v."""
    flat = v.clamp(-_FLAT_GELU, _FLAT_GELU)
    found: Tensor = torch.ops.aten.gelu_backward(grad, flat, approximate=approximate)
    return found


def silu(v: Tensor) -> Tensor:
    """SiLU, v / (1 + exp(-v))."""
    return _limited(v, F.silu(v))


def silu_backward(grad: Tensor, v: Tensor) -> Tensor:
    """The gradient with respect to v."""
    found: Tensor = torch.ops.aten.silu_backward(grad, v.clamp(-_FLAT_SILU, _FLAT_SILU))
    return found


def relu_backward(grad: Tensor, v: Tensor) -> Tensor:
    """The gradient of max(v, 0) with respect to v; the slope at 0 is 0."""
    return torch.where(v <= 0, 0, grad)


def _limited(v: Tensor, y: Tensor) -> Tensor:
    return torch.where(v.isinf(), v.clamp_min(0), y)
