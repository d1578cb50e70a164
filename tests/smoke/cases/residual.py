"""Sums with a residual."""

import torch
from torch import Tensor

import fusedops
from cases.case import Case, Shape, matrices, matrices_and_rows, randn


def _block(shape: Shape, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, ...]:
    """Hidden, residual, attention, attention_bias, final_bias."""
    return matrices_and_rows(3, 2)(shape, dtype, device)


def _mixture(shape: Shape, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, ...]:
    residual, output = matrices(2)(shape, dtype, device)
    return residual, randn((2 * shape[-1],), dtype, device), output


def _mixed(residual: Tensor, coef: Tensor, output: Tensor) -> Tensor:
    columns = residual.shape[-1]
    return output * coef[columns:] + residual * coef[:columns]


CASES = (
    Case(
        "bias_residual",
        fusedops.bias_residual,
        lambda x, r, b: x + b + r,
        matrices_and_rows(2, 1),
        absolute=2e-6,
        most=1e4,
    ),
    Case(
        "residual_add_bias",
        fusedops.residual_add_bias,
        lambda h, r, a, ab, fb: (r + a + fb + ab) / 3 + h,
        _block,
        {"mp_size": 3},
        absolute=3e-6,
        most=1e4,
    ),
    Case(
        "residual_add_bias parallel",
        fusedops.residual_add_bias,
        lambda h, r, a, ab, fb: h + a + (r + fb + ab) / 2,
        _block,
        {"mp_size": 2, "mlp_after_attn": False},
        absolute=3e-6,
    ),
    Case("moe_res_matmul", fusedops.moe_res_matmul, _mixed, _mixture, absolute=3e-6),
)
