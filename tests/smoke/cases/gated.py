"""Gated linear units."""

import torch
from torch import Tensor

import fusedops
from cases.bias_act import gelu
from cases.case import Case, Make, Shape, matrices, matrices_and_rows, randn

GATES = {
    "geglu": lambda v: gelu(v, "tanh"),
    "geglu_erf": lambda v: gelu(v, "none"),
    "swiglu": lambda v: v * torch.sigmoid(v),
    "reglu": torch.relu,
}


def gated(kind: str, x: Tensor, bias: Tensor | None = None) -> Tensor:
    """The first half of the columns times the gate of the second."""
    v = x if bias is None else x + bias
    columns = v.shape[-1] // 2
    return v[..., :columns] * GATES[kind](v[..., columns:])


def _twice_as_wide(make: Make) -> Make:
    def wider(shape: Shape, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, ...]:
        return make((*shape[:-1], 2 * shape[-1]), dtype, device)

    return wider


def _case(name: str, kind: str, make: Make) -> Case:
    return Case(
        f"gated_activation {name}",
        fusedops.gated_activation,
        lambda *args: gated(kind, *args),
        _twice_as_wide(make),
        {"kind": kind},
        absolute=2e-5,  # the gate's error times a value of up to 15
        # A bias's gradient is the sum of many that cancel.
        gradient_ulps=16.0,
    )


CASES = (
    *(_case(f"{kind} and bias", kind, matrices_and_rows(1, 1)) for kind in GATES),
    _case("geglu", "geglu", matrices(1)),
    _case("swiglu", "swiglu", matrices(1)),
)


def _backward(device: torch.device) -> tuple[Tensor, ...]:
    grad = randn((6, 20), torch.float32, device)
    return (grad, *matrices_and_rows(1, 1)((6, 40), torch.float32, device))


PRIVATE = {
    "gated_activation_backward": lambda device: (_backward(device), {"kind": "geglu_erf"}),
}
