"""dequantize in plain PyTorch."""

import torch
from torch import Tensor


def dequantize(weight: Tensor, scale: Tensor, *, dtype: torch.dtype) -> Tensor:
    """Integers times the scale of their group of rows."""
    values = weight if weight.dtype == torch.int8 else unpacked(weight)
    by_row = scale.repeat_interleave(weight.shape[0] // scale.shape[0])
    return (values.float() * by_row[:, None]).to(dtype).contiguous()


def unpacked(weight: Tensor) -> Tensor:
    """The two values of each byte, from bits 0-3 and 4-7, in two's complement."""
    pairs = torch.stack([weight & 15, weight >> 4], -1).flatten(-2)
    return (pairs ^ 8).to(torch.int8) - 8
