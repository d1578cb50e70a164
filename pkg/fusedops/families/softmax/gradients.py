"""How gradients flow through softmax: to the scores alone."""

from typing import Any

import torch
from torch import Tensor

from fusedops.autograd import Autograd, Context, Gradients


def _keep_result(
    ctx: Context,
    inputs: tuple[Tensor | None, ...],
    keyword_only_inputs: dict[str, Any],
    output: Tensor,
) -> None:
    for name, tensor in zip(("mask", "alibi"), inputs[1:], strict=True):
        if tensor is not None and tensor.requires_grad:
            raise RuntimeError(
                f"softmax: {name}: has no gradient here; detach it, or add it to the scores "
                "beforehand"
            )
    ctx.save_for_backward(output)
    ctx.keywords = {"scale": keyword_only_inputs["scale"]}


def _backward(ctx: Context, grad: Tensor) -> Gradients:
    (y,) = ctx.saved_tensors
    return torch.ops.fusedops.softmax_backward(grad, y, **ctx.keywords), None, None


SOFTMAX = Autograd(_keep_result, _backward)
