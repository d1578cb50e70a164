"""The gated operators in plain PyTorch."""

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from fusedops.widths import narrow, widen

# Outside +-this the slopes are 0 or 1 in every dtype, and no exponential overflows to NaN.
_FLAT = {"geglu": 64.0, "geglu_erf": 64.0, "swiglu": 700.0}


def gated_activation(x: Tensor, bias: Tensor | None = None, *, kind: str) -> Tensor:
    """The first half times an activation of the second, of x + bias."""
    value, gate = _halves(x, bias)
    return narrow(value * _activation(gate, kind), x)


def gated_activation_backward(
    grad: Tensor, x: Tensor, bias: Tensor | None = None, *, kind: str
) -> tuple[Tensor, Tensor]:
    """Gradients of gated_activation with respect to x and bias; an empty one without a bias."""
    value, gate = _halves(x, bias)
    upper = widen(grad)
    wide = torch.cat([upper * _activation(gate, kind), _slope(upper * value, gate, kind)], -1)
    if bias is None:
        return narrow(wide, x), x.new_empty(0)
    rows = tuple(range(x.dim() - 1))
    bias_gradient = wide.sum(rows) if rows else wide.clone()
    return narrow(wide, x), narrow(bias_gradient, x)


def _halves(x: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
    wide = widen(x) if bias is None else widen(x) + widen(bias)
    value, gate = wide.chunk(2, -1)
    return value, gate


def _activation(v: Tensor, kind: str) -> Tensor:
    """At the infinities the limits, where torch's may give NaN."""
    if kind == "reglu":
        return torch.relu(v)
    if kind == "swiglu":
        y = F.silu(v)
    else:
        y = F.gelu(v, approximate="tanh" if kind == "geglu" else "none")
    return torch.where(v.isinf(), v.clamp_min(0), y)


def _slope(grad: Tensor, v: Tensor, kind: str) -> Tensor:
    if kind == "reglu":
        return torch.where(v <= 0, 0, grad)
    flat = v.clamp(-_FLAT[kind], _FLAT[kind])
    if kind == "swiglu":
        slope: Tensor = torch.ops.aten.silu_backward(grad, flat)
    else:
        approximate = "tanh" if kind == "geglu" else "none"
        slope = torch.ops.aten.gelu_backward(grad, flat, approximate=approximate)
    return slope
