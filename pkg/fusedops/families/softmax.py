"""Masked softmax of attention scores."""

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from fusedops import checks
from fusedops.arithmetic import narrow, widen
from fusedops.autograd import NO_SECOND_DERIVATIVE, Autograd, Context, Gradients
from fusedops.call import call, ops
from fusedops.op import Op

if TYPE_CHECKING:
    from fusedops.workspace import Workspace

__all__ = ["softmax"]


def softmax(
    scores: Tensor,
    mask: Tensor | None = None,
    alibi: Tensor | None = None,
    *,
    causal: bool = False,
    window: int = 0,
    scale: float = 1.0,
    head_offset: int = 0,
    mp_size: int = 1,
    mask_kind: str | None = None,
    out: Tensor | None = None,
    workspace: "Workspace | None" = None,
) -> Tensor:
    """Compute the softmax over the keys of scale * scores + alibi + mask.

    For query i of head h of sequence b, z_j = scale * scores[b, h, i, j] + alibi + mask and
    y_j = exp(z_j - max z) / sum_k exp(z_k - max z): the weights of attention (Vaswani et al.,
    "Attention Is All You Need", 2017), by one read of the scores and one write. A key that is
    dropped has z = -inf and gets 0; a row that keeps no key gets zeros. NaN, or +inf, in what a row
    keeps gives NaN. Arithmetic is float32 (float64 for float64), rounded once.

    The position of query i among the keys is i + L - Sq: the last query stands at the last key, as
    in a step of decoding.

    **The mask's rank tells what it is**: two dimensions are an encoder's padding mask [B, L], one
    row for every query (in scaled_dot_product_attention they would be [Sq, L]), also where B equals
    Sq; three are [B, Sq, L]; four are [B, H, Sq, L]. `mask_kind` names what the caller means, and
    lets a mask be [Sq, L]. Any size may be 1 and is broadcast, and so are expanded tensors, without
    a copy. A finite mask drops no key, however low: a row of -1e9 or of finfo.min in float32 gives
    every key the same weight, as in `softmax_context`.

    Differentiable once in `scores`. The mask and alibi get no gradient; one that requires it is
    refused where gradients are recorded.

    Args:
        scores: Shape [B, H, Sq, L], or [B, Sq, L] for one head; float32, float16, bfloat16 or
            float64.
        mask: None, or what is added to the scaled scores, in float32 or the dtype of `scores`, or
            booleans: True keeps a key, as in scaled_dot_product_attention. Shape [B, L],
            [B, Sq, L] or [B, H, Sq, L], any of them 1; device of `scores`.
        alibi: None, or linear biases (Press et al., "Train Short, Test Long", 2022): the slopes of
            the heads, [mp_size * H], [mp_size * H, 1, 1] or [1, mp_size * H, 1, 1], which add
            slope * (j - (L - 1)), or what to add itself, [mp_size * H, L]. float32 or the dtype of
            `scores`, device of `scores`.
        causal: Drop the keys after the query's own position, j > i + L - Sq.
        window: How many keys a query sees back from its own position, which counts:
            j <= i + L - Sq - window is dropped. 0: all. It says nothing of the keys after that
            position: without `causal` they stay.
        scale: Factor of the scores, rounded to the arithmetic's type.
        head_offset: Which of the heads of `alibi` is the first of `scores`: with H heads on each
            of `mp_size` ranks, rank * H.
        mp_size: How many ranks share the heads of `alibi`.
        mask_kind: None, "padding" for a mask [B, L], "queries" for one [Sq, L], or "decoder" for
            one of three or four dimensions.
        out: Tensor for the result, contiguous and on 16 bytes, for inference. It shares no memory
            with an argument.
        workspace: Memory for the result, if there is no `out`, and for temporaries.

    Returns:
        A new contiguous tensor of the shape and dtype of `scores`.

    Raises:
        ValueError: A dtype, device, shape or number is not as above.
        RuntimeError: A gradient of `mask` or `alibi` is asked for.
    """
    one_head = isinstance(scores, Tensor) and scores.dim() == 3 and scores.layout is torch.strided
    # What is as by default is left out: to hand all on takes as long as the rest of the call.
    changed: dict[str, Any] = {}
    if (causal, window, head_offset, mp_size) != (False, 0, 0, 1):
        changed = {"causal": causal, "window": window}
        changed |= {"head_offset": head_offset, "mp_size": mp_size}
    result: Tensor = call(
        ops.softmax,
        scores.unsqueeze(1) if one_head else scores,
        mask if mask_kind is None else checks.mask_of_kind("softmax", mask, mask_kind),
        alibi if alibi is None else checks.slopes(alibi),
        scale=scale,
        out=_with_a_head(out, scores) if one_head and out is not None else out,
        workspace=workspace,
        **changed,
    )
    if out is not None:
        return out
    return result.squeeze(1) if one_head else result


def _with_a_head(out: Tensor, scores: Tensor) -> Tensor:
    """The caller's tensor as the operator writes it; as it is if it is no tensor with strides."""
    if not isinstance(out, Tensor) or out.layout is not torch.strided or out.is_nested:
        return out
    if out.shape != scores.shape:
        checks.fail("softmax", "out", f"shape {list(scores.shape)}", list(out.shape))
    return out.unsqueeze(1)


