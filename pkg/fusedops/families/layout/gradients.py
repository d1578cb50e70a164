"""How gradients flow through the layout operators: the zeros take none."""

from typing import Any

from torch import Tensor

from fusedops.autograd import Autograd, Context, Gradients


def _keep_width(
    ctx: Context,
    inputs: tuple[Tensor, ...],
    output: object,
    keyword_only_inputs: dict[str, Any] | None = None,
) -> None:
    del output
    ctx.keywords = {"width": inputs[0].shape[-1], **(keyword_only_inputs or {})}


def _add_padding(ctx: Context, grad: Tensor) -> Gradients:
    return (grad[..., : ctx.keywords["width"]],)


def _pad_transform(ctx: Context, grad: Tensor) -> Gradients:
    width, heads = ctx.keywords["width"], ctx.keywords["heads"]
    tokens_first = grad[..., : width // heads].transpose(1, 2)
    return (tokens_first.reshape(*tokens_first.shape[:2], width),)


ADD_PADDING = Autograd(_keep_width, _add_padding)
PAD_TRANSFORM = Autograd(_keep_width, _pad_transform)
