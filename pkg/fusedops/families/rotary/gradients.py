"""How gradients flow through the rotary embedding: turned back by the same angles."""

from typing import Any

import torch
from torch import Tensor

from fusedops.autograd import Autograd, Context, Gradients


def _keep_positions(
    ctx: Context,
    inputs: tuple[Tensor | None, ...],
    keyword_only_inputs: dict[str, Any],
    output: object,
) -> None:
    del output
    positions = inputs[2]
    ctx.save_for_backward(*(() if positions is None else (positions,)))
    ctx.keywords = dict(keyword_only_inputs)


def _positions(ctx: Context) -> Tensor | None:
    return ctx.saved_tensors[0] if ctx.saved_tensors else None


def _back(ctx: Context, *grads: Tensor) -> Gradients:
    turn = torch.ops.fusedops.apply_rotary_pos_emb_backward
    return (*turn(*grads, _positions(ctx), **ctx.keywords), None)


def _forth(ctx: Context, *grads: Tensor) -> Gradients:
    turn = torch.ops.fusedops.apply_rotary_pos_emb
    return (*turn(*grads, _positions(ctx), **ctx.keywords), None)


ROTARY = Autograd(_keep_positions, _back)
ROTARY_BACKWARD = Autograd(_keep_positions, _forth)
