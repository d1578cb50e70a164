"""Rotary position embedding of queries and keys."""

import math
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from fusedops import checks
from fusedops.arithmetic import narrow, widen
from fusedops.autograd import Autograd, Context, Gradients
from fusedops.call import call, call_in_place, ops
from fusedops.kinds import address
from fusedops.op import Op, no_result

if TYPE_CHECKING:
    from fusedops.workspace import Workspace

__all__ = ["apply_rotary_pos_emb", "apply_rotary_pos_emb_"]


def apply_rotary_pos_emb(
    q: Tensor,
    k: Tensor,
    positions: Tensor | None = None,
    *,
    rotary_dim: int,
    offset: int = 0,
    style: str = "half",
    theta: float = 10000.0,
    out: tuple[Tensor, Tensor] | None = None,
    workspace: "Workspace | None" = None,
) -> tuple[Tensor, Tensor]:
    """Rotate pairs of elements of queries and keys by angles that grow with their positions.

    At position p, pair i of a head is rotated by p * theta^(-2i / rotary_dim) rad: (a, b) becomes
    (a cos - b sin, b cos + a sin), as in Su et al., "RoFormer: Enhanced Transformer with Rotary
    Position Embedding", 2021. Style "half" pairs elements i and i + rotary_dim / 2 (GPT-NeoX,
    Llama), "interleaved" pairs 2i and 2i + 1 (GPT-J, the paper). Elements from rotary_dim on stay
    as they are. Angles are exact to the result's type at any position; arithmetic is float32
    (float64 for float64), rounded once.

    Differentiable in `q` and `k`, any number of times.

    Args:
        q: Shape [B, S, H, D]; float32, float16, bfloat16 or float64. Read where it lies if the
            elements of a head are neighbours, e.g. a slice of a packed qkv tensor; else copied.
        k: Shape [B, S, Hkv, D]; dtype and device of `q`. It may have fewer heads.
        positions: Where the tokens are, on the device of `q`, int32 or int64: of every token
            [B, S], or the same for every sequence [1, S], or of every sequence's first token [B].
            Without it token s is at s. It is read by the kernel: no host synchronisation.
        rotary_dim: How many elements of a head are rotated: even, from 2 to D.
        offset: Added to every position.
        style: "half" or "interleaved".
        theta: Base of the frequencies.
        out: Tensors for the results, contiguous and on 16 bytes, for inference. They share no
            memory with an argument or each other.
        workspace: Memory for the results, if there is no `out`, and for temporaries.

    Returns:
        New contiguous tensors of the shapes and dtype of `q` and `k`.

    Raises:
        ValueError: An argument is not as above.
    """
    op = ops.apply_rotary_pos_emb
    result = call(
        op,
        q,
        k,
        positions,
        rotary_dim=rotary_dim,
        offset=offset,
        style=style,
        theta=theta,
        out=out,
        workspace=workspace,
    )
    return cast("tuple[Tensor, Tensor]", result)


def check_style(op: str, argument: str, style: str) -> None:
    """`style` says which elements of a head rotate together."""
    if style not in ("half", "interleaved"):
        checks.fail(op, argument, "'half' or 'interleaved'", repr(style))


def check_theta(op: str, theta: float) -> None:
    """`theta` is the base of the frequencies."""
    if not (theta > 0 and math.isfinite(theta)):
        checks.fail(op, "theta", "a positive finite number", f"{theta:g}")


def _check_rotary(
    op: str,
    q: Tensor,
    k: Tensor,
    positions: Tensor | None = None,
    *,
    rotary_dim: int,
    style: str = "half",
    theta: float = 10000.0,
    names: tuple[str, str] = ("q", "k"),
    **_: object,
) -> None:
    """`names` are those of q and k in messages."""
    q_name, k_name = names
    check_style(op, "style", style)
    checks.check_floating(op, q_name, q)
    if q.dim() != 4:
        checks.fail(op, q_name, "shape [B, S, H, D]", list(q.shape))
    checks.check_like(op, k_name, k, q_name, q)
    batch, tokens, _heads, head_dim = q.shape
    if k.dim() != 4 or (k.shape[0], k.shape[1], k.shape[3]) != (batch, tokens, head_dim):
        expected = f"shape [{batch}, {tokens}, heads, {head_dim}] (that of {q_name}, any heads)"
        checks.fail(op, k_name, expected, list(k.shape))
    if rotary_dim < 2 or rotary_dim > head_dim or rotary_dim % 2 != 0:
        expected = f"an even number from 2 to {head_dim} (the last dimension of {q_name})"
        checks.fail(op, "rotary_dim", expected, rotary_dim)
    check_theta(op, theta)
    if positions is not None:
        _check_positions(op, positions, q_name, q)


