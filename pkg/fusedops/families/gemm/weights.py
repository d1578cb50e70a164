"""Weights, dense or of int8 with their scales, and what a product with them demands."""

from typing import NamedTuple

import torch
from torch import Tensor

from fusedops import checks
from fusedops.families.dequantize.checks import check_scale


class Weight(NamedTuple):
    """A weight, its name, and its scales where it is of int8."""

    name: str
    tensor: Tensor
    scale_name: str = ""
    scale: Tensor | None = None


def check_product(op: str, x: Tensor, weight: Weight) -> None:
    """A matrix, and a weight that takes its rows."""
    checks.check_rows(op, "x", x)
    if weight.scale is not None and x.dtype == torch.float64:
        checks.fail(op, "x", "dtype float32, float16 or bfloat16", "float64")
    check_weight(op, weight, "x", x, x.shape[-1], "the last dimension of x")


def check_next(op: str, x: Tensor, before: Weight, weight: Weight, *, gated: bool = False) -> None:
    """A weight that takes what `before` gives, or half of it."""
    rows = before.tensor.shape[1] // 2 if gated else before.tensor.shape[1]
    which = f"{'half ' if gated else ''}the last dimension of {before.name}"
    check_weight(op, weight, "x", x, rows, which)


def check_weight(
    op: str, weight: Weight, like_name: str, like: Tensor, rows: int, which: str
) -> None:
    """A matrix of so many rows, of the type of `like`, or of int8 with its scales."""
    name, tensor, scale_name, scale = weight
    if scale is None:
        checks.check_like(op, name, tensor, like_name, like)
    else:
        if tensor.dtype != torch.int8:
            checks.fail(op, name, "dtype int8", checks.dtype_name(tensor.dtype))
        checks.check_device(op, name, tensor, like_name, like)
    if tensor.dim() != 2 or tensor.shape[0] != rows:
        checks.fail(op, name, f"shape [{rows}, any] ({which})", list(tensor.shape))
    if scale is not None:
        check_scale(op, scale_name, scale, name, tensor)


def check_bias(op: str, bias: Tensor, x: Tensor, weight: Weight) -> None:
    """A row of what the weight gives."""
    checks.check_like(op, "bias", bias, "x", x)
    checks.check_row(op, "bias", bias, weight.name, weight.tensor)
