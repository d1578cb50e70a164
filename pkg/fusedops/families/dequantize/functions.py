"""dequantize as called."""

from typing import cast

import torch
from torch import Tensor


def dequantize(weight: Tensor, scale: Tensor, *, dtype: torch.dtype = torch.float16) -> Tensor:
    """Multiply integers by the scale of their group of rows.

    Element [r, c] of the result is weight[r, c] * scale[r // (R / groups)], computed in float32 and
    rounded once to `dtype`. `quantize` makes such weights. There is no gradient.

    Args:
        weight: int8 [R, C], or 4-bit values two a byte, uint8 [R, C / 2]: element 2j in bits 0-3 of
            byte j, 2j + 1 in bits 4-7, each -8 to 7 in two's complement.
        scale: float32 [groups], groups a divisor of R; on the device of `weight`.
        dtype: Of the result: float16, bfloat16 or float32.

    Returns:
        A new contiguous tensor [R, C].

    Raises:
        ValueError: An argument is not as above (RuntimeError from a native kernel).
    """
    return cast("Tensor", torch.ops.fusedops.dequantize(weight, scale, dtype=dtype))


def dequantize_fp32(weight: Tensor, scale: Tensor) -> Tensor:
    """Dequantize to float32."""
    return dequantize(weight, scale, dtype=torch.float32)


def dequantize_fp16(weight: Tensor, scale: Tensor) -> Tensor:
    """Dequantize to float16."""
    return dequantize(weight, scale, dtype=torch.float16)


def dequantize_bf16(weight: Tensor, scale: Tensor) -> Tensor:
    """Dequantize to bfloat16."""
    return dequantize(weight, scale, dtype=torch.bfloat16)
