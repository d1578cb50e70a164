"""What dequantize demands, in the native library's order and words."""

import torch
from torch import Tensor

from fusedops import checks

RESULTS = (torch.float32, torch.float16, torch.bfloat16)


def dequantize(weight: Tensor, scale: Tensor, *, dtype: torch.dtype) -> None:
    """Integers and a scale for each group of their rows."""
    op = "dequantize"
    if dtype not in RESULTS:
        checks.fail(op, "dtype", "float32, float16 or bfloat16", _plain(dtype))
    if weight.dtype not in (torch.int8, torch.uint8):
        expected = "dtype int8 (a value a byte) or uint8 (two)"
        checks.fail(op, "weight", expected, _plain(weight.dtype))
    if weight.dim() != 2:
        checks.fail(op, "weight", "2 dimensions", list(weight.shape))
    check_scale(op, "scale", scale, "weight", weight)


def check_scale(op: str, name: str, scale: Tensor, weight_name: str, weight: Tensor) -> None:
    """A scale for each of some equal groups of rows."""
    if scale.dtype != torch.float32:
        checks.fail(op, name, "dtype float32", _plain(scale.dtype))
    if scale.device != weight.device:
        checks.fail(op, name, f"device {weight.device} (that of {weight_name})", scale.device)
    rows = weight.shape[0]
    if scale.dim() != 1 or scale.shape[0] < 1 or rows % scale.shape[0] != 0:
        expected = f"shape [groups] with a divisor of {rows} (the rows of {weight_name})"
        checks.fail(op, name, expected, list(scale.shape))


def _plain(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
