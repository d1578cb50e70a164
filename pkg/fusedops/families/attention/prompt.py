"""A prompt: every token attends to those before it, by PyTorch's own fused attention."""

import math

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from fusedops.masks import aligned


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    alibi: Tensor | None,
    *,
    scale: float,
    causal: bool,
    window: int,
) -> Tensor:
    """Attention of queries [B, S, H, D] over keys and values [B, S, Hkv, D]: [B, S, H * D]."""
    q, k, v = (heads.transpose(1, 2) for heads in (q, k, v))
    tokens, group = q.shape[2], q.shape[1] // k.shape[1]
    if mask is None and alibi is None and not 0 < window < tokens:
        found = F.scaled_dot_product_attention(
            q, k, v, is_causal=causal, scale=scale, enable_gqa=group > 1
        )
        return found.transpose(1, 2).flatten(2)
    if group > 1:  # with a mask torch has no fused attention for shared heads
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    beside = _beside(q, mask, alibi, causal=causal, window=window)
    found = F.scaled_dot_product_attention(q, k, v, attn_mask=beside, scale=scale)
    if mask is not None:
        kept = beside if beside.dtype == torch.bool else beside != -math.inf
        found = found.masked_fill(~kept.any(-1, keepdim=True), 0)
    return found.transpose(1, 2).flatten(2)


def _beside(
    q: Tensor, mask: Tensor | None, alibi: Tensor | None, *, causal: bool, window: int
) -> Tensor:
    """What is added to the scores in the dtype of `q`, or which of them are kept."""
    places = torch.arange(q.shape[2], device=q.device)
    before = places[:, None] - places  # how far a key lies before a query
    kept = torch.ones_like(before, dtype=torch.bool)
    if causal:
        kept = before >= 0
    if window > 0:
        kept = kept & (before < window)
    added = None
    if alibi is not None:
        added = -alibi.float()[:, None, None] * before
    if mask is not None:
        mask = aligned(mask)
        if mask.dtype == torch.bool:
            kept = kept & mask
        else:
            added = mask if added is None else added + mask
    if added is None:
        return kept
    return added.masked_fill(~kept, -math.inf).to(q.dtype)
