"""softmax_context_step: the operator that `softmax_context` calls for a decode step."""

import math

import torch
from torch import Tensor

from fusedops import checks
from fusedops.arithmetic import widen
from fusedops.families.attention.cache import MAX_HEAD_DIM, cache_row, counters_of_step
from fusedops.families.rotary import (
    apply_rotary_pos_emb_reference,
    check_style,
    check_theta,
)
from fusedops.op import Op, no_result


def _check_softmax_context_step(
    op: str,
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
    rotary_dim: int = 0,
    rotary_style: str = "half",
    theta: float = 10000.0,
    window: int = 0,
    **_: object,
) -> None:
    head_dim = check_qkv(op, qkv, heads, kv_heads)
    batch, tokens = qkv.shape[:2]
    if tokens != 1:
        checks.fail(op, "qkv", "1 token of each sequence", tokens)
    check_rotary(op, head_dim, rotary_dim, rotary_style, theta)
    checks.check_window(op, window)
    if mask is not None:
        check_mask(op, mask, qkv, heads)
    if alibi is not None:
        check_alibi(op, alibi, qkv, heads)
    row = cache_row(head_dim, qkv.dtype)
    checks.check_like(op, "keys", keys, "qkv", qkv)
    _check_cache(op, "keys", keys, batch, kv_heads, row)
    checks.check_alike(op, "values", values, "keys", keys)
    _check_state(op, "positions", positions, torch.int32, qkv, batch)
    least = counters_of_step(batch, heads, kv_heads)
    _check_state(op, "counters", counters, torch.int32, qkv, least)
    _check_state(op, "partials", partials, torch.float32, qkv, 0)
    checks.check_like(op, "out", out, "qkv", qkv)
    if out.shape != (batch, 1, heads * head_dim):
        expected = f"shape [{batch}, 1, {heads * head_dim}]"
        checks.fail(op, "out", expected, list(out.shape))
    outputs = {"keys": keys, "values": values, "positions": positions}
    outputs |= {"counters": counters, "partials": partials, "out": out}
    for name, tensor in outputs.items():
        if not tensor.is_contiguous():
            checks.fail(op, name, "a contiguous tensor", f"strides {list(tensor.stride())}")


