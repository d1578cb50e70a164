"""The rotary operators in plain PyTorch."""

import math
from functools import partial
from typing import Any

import torch
from torch import Tensor

from fusedops.widths import narrow, widen


def _turned_both(
    direction: int,
    q: Tensor,
    k: Tensor,
    positions: Tensor | None = None,
    *,
    rotary_dim: int,
    offset: int = 0,
    style: str = "half",
    theta: float = 10000.0,
) -> tuple[Tensor, Tensor]:
    """Queries and keys turned by the angles of their positions, forth (1) or back (-1)."""
    angles = direction * _angles(q, positions, rotary_dim, offset, theta)
    return _turned(q, angles, style), _turned(k, angles, style)


apply_rotary_pos_emb = partial(_turned_both, 1)
# A turn's transpose is its inverse.
apply_rotary_pos_emb_backward = partial(_turned_both, -1)


def apply_rotary_pos_emb_(
    q: Tensor,
    k: Tensor,
    positions: Tensor | None = None,
    **options: Any,  # noqa: ANN401 - as above
) -> None:
    """The same, into q and k."""
    for heads, turned in zip((q, k), apply_rotary_pos_emb(q, k, positions, **options), strict=True):
        heads.copy_(turned)


def _angles(
    q: Tensor, positions: Tensor | None, rotary_dim: int, offset: int, theta: float
) -> Tensor:
    """Of every pair at every position [B or 1, S, 1, rotary_dim / 2], in float64."""
    count = torch.arange(q.shape[1], dtype=torch.float64, device=q.device)
    if positions is None:
        at = count[None]
    else:
        at = positions.double() if positions.dim() == 2 else positions.double()[:, None] + count
    pairs = torch.arange(rotary_dim // 2, dtype=torch.float64, device=q.device)
    frequencies = torch.exp2(pairs * (-2 * math.log2(theta) / rotary_dim))
    return ((at + offset)[..., None] * frequencies)[:, :, None]


def _turned(heads: Tensor, angles: Tensor, style: str) -> Tensor:
    wide = widen(heads)
    cos, sin = angles.cos().to(wide.dtype), angles.sin().to(wide.dtype)
    rotary_dim = 2 * angles.shape[-1]
    turning, rest = wide[..., :rotary_dim], wide[..., rotary_dim:]
    if style == "half":
        a, b = turning.chunk(2, -1)
        turned = torch.cat([a * cos - b * sin, b * cos + a * sin], -1)
    else:
        a, b = turning[..., 0::2], turning[..., 1::2]
        turned = torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2)
    return narrow(torch.cat([turned, rest], -1), heads)
