"""Masked softmax in plain PyTorch."""

import math

import torch
from torch import Tensor

from fusedops.masks import aligned
from fusedops.widths import narrow, widen


def softmax(
    scores: Tensor,
    mask: Tensor | None = None,
    alibi: Tensor | None = None,
    *,
    causal: bool = False,
    window: int = 0,
    scale: float = 1.0,
    head_offset: int = 0,
    mp_size: int = 1,  # noqa: ARG001 - it tells how many heads alibi has
) -> Tensor:
    """Zeros for rows that keep nothing."""
    if scores.numel() == 0:
        return scores.new_empty(scores.shape)
    queries, keys = scores.shape[2:]
    own = torch.arange(queries, device=scores.device)[:, None] + (keys - queries)
    place = torch.arange(keys, device=scores.device)
    z = widen(scores) * scale
    if alibi is not None:
        biases = alibi[head_offset : head_offset + scores.shape[1]].to(z.dtype)
        z = z + _biases(biases, place - (own.clamp(max=keys - 1) if causal else keys - 1))
    if mask is not None:
        mask = aligned(mask)
        z = z.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else z + widen(mask)
    if causal:
        z = z.masked_fill(place > own, -math.inf)
    if window > 0:
        z = z.masked_fill(place <= own - window, -math.inf)
    nothing = (z == -math.inf).all(-1, keepdim=True)
    return narrow(torch.softmax(z, -1).masked_fill(nothing, 0), scores)


def softmax_backward(grad: Tensor, y: Tensor, *, scale: float = 1.0) -> Tensor:
    """Scale y (grad - sum of grad y)."""
    g, wide = widen(grad), widen(y)
    return narrow(scale * wide * (g - (g * wide).sum(-1, keepdim=True)), grad)


def _biases(alibi: Tensor, from_last: Tensor) -> Tensor:
    """What alibi adds; with slopes, less a constant of the row, so that the numbers stay small."""
    if alibi.dim() == 1:
        return alibi[:, None, None] * from_last
    return alibi[:, None]
