"""Integer weights with a scale for each group of rows: to integers, and back."""

from typing import cast

import torch
from torch import Tensor

from fusedops import checks
from fusedops.call import call, ops
from fusedops.kinds import check_kind
from fusedops.op import Op

__all__ = ["dequantize", "dequantize_bf16", "dequantize_fp16", "dequantize_fp32", "quantize"]

_LARGEST = {8: 127, 4: 7}  # value, by bits


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
        ValueError: An argument is not as above.
    """
    return cast("Tensor", call(ops.dequantize, weight, scale, dtype=dtype))


def dequantize_fp32(weight: Tensor, scale: Tensor) -> Tensor:
    """Dequantize to float32."""
    return dequantize(weight, scale, dtype=torch.float32)


def dequantize_fp16(weight: Tensor, scale: Tensor) -> Tensor:
    """Dequantize to float16."""
    return dequantize(weight, scale, dtype=torch.float16)


def dequantize_bf16(weight: Tensor, scale: Tensor) -> Tensor:
    """Dequantize to bfloat16."""
    return dequantize(weight, scale, dtype=torch.bfloat16)


def _check_dequantize(op: str, weight: Tensor, scale: Tensor, *, dtype: torch.dtype) -> None:
    if dtype not in checks.UP_TO_32_BITS:
        checks.fail(op, "dtype", "float32, float16 or bfloat16", checks.dtype_name(dtype))
    if weight.dtype not in (torch.int8, torch.uint8):
        expected = "dtype int8 (a value a byte) or uint8 (two)"
        checks.fail(op, "weight", expected, checks.dtype_name(weight.dtype))
    if weight.dim() != 2:
        checks.fail(op, "weight", "2 dimensions", list(weight.shape))
    check_scale(op, "scale", scale, "weight", weight)


def check_scale(op: str, name: str, scale: Tensor, weight_name: str, weight: Tensor) -> None:
    """`scale` must have an element for each of some equal groups of the weight's rows."""
    if scale.dtype != torch.float32:
        checks.fail(op, name, "dtype float32", checks.dtype_name(scale.dtype))
    checks.check_device(op, name, scale, weight_name, weight)
    rows = weight.shape[0]
    if scale.dim() != 1 or scale.shape[0] < 1 or rows % scale.shape[0] != 0:
        expected = f"shape [groups] with a divisor of {rows} (the rows of {weight_name})"
        checks.fail(op, name, expected, list(scale.shape))


def dequantize_reference(weight: Tensor, scale: Tensor, *, dtype: torch.dtype) -> Tensor:
    """Integers times the scale of their group of rows."""
    values = weight if weight.dtype == torch.int8 else _unpack(weight)
    row_scale = scale.repeat_interleave(weight.shape[0] // scale.shape[0])
    return (values.float() * row_scale[:, None]).to(dtype).contiguous()


def _unpack(weight: Tensor) -> Tensor:
    """The two values of each byte, from bits 0-3 and 4-7, in two's complement."""
    pairs = torch.stack([weight & 15, weight >> 4], -1).flatten(-2)
    return (pairs ^ 8).to(torch.int8) - 8


def _dequantize_result(weight: Tensor, scale: Tensor, *, dtype: torch.dtype) -> Tensor:
    del scale
    rows, cols = weight.shape
    return weight.new_empty((rows, cols if weight.dtype == torch.int8 else 2 * cols), dtype=dtype)


OPS = (
    Op(
        "dequantize(Tensor weight, Tensor scale, *, ScalarType dtype) -> Tensor",
        check=_check_dequantize,
        reference=dequantize_reference,
        result=_dequantize_result,
        rows=(),
        public=False,  # the entry points above are by the type of the result
    ),
)


def quantize(weight: Tensor, groups: int, *, bits: int = 8) -> tuple[Tensor, Tensor]:
    """Round a matrix to integers times a scale for each group of rows, for dequantize to undo.

    Symmetric, to the nearest: scale = max abs(weight) of the group / most and value =
    round(weight / scale), where most is 127 for 8 bits and 7 for 4. So an element is off by half a
    scale at most.

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
    if bits not in _LARGEST:
        checks.fail(op, "bits", "8 or 4", bits)
    check_kind(op, "weight", weight)
    checks.check_floating(op, "weight", weight)
    if weight.dim() != 2:
        checks.fail(op, "weight", "2 dimensions", list(weight.shape))
    rows, cols = weight.shape
    if groups < 1 or rows % groups != 0:
        checks.fail(op, "groups", f"a divisor of {rows} (the rows of weight)", groups)
    if bits == 4 and cols % 2 != 0:
        checks.fail(op, "weight", "an even number of columns for 4 bits", cols)
    parts = weight.detach().float().reshape(groups, rows // groups * cols)
    scale = parts.abs().amax(1) / _LARGEST[bits] if parts.shape[1] else parts.new_zeros(groups)
    by = torch.where(scale > 0, scale, 1)[:, None]
    values = (parts / by).round().to(torch.int8).reshape(rows, cols)
    return (values if bits == 8 else _pack(values)), scale


def _pack(values: Tensor) -> Tensor:
    rows, cols = values.shape
    low, high = (values & 15).view(torch.uint8).reshape(rows, cols // 2, 2).unbind(-1)
    return low | (high << 4)