def _check_softmax(
    op: str,
    scores: Tensor,
    mask: Tensor | None = None,
    alibi: Tensor | None = None,
    *,
    window: int = 0,
    head_offset: int = 0,
    mp_size: int = 1,
    **_: object,
) -> None:
    checks.check_floating(op, "scores", scores)
    if scores.dim() != 4:
        checks.fail(op, "scores", "shape [B, H, Sq, L]", list(scores.shape))
    checks.check_window(op, window)
    if mp_size < 1:
        checks.fail(op, "mp_size", "1 or more", mp_size)
    batch, heads, queries, keys = scores.shape
    others = (mp_size - 1) * heads
    if not 0 <= head_offset <= others:
        checks.fail(op, "head_offset", f"0 to {others} (the heads of the other ranks)", head_offset)
    if mask is not None:
        checks.check_mask(op, mask, "scores", scores, (batch, heads, queries, keys))
    if alibi is not None:
        checks.check_added(op, "alibi", alibi, "scores", scores)
        all_heads = mp_size * heads
        if alibi.shape not in ((all_heads,), (all_heads, keys)):
            expected = f"shape {[all_heads]} or {[all_heads, keys]}"
            checks.fail(op, "alibi", expected, list(alibi.shape))


def softmax_reference(
    scores: Tensor,
    mask: Tensor | None = None,
    alibi: Tensor | None = None,
    *,
    causal: bool = False,
    window: int = 0,
    scale: float = 1.0,
    head_offset: int = 0,
    mp_size: int = 1,  # noqa: ARG001 - the number of heads of alibi, for the check
) -> Tensor:
    """The masked softmax; zeros for rows that keep no key."""
    if scores.numel() == 0:
        return scores.new_empty(scores.shape)
    queries, keys = scores.shape[2:]
    query_positions = torch.arange(queries, device=scores.device)[:, None] + (keys - queries)
    key_positions = torch.arange(keys, device=scores.device)
    z = widen(scores) * scale
    if alibi is not None:
        last = query_positions.clamp(max=keys - 1) if causal else keys - 1
        biases = alibi[head_offset : head_offset + scores.shape[1]].to(z.dtype)
        z = z + _alibi_biases(biases, key_positions - last)
    if mask is not None:
        mask = checks.mask_4d(mask)
        z = z.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else z + widen(mask)
    if causal:
        z = z.masked_fill(key_positions > query_positions, -math.inf)
    if window > 0:
        z = z.masked_fill(key_positions <= query_positions - window, -math.inf)
    empty = (z == -math.inf).all(-1, keepdim=True)
    return narrow(torch.softmax(z, -1).masked_fill(empty, 0), scores)


def _alibi_biases(alibi: Tensor, from_last: Tensor) -> Tensor:
    """The summand of the scores. With slopes, a constant of the row is left out: smaller numbers.

    Slopes are [H], biases [H, L].
    """
    if alibi.dim() == 1:
        return alibi[:, None, None] * from_last
    return alibi[:, None]


def _save_result(
    ctx: Context,
    inputs: tuple[Tensor | None, ...],
    keyword_only_inputs: dict[str, Any],
    output: Tensor,
) -> None:
    """Save the result: the gradient needs no argument. Refuse a gradient of mask and alibi."""
    for name, tensor in zip(("mask", "alibi"), inputs[1:], strict=True):
        if tensor is not None and tensor.requires_grad:
            raise RuntimeError(
                f"softmax: {name}: has no gradient here; detach it, or add it to the scores "
                "beforehand"
            )
    ctx.save_for_backward(output)
    ctx.keywords = {"scale": keyword_only_inputs["scale"]}


def _softmax_gradients(ctx: Context, grad: Tensor) -> Gradients:
    (y,) = ctx.saved_tensors
    return call(ops.softmax_backward, grad, y, **ctx.keywords), None, None


SOFTMAX = Op(
    "softmax(Tensor scores, Tensor? mask=None, Tensor? alibi=None, *, bool causal=False, "
    "int window=0, float scale=1.0, int head_offset=0, int mp_size=1) -> Tensor",
    check=_check_softmax,
    reference=softmax_reference,
    autograd=Autograd(_softmax_gradients, _save_result),
    rows=(),
)


def _check_softmax_backward(op: str, grad: Tensor, y: Tensor, **_: object) -> None:
    checks.check_rows(op, "grad", grad)
    checks.check_alike(op, "y", y, "grad", grad)


def softmax_backward_reference(grad: Tensor, y: Tensor, *, scale: float = 1.0) -> Tensor:
    """Scale y (grad - sum of grad y)."""
    g, wide = widen(grad), widen(y)
    return narrow(scale * wide * (g - (g * wide).sum(-1, keepdim=True)), grad)


SOFTMAX_BACKWARD = Op(
    "softmax_backward(Tensor grad, Tensor y, *, float scale=1.0) -> Tensor",
    check=_check_softmax_backward,
    reference=softmax_backward_reference,
    autograd=NO_SECOND_DERIVATIVE,
    public=False,
)

OPS = (SOFTMAX, SOFTMAX_BACKWARD)
