"""A bias and an activation."""

import math

import torch
from torch import Tensor

import fusedops
from cases.case import Case, matrices_and_rows


def gelu(v: Tensor, approximate: str) -> Tensor:
    """GELU without cancellation: v times a probability."""
    if approximate == "none":
        return 0.5 * v * torch.special.erfc(-v * math.sqrt(0.5))
    return v * torch.sigmoid(2 * math.sqrt(2 / math.pi) * (v + 0.044715 * v**3))


_INPUTS = matrices_and_rows(1, 1)

CASES = (
    Case("bias_add", fusedops.bias_add, lambda x, b: x + b, _INPUTS, most=1e4),
    Case("bias_relu", fusedops.bias_relu, lambda x, b: torch.relu(x + b), _INPUTS, most=1e4),
    Case("bias_gelu", fusedops.bias_gelu, lambda x, b: gelu(x + b, "tanh"), _INPUTS, most=1e4),
    Case(
        "bias_gelu erf",
        fusedops.bias_gelu,
        lambda x, b: gelu(x + b, "none"),
        _INPUTS,
        {"approximate": "none"},
        most=1e4,
    ),
)


def _backward(device: torch.device) -> tuple[Tensor, ...]:
    return (torch.randn(6, 40, device=device), *_INPUTS((6, 40), torch.float32, device))


PRIVATE = {
    "bias_relu_backward": lambda device: (_backward(device), {}),
    "bias_gelu_backward": lambda device: (_backward(device), {"approximate": "none"}),
}
