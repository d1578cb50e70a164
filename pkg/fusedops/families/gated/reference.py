"""The gated operators in plain PyTorch."""

import torch
from torch import Tensor

from fusedops import activation
from fusedops.widths import narrow, sum_over_rows, widen

_FORMS = {"geglu": "tanh", "geglu_erf": "none"}  # of GELU


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
    return narrow(wide, x), sum_over_rows(wide, x)


def _halves(x: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
    wide = widen(x) if bias is None else widen(x) + widen(bias)
    value, gate = wide.chunk(2, -1)
    return value, gate


def _activation(v: Tensor, kind: str) -> Tensor:
    if kind == "reglu":
        return torch.relu(v)
    if kind == "swiglu":
        return activation.silu(v)
    return activation.gelu(v, _FORMS[kind])


def _slope(grad: Tensor, v: Tensor, kind: str) -> Tensor:
    if kind == "reglu":
        return activation.relu_backward(grad, v)
    if kind == "swiglu":
        return activation.silu_backward(grad, v)
    return activation.gelu_backward(grad, v, _FORMS[kind])
