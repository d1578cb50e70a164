"""Weights to integers, in plain PyTorch: done once, when a model is prepared."""

import torch
from torch import Tensor

from fusedops import checks

_MOST = {8: 127, 4: 7}


def quantize(weight: Tensor, groups: int, *, bits: int = 8) -> tuple[Tensor, Tensor]:
    """Round a matrix to integers times a scale for each group of rows, for dequantize to undo.

    Symmetric, to the nearest: scale = max |weight| of the group / most and value = round(weight /
    scale), where most is 127 for 8 bits and 7 for 4. So an element is off by half a scale at most.

    Args:
        weight: Shape [R, C], finite numbers of any floating type. For 4 bits C must be even.
        groups: How many equal groups of neighbouring rows have a scale each; a divisor of R.
        bits: 8, or 4 for two values a byte.

    Returns:
        The integers, int8 [R, C] or for 4 bits uint8 [R, C / 2] (element 2j in bits 0-3 of byte j,
        2j + 1 in bits 4-7, two's complement), and the scales, float32 [groups].

    Raises:
        ValueError: An argument is not as above.
    """
    op = "quantize"
    if bits not in _MOST:
        checks.fail(op, "bits", "8 or 4", bits)
    checks.check_floating(op, "weight", weight)
    if weight.dim() != 2:
        checks.fail(op, "weight", "2 dimensions", list(weight.shape))
    rows, cols = weight.shape
    if groups < 1 or rows % groups != 0:
        checks.fail(op, "groups", f"a divisor of {rows} (the rows of weight)", groups)
    if bits == 4 and cols % 2 != 0:
        checks.fail(op, "weight", "an even number of columns for 4 bits", cols)
    parts = weight.detach().float().reshape(groups, rows // groups * cols)
    scale = parts.abs().amax(1) / _MOST[bits] if parts.shape[1] else parts.new_zeros(groups)
    by = torch.where(scale > 0, scale, 1)[:, None]
    values = (parts / by).round().to(torch.int8).reshape(rows, cols)
    return (values if bits == 8 else _packed(values)), scale


def _packed(values: Tensor) -> Tensor:
    rows, cols = values.shape
    low, high = (values & 15).view(torch.uint8).reshape(rows, cols // 2, 2).unbind(-1)
    return low | (high << 4)
