"""A decode step of attention: its tensors, and what it computes, in float64."""

import math

import torch
from torch import Tensor

import fusedops
from cases.rotary import rotate


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    scale: float,
    mask: Tensor | None = None,
    alibi: Tensor | None = None,
    causal: bool = True,
    window: int = 0,
) -> Tensor:
    """Queries [B, S, H, D], the last of the keys and values [B, L, Hkv, D], a head at a time."""
    batch, tokens, heads, _ = q.shape
    length, group = k.shape[1], heads // k.shape[2]
    out = torch.zeros_like(q)
    own = torch.arange(length - tokens, length, device=q.device)[:, None]
    places = torch.arange(length, device=q.device)
    for b in range(batch):
        for h in range(heads):
            z = q[b, :, h] @ k[b, :, h // group].T * scale
            if alibi is not None:
                z = z + alibi[h] * (places - own)
            dropped = torch.zeros_like(z, dtype=torch.bool)
            if causal:
                dropped |= places > own
            if window > 0:
                dropped |= places <= own - window
            if mask is not None:
                full = mask[:, None, None] if mask.dim() == 2 else mask
                full = full[:, None] if full.dim() == 3 else full
                row = full.expand(batch, heads, tokens, -1)[b, h, :, :length]
                dropped |= ~row if row.dtype == torch.bool else row == -math.inf
                if row.dtype != torch.bool:
                    z = z + row
            z = z.masked_fill(dropped, -math.inf)
            weights = (z - z.amax(-1, keepdim=True).nan_to_num(neginf=0)).exp()
            total = weights.sum(-1, keepdim=True)
            out[b, :, h] = weights / total.masked_fill(total == 0, 1) @ v[b, :, h // group]
    return out.flatten(2)


def heads_of(qkv: Tensor, heads: int, kv_heads: int) -> tuple[Tensor, Tensor, Tensor]:
    """[B, S, heads, D] of q, k and v, in float64."""
    q, k, v = (
        qkv.double().unflatten(-1, (heads + 2 * kv_heads, -1)).split([heads, kv_heads, kv_heads], 2)
    )
    return q, k, v


def exact(qkv: Tensor, heads: int, kv_heads: int, dtype: torch.dtype, **how: object) -> Tensor:
    """Attention of all tokens of qkv [B, L, ...]; keys are held in `dtype`."""
    q, k, v = heads_of(qkv, heads, kv_heads)
    rotary_dim = how.pop("rotary_dim", 0)
    interleaved = how.pop("rotary_style", "half") == "interleaved"
    theta = how.pop("theta", 10000.0)
    if rotary_dim:
        at = torch.arange(qkv.shape[1], device=qkv.device)[None]
        q, k = (rotate(one, at, rotary_dim, interleaved=interleaved, theta=theta) for one in (q, k))
        k = k.to(dtype).double()
    how.setdefault("scale", q.shape[-1] ** -0.5)
    return attention(q, k, v, **how)


def _step(device: torch.device) -> tuple[tuple[Tensor | None, ...], dict[str, object]]:
    workspace = fusedops.Workspace(96, 4, 2, 1, 2, 20, torch.float32, device)
    memory = workspace.memory
    for cache in (memory.keys[0], memory.values[0]):
        cache.copy_(torch.randn(cache.shape))
    memory.positions.copy_(torch.tensor([7, 12]))
    memory.partials.zero_()
    args = (
        torch.randn(2, 1, 8 * 24, device=device),
        torch.randn(2, 14, device=device),
        torch.rand(4, device=device),
        memory.keys[0],
        memory.values[0],
        memory.positions,
        memory.counters,
        memory.partials,
        memory.context,
    )
    return args, {"heads": 4, "kv_heads": 2, "scale": 0.2, "rotary_dim": 24, "advance": True}


PRIVATE = {"softmax_context_step": _step}
