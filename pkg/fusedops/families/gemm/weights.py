"""What products with weights demand in common, in the native library's order and words."""

from typing import NamedTuple

import torch
from torch import Tensor

from fusedops import checks
from fusedops.families.dequantize.checks import check_scale
from fusedops.families.gated.checks import KINDS
from fusedops.families.norm.checks import check_norm

PLAIN = ("gelu", "gelu_erf", "relu")


class Weight(NamedTuple):
    """A weight, its name, and its scales where it is of int8."""

    name: str
    tensor: Tensor
    scale_name: str = ""
    scale: Tensor | None = None


def linear(op: str, x: Tensor, weight: Weight, bias: Tensor | None = None) -> None:
    """A matrix, a weight, and a row if there is a bias."""
    _product(op, x, weight)
    if bias is not None:
        _bias(op, bias, x, weight)


def gemm_gelu(op: str, x: Tensor, weight: Weight, bias: Tensor, weight2: Weight) -> None:
    """A matrix, a weight, a row and a weight that takes what the first gives."""
    _product(op, x, weight)
    _bias(op, bias, x, weight)
    _next(op, x, weight, weight2)


def qkv(op: str, x: Tensor, weight: Weight, bias: Tensor | None, **rows: Tensor) -> None:
    """A matrix, its norm's rows, and what linear takes."""
    check_norm(op, x, **rows)
    linear(op, x, weight, bias)


def mlp(
    op: str,
    x: Tensor,
    weight: Weight,
    weight2: Weight,
    bias: Tensor | None,
    activation: str,
    **operands: Tensor,
) -> None:
    """An activation, a matrix, its norm's operands, and two weights one after the other."""
    if activation not in (*PLAIN, *KINDS):
        words = [repr(word) for word in (*PLAIN, *KINDS)]
        expected = f"{', '.join(words[:-1])} or {words[-1]}"
        checks.fail(op, "activation", expected, repr(activation))
    check_norm(op, x, **operands)
    _product(op, x, weight)
    gated = activation in KINDS
    if gated and weight.tensor.shape[1] % 2 != 0:
        expected = "an even last dimension (values and gates)"
        checks.fail(op, weight.name, expected, weight.tensor.shape[1])
    if bias is not None:
        _bias(op, bias, x, weight)
    _next(op, x, weight, weight2, gated=gated)


def _product(op: str, x: Tensor, weight: Weight) -> None:
    checks.check_floating(op, "x", x)
    if weight.scale is not None and x.dtype == torch.float64:
        checks.fail(op, "x", "dtype float32, float16 or bfloat16", "float64")
    if x.dim() < 1:
        checks.fail(op, "x", "at least 1 dimension", 0)
    check_weight(op, weight, "x", x, x.shape[-1], "the last dimension of x")


def _next(op: str, x: Tensor, before: Weight, weight: Weight, *, gated: bool = False) -> None:
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
            checks.fail(op, name, "dtype int8", str(tensor.dtype).removeprefix("torch."))
        checks.check_device(op, name, tensor, like_name, like)
    if tensor.dim() != 2 or tensor.shape[0] != rows:
        checks.fail(op, name, f"shape [{rows}, any] ({which})", list(tensor.shape))
    if scale is not None:
        check_scale(op, scale_name, scale, name, tensor)


def _bias(op: str, bias: Tensor, x: Tensor, weight: Weight) -> None:
    checks.check_like(op, "bias", bias, "x", x)
    checks.check_row(op, "bias", bias, weight.name, weight.tensor)
