"""What a decode step demands, in the native library's order and words."""

import torch
from torch import Tensor

from fusedops import checks, masks
from fusedops.cache_sizes import MOST_HEAD_DIM, counters_of, row_of
from fusedops.families.rotary.checks import check_style, check_theta


def softmax_context_step(
    qkv: Tensor,
    mask: Tensor | None,
    alibi: Tensor | None,
    keys: Tensor,
    values: Tensor,
    positions: Tensor,
    counters: Tensor,
    partials: Tensor,
    out: Tensor,
    *,
    heads: int,
    kv_heads: int,
    scale: float,  # noqa: ARG001
    rotary_dim: int = 0,
    rotary_style: str = "half",
    theta: float = 10000.0,
    window: int = 0,
    advance: bool = False,  # noqa: ARG001
) -> None:
    """A token of each sequence, a layer's cache, and the memory to work with."""
    op = "softmax_context_step"
    head_dim = check_qkv(op, qkv, heads, kv_heads)
    batch, tokens, _ = qkv.shape
    if tokens != 1:
        checks.fail(op, "qkv", "1 token of each sequence", tokens)
    check_rotary(op, head_dim, rotary_dim, rotary_style, theta)
    masks.check_window(op, window)
    if mask is not None:
        check_mask(op, mask, qkv, heads)
    if alibi is not None:
        check_alibi(op, alibi, qkv, heads)
    row = row_of(head_dim, qkv.dtype)
    checks.check_like(op, "keys", keys, "qkv", qkv)
    _shape(op, "keys", keys, (batch, kv_heads, 0, row))
    checks.check_alike(op, "values", values, "keys", keys)
    _state(op, "positions", positions, torch.int32, qkv, batch)
    least = counters_of(batch, heads, kv_heads)
    _state(op, "counters", counters, torch.int32, qkv, least)
    _state(op, "partials", partials, torch.float32, qkv, 0)
    checks.check_like(op, "out", out, "qkv", qkv)
    if out.shape != (batch, 1, heads * head_dim):
        expected = f"shape [{batch}, 1, {heads * head_dim}]"
        checks.fail(op, "out", expected, list(out.shape))
    written = {"keys": keys, "values": values, "positions": positions}
    written |= {"counters": counters, "partials": partials, "out": out}
    for name, tensor in written.items():
        if not tensor.is_contiguous():
            checks.fail(op, name, "a contiguous tensor", f"strides {list(tensor.stride())}")


def check_qkv(op: str, qkv: Tensor, heads: int, kv_heads: int) -> int:
    """Rows of the heads of q, k and v; gives the size of a head."""
    if qkv.dtype not in checks.UP_TO_32_BITS:
        checks.fail(op, "qkv", "dtype float32, float16 or bfloat16", checks.dtype_name(qkv.dtype))
    if kv_heads < 1 or heads < 1 or heads % kv_heads != 0:
        checks.fail(op, "heads", f"a multiple of {kv_heads} (kv_heads)", heads)
    packed = heads + 2 * kv_heads
    if qkv.dim() != 3 or qkv.shape[2] == 0 or qkv.shape[2] % packed != 0:
        expected = f"shape [B, S, a multiple of {packed}] (heads of q, k and v)"
        checks.fail(op, "qkv", expected, list(qkv.shape))
    head_dim = qkv.shape[2] // packed
    if head_dim > MOST_HEAD_DIM:
        checks.fail(op, "qkv", f"heads of at most {MOST_HEAD_DIM}", head_dim)
    return head_dim


def check_rotary(op: str, head_dim: int, rotary_dim: int, style: str, theta: float) -> None:
    """What of a head turns, and how."""
    check_style(op, "rotary_style", style)
    if rotary_dim < 0 or rotary_dim > head_dim or rotary_dim % 2 != 0:
        expected = f"an even number up to {head_dim} (the size of a head)"
        checks.fail(op, "rotary_dim", expected, rotary_dim)
    check_theta(op, theta)


def check_mask(op: str, mask: Tensor, qkv: Tensor, heads: int) -> None:
    """An encoder's mask [B, L], or a decoder's [B, S, L] or [B, H, S, L]; any size may be 1."""
    batch, tokens, _ = qkv.shape
    masks.check_mask(op, mask, "qkv", qkv, (batch, heads, tokens, None))


def check_alibi(op: str, alibi: Tensor, qkv: Tensor, heads: int) -> None:
    """A slope a head."""
    masks.check_added(op, "alibi", alibi, "qkv", qkv)
    if alibi.shape != (heads,):
        checks.fail(op, "alibi", f"shape [{heads}] (a slope a head)", list(alibi.shape))


def _shape(op: str, name: str, tensor: Tensor, least: tuple[int, int, int, int]) -> None:
    """[at least B, kv_heads, any, row]."""
    batch, kv_heads, _, row = least
    if (
        tensor.dim() != 4
        or tensor.shape[0] < batch
        or tensor.shape[1] != kv_heads
        or tensor.shape[3] != row
    ):
        expected = f"shape [{batch} or more, {kv_heads}, tokens, {row}]"
        checks.fail(op, name, expected, list(tensor.shape))


def _state(
    op: str, name: str, tensor: Tensor, dtype: torch.dtype, like: Tensor, least: int
) -> None:
    """One dimension of at least so many elements."""
    if tensor.dtype != dtype:
        checks.fail(op, name, f"dtype {checks.dtype_name(dtype)}", checks.dtype_name(tensor.dtype))
    checks.check_device(op, name, tensor, "qkv", like)
    if tensor.dim() != 1 or tensor.shape[0] < least:
        checks.fail(op, name, f"shape [{least} or more]", list(tensor.shape))