def _check_positions(op: str, positions: Tensor, q_name: str, q: Tensor) -> None:
    if positions.dtype not in (torch.int32, torch.int64):
        name = checks.dtype_name(positions.dtype)
        checks.fail(op, "positions", "dtype int32 or int64", name)
    checks.check_device(op, "positions", positions, q_name, q)
    batch, tokens = q.shape[0], q.shape[1]
    shape = tuple(positions.shape)
    if shape not in ((batch,), (batch, tokens), (1, tokens)):
        expected = f"shape [{batch}], [{batch}, {tokens}] or [1, {tokens}]"
        checks.fail(op, "positions", expected, list(shape))


def _rotate_both(
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
    """Rotate queries and keys by the angles of their positions, forth (1) or back (-1)."""
    angles = direction * _angles(q, positions, rotary_dim, offset, theta)
    return _rotate(q, angles, style), _rotate(k, angles, style)


def apply_rotary_pos_emb_reference(
    q: Tensor,
    k: Tensor,
    positions: Tensor | None = None,
    **options: Any,  # noqa: ANN401 - as above
) -> tuple[Tensor, Tensor]:
    """Queries and keys, rotated."""
    return _rotate_both(1, q, k, positions, **options)


def _angles(
    q: Tensor, positions: Tensor | None, rotary_dim: int, offset: int, theta: float
) -> Tensor:
    """The angle of every pair at every position [B or 1, S, 1, rotary_dim / 2], in float64."""
    count = torch.arange(q.shape[1], dtype=torch.float64, device=q.device)
    if positions is None:
        at = count[None]
    else:
        at = positions.double() if positions.dim() == 2 else positions.double()[:, None] + count
    pairs = torch.arange(rotary_dim // 2, dtype=torch.float64, device=q.device)
    frequencies = torch.exp2(pairs * (-2 * math.log2(theta) / rotary_dim))
    return ((at + offset)[..., None] * frequencies)[:, :, None]


def _rotate(heads: Tensor, angles: Tensor, style: str) -> Tensor:
    wide = widen(heads)
    cos, sin = angles.cos().to(wide.dtype), angles.sin().to(wide.dtype)
    rotary_dim = 2 * angles.shape[-1]
    pairs, rest = wide[..., :rotary_dim], wide[..., rotary_dim:]
    if style == "half":
        a, b = pairs.chunk(2, -1)
        rotated = torch.cat([a * cos - b * sin, b * cos + a * sin], -1)
    else:
        a, b = pairs[..., 0::2], pairs[..., 1::2]
        rotated = torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2)
    return narrow(torch.cat([rotated, rest], -1), heads)


def _like_both(q: Tensor, k: Tensor, *_: object, **__: object) -> tuple[Tensor, Tensor]:
    return q.new_empty(q.shape), k.new_empty(k.shape)


def _save_positions(
    ctx: Context,
    inputs: tuple[Tensor | None, ...],
    keyword_only_inputs: dict[str, Any],
    output: object,
) -> None:
    del output
    positions = inputs[2]
    ctx.save_for_backward(*(() if positions is None else (positions,)))
    ctx.keywords = dict(keyword_only_inputs)


def _saved_positions(ctx: Context) -> Tensor | None:
    saved = ctx.saved_tensors  # once: torch.utils.checkpoint lets nobody read it again
    return saved[0] if saved else None


def _apply_rotary_pos_emb_gradients(ctx: Context, *grads: Tensor) -> Gradients:
    rotate_back = partial(call, ops.apply_rotary_pos_emb_backward)
    return (*rotate_back(*grads, _saved_positions(ctx), **ctx.keywords), None)


APPLY_ROTARY_POS_EMB = Op(
    "apply_rotary_pos_emb(Tensor q, Tensor k, Tensor? positions=None, *, int rotary_dim, "
    'SymInt offset=0, str style="half", float theta=10000.0) -> (Tensor, Tensor)',
    check=_check_rotary,
    reference=apply_rotary_pos_emb_reference,
    result=_like_both,
    autograd=Autograd(_apply_rotary_pos_emb_gradients, _save_positions),
    rows=(),
)


def apply_rotary_pos_emb_(
    q: Tensor,
    k: Tensor,
    positions: Tensor | None = None,
    *,
    rotary_dim: int,
    offset: int = 0,
    style: str = "half",
    theta: float = 10000.0,
) -> tuple[Tensor, Tensor]:
    """Do as apply_rotary_pos_emb does, into `q` and `k`. Nothing is copied.

    For inference: it has no gradient, and refuses where one is asked for.

    Args:
        q: As there, but the elements of a head must be neighbours and no two elements may share
            memory. Other strides are free: `q` and `k` may be slices of one packed qkv tensor.
        k: As `q`. It may not overlap `q`.
        positions: As there.
        rotary_dim: As there.
        offset: As there.
        style: As there.
        theta: As there.

    Returns:
        `q` and `k`.

    Raises:
        ValueError: An argument is not as above.
        RuntimeError: A gradient is asked for.
    """
    call_in_place(
        *(ops.apply_rotary_pos_emb_, q, k, positions),
        rotary_dim=rotary_dim,
        offset=offset,
        style=style,
        theta=theta,
    )
    return q, k


def _check_apply_rotary_pos_emb_(
    op: str,
    q: Tensor,
    k: Tensor,
    positions: Tensor | None = None,
    **options: Any,  # noqa: ANN401 - as above
) -> None:
    _check_rotary(op, q, k, positions, **options)
    for name, heads in (("q", q), ("k", k)):
        _check_writable(op, name, heads)
    if _has_first_of(q, k) or _has_first_of(k, q):
        checks.fail(op, "k", "memory of its own", "memory that it shares with q")


def _check_writable(op: str, name: str, heads: Tensor) -> None:
    """Nothing is copied, so a head's elements must be neighbours and share no memory."""
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


def _has_first_of(heads: Tensor, other: Tensor) -> bool:
    """Whether the first element of `other` is one of `heads`, no two of which share memory."""
    begin, at = address(heads), address(other)
    if heads.numel() == 0 or other.numel() == 0 or not begin or at < begin:
        return False
    rest = (at - begin) // heads.element_size()
    steps = zip(heads.stride(), heads.shape, strict=True)
    for stride, size in sorted((one for one in steps if one[1] > 1), reverse=True):
        rest -= min(rest // stride, size - 1) * stride
    return rest == 0


def apply_rotary_pos_emb_in_place_reference(
    q: Tensor,
    k: Tensor,
    positions: Tensor | None = None,
    **options: Any,  # noqa: ANN401 - as above
) -> None:
    """Rotate q and k where they lie."""
    rotated_q, rotated_k = _rotate_both(1, q, k, positions, **options)
    q.copy_(rotated_q)
    k.copy_(rotated_k)


APPLY_ROTARY_POS_EMB_ = Op(
    "apply_rotary_pos_emb_(Tensor(a!) q, Tensor(b!) k, Tensor? positions=None, *, "
    'int rotary_dim, SymInt offset=0, str style="half", float theta=10000.0) -> ()',
    check=_check_apply_rotary_pos_emb_,
    reference=apply_rotary_pos_emb_in_place_reference,
    result=no_result,
    public=False,
)


def _check_apply_rotary_pos_emb_backward(
    op: str,
    grad_q: Tensor,
    grad_k: Tensor,
    positions: Tensor | None = None,
    **options: Any,  # noqa: ANN401 - as above
) -> None:
    _check_rotary(op, grad_q, grad_k, positions, **options, names=("grad_q", "grad_k"))


def apply_rotary_pos_emb_backward_reference(
    grad_q: Tensor,
    grad_k: Tensor,
    positions: Tensor | None = None,
    **options: Any,  # noqa: ANN401 - as above
) -> tuple[Tensor, Tensor]:
    """The gradients, rotated back: a rotation's transpose is its inverse."""
    return _rotate_both(-1, grad_q, grad_k, positions, **options)


def _apply_rotary_pos_emb_backward_gradients(ctx: Context, *grads: Tensor) -> Gradients:
    rotate = partial(call, ops.apply_rotary_pos_emb)
    return (*rotate(*grads, _saved_positions(ctx), **ctx.keywords), None)


APPLY_ROTARY_POS_EMB_BACKWARD = Op(
    "apply_rotary_pos_emb_backward(Tensor grad_q, Tensor grad_k, Tensor? positions=None, *, "
    'int rotary_dim, SymInt offset=0, str style="half", float theta=10000.0)'
    " -> (Tensor, Tensor)",
    check=_check_apply_rotary_pos_emb_backward,
    reference=apply_rotary_pos_emb_backward_reference,
    result=_like_both,
    autograd=Autograd(_apply_rotary_pos_emb_backward_gradients, _save_positions),
    public=False,
)

OPS = (APPLY_ROTARY_POS_EMB, APPLY_ROTARY_POS_EMB_, APPLY_ROTARY_POS_EMB_BACKWARD)
