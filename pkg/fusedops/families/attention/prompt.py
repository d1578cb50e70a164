"""Attention of a prompt: every token attends to those before it, by PyTorch's fused attention."""

import math

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from fusedops import checks
from fusedops.arithmetic import without_autocast
from fusedops.families.attention.step import check_alibi, check_mask

_SCORES_LOST = -1e8
"""Beside this a number of float32 is 8 from the next: scores of attention are not seen."""


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
    if attn_mask.dtype == torch.bool:
        keep = attn_mask
    else:
        keep = attn_mask != -math.inf
        q, attn_mask = _in_range(q, attn_mask)
    result = F.scaled_dot_product_attention(q, k, v, attn_mask=attn_mask, scale=scale)
    if mask is not None:
        result = result.masked_fill(~keep.any(-1, keepdim=True), 0)
    return result.transpose(1, 2).flatten(2)


def _in_range(q: Tensor, added: Tensor) -> tuple[Tensor, Tensor]:
    """The queries, and a float32 mask in their dtype.

    Too low a number would become -inf: in 16 bits, and in a fused kernel that multiplies it by
    log2(e). A row of such numbers is moved up, which changes no softmax. Where the numbers are so
    low that float32 loses the row's scores beside them, as a decode step does, the queries become
    0.
    """
    least = torch.finfo(q.dtype).min
    top = added.amax(-1, keepdim=True)
    low = (top < max(least, _SCORES_LOST)) & (top != -math.inf)
    dropped = added == -math.inf
    added = torch.where(low, added - top, added).clamp(min=least)
    return q.masked_fill(low & (top < _SCORES_LOST), 0), added.masked_fill(dropped, -math.inf).to(
        q.dtype
    )


def _attn_mask(
    q: Tensor, mask: Tensor | None, alibi: Tensor | None, *, causal: bool, window: int
) -> Tensor:
    """The mask of PyTorch's attention: booleans, or a summand of the scores in float32."""
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
    return added.float().masked_fill(~keep, -math.inf)