def softmax_context_step_reference(
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
    q, k, v = split_heads(qkv, heads, kv_heads)
    if rotary_dim > 0:
        q, k = apply_rotary_pos_emb_reference(
            q, k, at, rotary_dim=rotary_dim, style=rotary_style, theta=theta
        )
    for cache, new in ((keys, k), (values, v)):
        _append(cache, new[:, 0], at.clamp(0, capacity - 1), fits)
    key_positions = torch.arange(capacity, device=qkv.device)
    keep = key_positions <= at[:, None]
    if window > 0:
        keep &= key_positions > at[:, None] - window
    grouped = widen(q[:, 0]).unflatten(1, (kv_heads, -1))
    dim = q.shape[-1]
    scores = torch.einsum("bkgd,bktd->bkgt", grouped, widen(keys[:batch, ..., :dim])).flatten(1, 2)
    z = scores * scale
    if alibi is not None:
        z = z + widen(alibi)[:, None] * (key_positions - at[:, None])[:, None]
    weights = _softmax(_add_mask(z, mask, keep[:, None]))
    # The cache beyond the last token may hold NaN.
    tokens = widen(values[:batch, ..., :dim]).masked_fill(~keep[:, None, :, None], 0)
    context = torch.einsum("bkgt,bktd->bkgd", weights.unflatten(1, (kv_heads, -1)), tokens)
    context = context.masked_fill(~fits[:, None, None, None], math.nan)
    out.copy_(context.reshape(out.shape))
    if advance:
        positions[:batch] += fits


OPS = (
    Op(
        "softmax_context_step("
        "Tensor qkv, Tensor? mask, Tensor? alibi, Tensor(a!) keys, Tensor(b!) values, "
        "Tensor(c!) positions, Tensor(d!) counters, Tensor(e!) partials, Tensor(f!) out, *, "
        'int heads, int kv_heads, float scale, int rotary_dim=0, str rotary_style="half", '
        "float theta=10000.0, int window=0, bool advance=False) -> ()",
        check=_check_softmax_context_step,
        reference=softmax_context_step_reference,
        result=no_result,
        public=False,
    ),
)


def split_heads(qkv: Tensor, heads: int, kv_heads: int) -> tuple[Tensor, Tensor, Tensor]:
    """Views of the heads of q, k and v, each [B, S, heads, D]."""
    rows = qkv.unflatten(2, (heads + 2 * kv_heads, -1))
    q, k, v = rows.split((heads, kv_heads, kv_heads), 2)
    return q, k, v


def check_qkv(op: str, qkv: Tensor, heads: int, kv_heads: int) -> int:
    """`qkv` must be rows of the heads of q, k and v. Returns the size of a head."""
    if qkv.dtype not in checks.UP_TO_32_BITS:
        checks.fail(op, "qkv", "dtype float32, float16 or bfloat16", checks.dtype_name(qkv.dtype))
    if kv_heads < 1 or heads < 1 or heads % kv_heads != 0:
        checks.fail(op, "heads", f"a multiple of {kv_heads} (kv_heads)", heads)
    packed = heads + 2 * kv_heads
    if qkv.dim() != 3 or qkv.shape[2] == 0 or qkv.shape[2] % packed != 0:
        expected = f"shape [B, S, a multiple of {packed}] (heads of q, k and v)"
        checks.fail(op, "qkv", expected, list(qkv.shape))
    head_dim = qkv.shape[2] // packed
    if head_dim > MAX_HEAD_DIM:
        checks.fail(op, "qkv", f"heads of at most {MAX_HEAD_DIM}", head_dim)
    return head_dim


def check_rotary(op: str, head_dim: int, rotary_dim: int, style: str, theta: float) -> None:
    """The first `rotary_dim` elements of a head rotate."""
    check_style(op, "rotary_style", style)
    if rotary_dim < 0 or rotary_dim > head_dim or rotary_dim % 2 != 0:
        expected = f"an even number up to {head_dim} (the size of a head)"
        checks.fail(op, "rotary_dim", expected, rotary_dim)
    check_theta(op, theta)


def check_mask(op: str, mask: Tensor, qkv: Tensor, heads: int) -> None:
    """`mask` is an encoder's, [B, L], or a decoder's, [B, S, L] or [B, H, S, L]; any may be 1."""
    batch, tokens = qkv.shape[:2]
    checks.check_mask(op, mask, "qkv", qkv, (batch, heads, tokens, None))


def check_alibi(op: str, alibi: Tensor, qkv: Tensor, heads: int) -> None:
    """`alibi` is a slope for each head."""
    checks.check_added(op, "alibi", alibi, "qkv", qkv)
    if alibi.shape != (heads,):
        checks.fail(op, "alibi", f"shape [{heads}] (a slope a head)", list(alibi.shape))


def _check_cache(op: str, name: str, tensor: Tensor, batch: int, kv_heads: int, row: int) -> None:
    """`tensor` must be [at least batch, kv_heads, any, row]."""
    if (
        tensor.dim() != 4
        or tensor.shape[0] < batch
        or tensor.shape[1] != kv_heads
        or tensor.shape[3] != row
    ):
        expected = f"shape [{batch} or more, {kv_heads}, tokens, {row}]"
        checks.fail(op, name, expected, list(tensor.shape))


def _check_state(
    op: str, name: str, tensor: Tensor, dtype: torch.dtype, like: Tensor, least: int
) -> None:
    """`tensor` must be one dimension of at least `least` elements."""
    if tensor.dtype != dtype:
        checks.fail(op, name, f"dtype {checks.dtype_name(dtype)}", checks.dtype_name(tensor.dtype))
    checks.check_device(op, name, tensor, "qkv", like)
    if tensor.dim() != 1 or tensor.shape[0] < least:
        checks.fail(op, name, f"shape [{least} or more]", list(tensor.shape))


def _append(cache: Tensor, new: Tensor, at: Tensor, fits: Tensor) -> None:
    batch = torch.arange(new.shape[0], device=new.device)
    old = cache[batch, :, at, : new.shape[-1]]
    cache[batch, :, at, : new.shape[-1]] = torch.where(fits[:, None, None], new, old)


def _add_mask(z: Tensor, mask: Tensor | None, keep: Tensor) -> Tensor:
    """Scores [B, H, capacity] with the mask added, and -inf for dropped keys."""
    if mask is not None:
        mask = checks.mask_4d(mask)[:, :, 0]
        count = min(mask.shape[-1], z.shape[-1]) if mask.shape[-1] > 1 else z.shape[-1]
        head, tail = z[..., :count], z[..., count:]
        if mask.dtype == torch.bool:
            head = head.masked_fill(~mask[..., :count], -math.inf)
        else:
            added = mask[..., :count].float()
            head = (head + added).masked_fill(added == -math.inf, -math.inf)
        z = torch.cat([head, tail], -1)
    return z.masked_fill(~keep, -math.inf)


def _softmax(z: Tensor) -> Tensor:
    """The softmax; zeros for rows that keep no key."""
    top = z.amax(-1, keepdim=True)
    weights = torch.exp(z - top.masked_fill(top == -math.inf, 0))
    total = weights.sum(-1, keepdim=True)
    return weights / total.masked_fill(total == 0, 1)
