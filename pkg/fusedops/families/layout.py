"""Heads padded with zeros and laid out for attention."""

from typing import TYPE_CHECKING, Any, cast

from torch import Tensor

from fusedops import checks
from fusedops.autograd import Autograd, Context, Gradients
from fusedops.call import call, ops
from fusedops.op import Op

if TYPE_CHECKING:
    from fusedops.workspace import Workspace

__all__ = ["add_padding", "pad_transform"]

_WIDTHS = (32, 64, 128)


def _padded_width(width: int) -> int:
    """Elements of a padded head; `width` is at most 128."""
    return next(padded for padded in _WIDTHS if width <= padded)


def _check_width(op: str, width: int) -> None:
    if width > _WIDTHS[-1]:
        checks.fail(op, "x", f"heads of at most {_WIDTHS[-1]} elements", width)


def _save_width(
    ctx: Context,
    inputs: tuple[Tensor, ...],
    output: object,
    keyword_only_inputs: dict[str, Any] | None = None,
) -> None:
    del output
    ctx.keywords = {"width": inputs[0].shape[-1], **(keyword_only_inputs or {})}


def add_padding(
    x: Tensor,
    *,
    out: Tensor | None = None,
    workspace: "Workspace | None" = None,
) -> Tensor:
    """Append zeros to heads, up to 32, 64 or 128 elements, whichever is the next.

    For attention kernels that are made for those sizes. Scores of padded queries and keys are those
    of the plain ones. Differentiable in `x`.

    Args:
        x: Shape [..., D], at least one dimension, D at most 128; float32, float16, bfloat16 or
            float64. Read where it lies if its dimensions before the last two have one stride, e.g.
            q of a packed qkv tensor as [B, S, H, D]; else copied.
        out: Tensor for the result, contiguous and on 16 bytes, for inference. It shares no memory
            with an argument.
        workspace: Memory for the result, if there is no `out`, and for temporaries.

    Returns:
        A new contiguous tensor [..., Dp] of the dtype of `x`.

    Raises:
        ValueError: `x` is not as above.
    """
    return cast("Tensor", call(ops.add_padding, x, out=out, workspace=workspace))


def _check_add_padding(op: str, x: Tensor) -> None:
    checks.check_rows(op, "x", x)
    _check_width(op, x.shape[-1])


def add_padding_reference(x: Tensor) -> Tensor:
    """Zeros after each head."""
    result = x.new_zeros((*x.shape[:-1], _padded_width(x.shape[-1])))
    result[..., : x.shape[-1]] = x
    return result


def _add_padding_result(x: Tensor) -> Tensor:
    return x.new_empty((*x.shape[:-1], _padded_width(x.shape[-1])))


def _add_padding_gradients(ctx: Context, grad: Tensor) -> Gradients:
    return (grad.narrow(-1, 0, ctx.keywords["width"]),)


ADD_PADDING = Op(
    "add_padding(Tensor x) -> Tensor",
    check=_check_add_padding,
    reference=add_padding_reference,
    result=_add_padding_result,
    autograd=Autograd(_add_padding_gradients, _save_width),
    rows=("x",),
)


def pad_transform(
    x: Tensor,
    *,
    heads: int,
    out: Tensor | None = None,
    workspace: "Workspace | None" = None,
) -> Tensor:
    """Part a projection into heads, each padded with zeros as add_padding does, before the tokens.

    One pass instead of view, pad, transpose and contiguous. Differentiable in `x`.

    Args:
        x: Shape [B, S, heads * D], D at most 128; float32, float16, bfloat16 or float64. Read where
            it lies if its elements along the last dimension are neighbours, e.g. a third of a
            packed qkv tensor; else copied.
        heads: H, how many heads a token has.
        out: Tensor for the result, contiguous and on 16 bytes, for inference. It shares no memory
            with an argument.
        workspace: Memory for the result, if there is no `out`, and for temporaries.

    Returns:
        A new contiguous tensor [B, H, S, Dp] of the dtype of `x`, Dp being 32, 64 or 128.

    Raises:
        ValueError: An argument is not as above.
    """
    return cast("Tensor", call(ops.pad_transform, x, heads=heads, out=out, workspace=workspace))


def _check_pad_transform(op: str, x: Tensor, *, heads: int) -> None:
    checks.check_floating(op, "x", x)
    if x.dim() != 3:
        checks.fail(op, "x", "shape [B, S, heads * D]", list(x.shape))
    if heads < 1 or x.shape[2] % heads != 0:
        checks.fail(op, "heads", f"a divisor of {x.shape[2]} (the last dimension of x)", heads)
    _check_width(op, x.shape[2] // heads)


def pad_transform_reference(x: Tensor, *, heads: int) -> Tensor:
    """Zeros after each head, and the heads before the tokens."""
    batch, tokens, width = x.shape
    split = x.reshape(batch, tokens, heads, width // heads)
    result = x.new_zeros((batch, heads, tokens, _padded_width(width // heads)))
    result[..., : width // heads] = split.transpose(1, 2)
    return result


def _pad_transform_result(x: Tensor, *, heads: int) -> Tensor:
    batch, tokens, width = x.shape
    return x.new_empty((batch, heads, tokens, _padded_width(width // heads)))


def _pad_transform_gradients(ctx: Context, grad: Tensor) -> Gradients:
    width, heads = ctx.keywords["width"], ctx.keywords["heads"]
    tokens_first = grad.narrow(-1, 0, width // heads).transpose(1, 2)
    return (tokens_first.reshape(*tokens_first.shape[:2], width),)


PAD_TRANSFORM = Op(
    "pad_transform(Tensor x, *, int heads) -> Tensor",
    check=_check_pad_transform,
    reference=pad_transform_reference,
    result=_pad_transform_result,
    autograd=Autograd(_pad_transform_gradients, _save_width),
    rows=(),
)

OPS = (ADD_PADDING, PAD_TRANSFORM)
