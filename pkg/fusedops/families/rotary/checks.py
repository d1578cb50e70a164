"""What the rotary operators demand, in the native library's order and words."""

import math
from functools import partial
from typing import Any

import torch
from torch import Tensor

from fusedops import checks


def check_style(op: str, argument: str, style: str) -> None:
    """Which elements of a head turn together."""
    if style not in ("half", "interleaved"):
        checks.fail(op, argument, "'half' or 'interleaved'", repr(style))


def check_theta(op: str, theta: float) -> None:
    """The base of the frequencies."""
    if not (theta > 0 and math.isfinite(theta)):
        checks.fail(op, "theta", "a positive finite number", f"{theta:g}")


def _rotary(
    op: str,
    q_name: str,
    k_name: str,
    q: Tensor,
    k: Tensor,
    positions: Tensor | None = None,
    *,
    rotary_dim: int,
    offset: int = 0,  # noqa: ARG001
    style: str = "half",
    theta: float = 10000.0,
) -> None:
    """Heads of queries and keys, or their gradients, at the same positions."""
    check_style(op, "style", style)
    checks.check_floating(op, q_name, q)
    if q.dim() != 4:
        checks.fail(op, q_name, "shape [B, S, H, D]", list(q.shape))
    checks.check_like(op, k_name, k, q_name, q)
    batch, tokens, _, head_dim = q.shape
    if k.dim() != 4 or (k.shape[0], k.shape[1], k.shape[3]) != (batch, tokens, head_dim):
        expected = f"shape [{batch}, {tokens}, heads, {head_dim}] (that of {q_name}, any heads)"
        checks.fail(op, k_name, expected, list(k.shape))
    if rotary_dim < 2 or rotary_dim > head_dim or rotary_dim % 2 != 0:
        expected = f"an even number from 2 to {head_dim} (the last dimension of {q_name})"
        checks.fail(op, "rotary_dim", expected, rotary_dim)
    check_theta(op, theta)
    if positions is not None:
        _positions(op, positions, q_name, q)


apply_rotary_pos_emb = partial(_rotary, "apply_rotary_pos_emb", "q", "k")
apply_rotary_pos_emb_backward = partial(
    _rotary, "apply_rotary_pos_emb_backward", "grad_q", "grad_k"
)


def apply_rotary_pos_emb_(
    q: Tensor,
    k: Tensor,
    positions: Tensor | None = None,
    **options: Any,  # noqa: ANN401 - as above
) -> None:
    """Heads that can be written where they lie."""
    op = "apply_rotary_pos_emb_"
    _rotary(op, "q", "k", q, k, positions, **options)
    for name, heads in (("q", q), ("k", k)):
        _writable(op, name, heads)


def _positions(op: str, positions: Tensor, q_name: str, q: Tensor) -> None:
    if positions.dtype not in (torch.int32, torch.int64):
        found = checks.dtype_name(positions.dtype)
        checks.fail(op, "positions", "dtype int32 or int64", found)
    checks.check_device(op, "positions", positions, q_name, q)
    batch, tokens = q.shape[0], q.shape[1]
    shape = tuple(positions.shape)
    if shape not in ((batch,), (batch, tokens), (1, tokens)):
        expected = f"shape [{batch}], [{batch}, {tokens}] or [1, {tokens}]"
        checks.fail(op, "positions", expected, list(shape))


def _writable(op: str, name: str, heads: Tensor) -> None:
    """Nothing is copied, so a head must be one run of memory, and no other's."""
    strides = list(heads.stride())
    if heads.shape[-1] > 1 and strides[-1] != 1:
        expected = "neighbouring elements along the last dimension"
        checks.fail(op, name, expected, f"strides {strides}")
    if _overlap(list(heads.shape), strides):
        checks.fail(op, name, "elements that share no memory", f"strides {strides}")


def _overlap(sizes: list[int], strides: list[int]) -> bool:
    """Whether two elements may share memory: a dimension steps over less than those inside it."""
    if 0 in sizes:
        return False
    reach = 1
    for stride, size in sorted(zip(strides, sizes, strict=True)):
        if size > 1 and stride < reach:
            return True
        reach += (size - 1) * stride
    return False
