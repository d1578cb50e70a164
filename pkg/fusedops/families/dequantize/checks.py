"""What dequantize demands, in the native library's order and words."""

import torch
from torch import Tensor

from fusedops import checks


def dequantize(weight: Tensor, scale: Tensor, *, dtype: torch.dtype) -> None:
    """Integers and a scale for each group of their rows."""
    op = "dequantize"
    if dtype not in checks.UP_TO_32_BITS:
        checks.fail(op, "dtype", "float32, float16 or bfloat16", checks.dtype_name(dtype))
    if weight.dtype not in (torch.int8, torch.uint8):
        expected = "dtype int8 (a value a byte) or uint8 (two)"
        checks.fail(op, "weight", expected, checks.dtype_name(weight.dtype))
    if weight.dim() != 2:
        checks.fail(op, "weight", "2 dimensions", list(weight.shape))
    check_scale(op, "scale", scale, "weight", weight)


def check_scale(op: str, name: str, scale: Tensor, weight_name: str, weight: Tensor) -> None:
    """A scale for each of some equal groups of rows."""
    if scale.dtype != torch.float32:
        checks.fail(op, name, "dtype float32", checks.dtype_name(scale.dtype))
    checks.check_device(op, name, scale, weight_name, weight)
    rows = weight.shape[0]
    if scale.dim() != 1 or scale.shape[0] < 1 or rows % scale.shape[0] != 0:
        expected = f"shape [groups] with a divisor of {rows} (the rows of {weight_name})"
        checks.fail(op, name, expected, list(scale.shape))
