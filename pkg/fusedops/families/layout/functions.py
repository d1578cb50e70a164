"""The layout operators as called."""

from typing import cast

from torch import Tensor

from fusedops.call import call, ops


def add_padding(x: Tensor) -> Tensor:
    """Append zeros to heads, up to 32, 64 or 128 elements, whichever is the next.

    For attention kernels that are made for those sizes. Scores of padded queries and keys are those
    of the plain ones. Differentiable in `x`.

    Args:
        x: Shape [..., D], at least one dimension, D at most 128; float32, float16, bfloat16 or
            float64. Read where it lies if its dimensions before the last two have one stride, e.g.
            q of a packed qkv tensor as [B, S, H, D]; else copied.

    Returns:
        A new contiguous tensor [..., Dp] of the dtype of `x`.

    Raises:
        ValueError: `x` is not as above (RuntimeError from a native kernel).
    """
    return cast("Tensor", call(ops.add_padding, x))


def pad_transform(x: Tensor, *, heads: int) -> Tensor:
    """Part a projection into heads, each padded with zeros as add_padding does, before the tokens.

    One pass instead of view, pad, transpose and contiguous. Differentiable in `x`.

    Args:
        x: Shape [B, S, heads * D], D at most 128; float32, float16, bfloat16 or float64. Read where
            it lies if its elements along the last dimension are neighbours, e.g. a third of a
            packed qkv tensor; else copied.
        heads: H, how many heads a token has.

    Returns:
        A new contiguous tensor [B, H, S, Dp] of the dtype of `x`, Dp being 32, 64 or 128.

    Raises:
        ValueError: An argument is not as above (RuntimeError from a native kernel).
    """
    return cast("Tensor", call(ops.pad_transform, x, heads=heads))
