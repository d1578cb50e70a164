"""Attention of a prompt: every token attends to those before it, by PyTorch's fused attention."""

import math

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from fusedops import checks
from fusedops.arithmetic import without_autocast
from fusedops.families.attention.step import check_alibi, check_mask


def check_prompt(
    op: str, qkv: Tensor, mask: Tensor | None, alibi: Tensor | None, heads: int, window: int
) -> None:
    """The checks that a decode step's operator makes for itself."""
    tokens = qkv.shape[1]
    checks.check_window(op, window)
    if mask is not None:
        check_mask(op, mask, qkv, heads)
        if mask.shape[-1] not in (1, tokens):
            checks.fail(op, "mask", f"a last dimension of {tokens} (keys)", mask.shape[-1])
    if alibi is not None:
        check_alibi(op, alibi, qkv, heads)


@without_autocast
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
        result = F.scaled_dot_product_attention(
            q, k, v, is_causal=causal, scale=scale, enable_gqa=group > 1
        )
        return result.transpose(1, 2).flatten(2)
    if group > 1:  # with a mask torch has no fused attention for shared heads
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    attn_mask = _attn_mask(q, mask, alibi, causal=causal, window=window)
    result = F.scaled_dot_product_attention(q, k, v, attn_mask=attn_mask, scale=scale)
    if mask is not None:
        keep = attn_mask if attn_mask.dtype == torch.bool else attn_mask != -math.inf
        result = result.masked_fill(~keep.any(-1, keepdim=True), 0)
    return result.transpose(1, 2).flatten(2)


def _attn_mask(
    q: Tensor, mask: Tensor | None, alibi: Tensor | None, *, causal: bool, window: int
) -> Tensor:
    """The mask of PyTorch's attention: booleans, or a summand of the scores in the dtype of `q`."""
    positions = torch.arange(q.shape[2], device=q.device)
    distance = positions[:, None] - positions  # of a key before a query
    keep = torch.ones_like(distance, dtype=torch.bool)
    if causal:
        keep = distance >= 0
    if window > 0:
        keep = keep & (distance < window)
    added = None
    if alibi is not None:
        added = -alibi.float()[:, None, None] * distance
    if mask is not None:
        mask = checks.mask_4d(mask)
        if mask.dtype == torch.bool:
            keep = keep & mask
        else:
            added = mask if added is None else added + mask
    if added is None:
        return keep
    return added.masked_fill(~keep, -math.inf).to(q.dtype)
