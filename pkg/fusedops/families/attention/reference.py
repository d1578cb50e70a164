"""A decode step in plain PyTorch."""

import math

import torch
from torch import Tensor

from fusedops.families.rotary.reference import apply_rotary_pos_emb
from fusedops.masks import aligned
from fusedops.widths import widen


def softmax_context_step(
    qkv: Tensor,
    mask: Tensor | None,
    alibi: Tensor | None,
    keys: Tensor,
    values: Tensor,
    positions: Tensor,
    counters: Tensor,  # noqa: ARG001
    partials: Tensor,  # noqa: ARG001
    out: Tensor,
    *,
    heads: int,
    kv_heads: int,
    scale: float,
    rotary_dim: int = 0,
    rotary_style: str = "half",
    theta: float = 10000.0,
    window: int = 0,
    advance: bool = False,
) -> None:
    """Append a token of each sequence, and attend to the whole cache. No host synchronisation."""
    batch, capacity = qkv.shape[0], keys.shape[2]
    at = positions[:batch].long()
    fits = (at >= 0) & (at < capacity)
    q, k, v = split(qkv, heads, kv_heads)
    if rotary_dim > 0:
        q, k = apply_rotary_pos_emb(
            q, k, at, rotary_dim=rotary_dim, style=rotary_style, theta=theta
        )
    for cache, new in ((keys, k), (values, v)):
        _append(cache, new[:, 0], at.clamp(0, capacity - 1), fits)
    places = torch.arange(capacity, device=qkv.device)
    kept = places <= at[:, None]
    if window > 0:
        kept &= places > at[:, None] - window
    grouped = widen(q[:, 0]).unflatten(1, (kv_heads, -1))
    dim = q.shape[-1]
    scores = torch.einsum("bkgd,bktd->bkgt", grouped, widen(keys[:batch, ..., :dim])).flatten(1, 2)
    z = scores * scale
    if alibi is not None:
        z = z + widen(alibi)[:, None] * (places - at[:, None])[:, None]
    weights = _softmax(_masked(z, mask, kept[:, None]))
    # What lies where there is no token may be NaN.
    there = widen(values[:batch, ..., :dim]).masked_fill(~kept[:, None, :, None], 0)
    found = torch.einsum("bkgt,bktd->bkgd", weights.unflatten(1, (kv_heads, -1)), there)
    found = found.masked_fill(~fits[:, None, None, None], math.nan)
    out.copy_(found.reshape(out.shape))
    if advance:
        positions[:batch] += fits


def split(qkv: Tensor, heads: int, kv_heads: int) -> tuple[Tensor, Tensor, Tensor]:
    """The heads of q, k and v, each [B, S, heads, D]; views."""
    rows = qkv.unflatten(2, (heads + 2 * kv_heads, -1))
    q, k, v = rows.split((heads, kv_heads, kv_heads), 2)
    return q, k, v


def _append(cache: Tensor, new: Tensor, at: Tensor, fits: Tensor) -> None:
    batch = torch.arange(new.shape[0], device=new.device)
    old = cache[batch, :, at, : new.shape[-1]]
    cache[batch, :, at, : new.shape[-1]] = torch.where(fits[:, None, None], new, old)


def _masked(z: Tensor, mask: Tensor | None, kept: Tensor) -> Tensor:
    """Scores [B, H, capacity] with the mask added, and -inf for what is dropped."""
    if mask is not None:
        mask = aligned(mask)[:, :, 0]
        count = min(mask.shape[-1], z.shape[-1]) if mask.shape[-1] > 1 else z.shape[-1]
        some, rest = z[..., :count], z[..., count:]
        if mask.dtype == torch.bool:
            some = some.masked_fill(~mask[..., :count], -math.inf)
        else:
            added = mask[..., :count].float()
            some = (some + added).masked_fill(added == -math.inf, -math.inf)
        z = torch.cat([some, rest], -1)
    return z.masked_fill(~kept, -math.inf)


def _softmax(z: Tensor) -> Tensor:
    """Zeros for rows that keep nothing."""
    top = z.amax(-1, keepdim=True)
    weights = torch.exp(z - top.masked_fill(top == -math.inf, 0))
    total = weights.sum(-1, keepdim=True)
    return weights / total.masked_fill(total == 0, 1)
