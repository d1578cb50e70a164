"""How gradients flow through the norms."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fusedops.autograd import Autograd, Context, Gradients, over_rows, save_all


def _saving_sum(gamma: int) -> Callable[..., None]:
    """Keep the stored sum, not what it is of: half the memory. `gamma` is the argument's place."""

    def setup(
        ctx: Context,
        inputs: tuple[Tensor, ...],
        keyword_only_inputs: dict[str, Any],
        output: tuple[Tensor, Tensor],
    ) -> None:
        ctx.save_for_backward(output[1], inputs[gamma])
        ctx.keywords = dict(keyword_only_inputs)
        ctx.set_materialize_grads(False)

    return setup


def _of_y(grad: Tensor | None, s: Tensor) -> Tensor:
    """The gradient of a result that need not have been used."""
    return torch.zeros_like(s) if grad is None else grad


def _layer_norm(ctx: Context, grad: Tensor) -> Gradients:
    x, gamma, _ = ctx.saved_tensors
    return tuple(torch.ops.fusedops.layer_norm_backward(grad, x, gamma, **ctx.keywords))


def _layer_norm_residual(ctx: Context, grad: Tensor) -> Gradients:
    # The sum is not kept: it is found again where it is wanted.
    _, s = torch.ops.fusedops.layer_norm_residual_store(*ctx.saved_tensors, **ctx.keywords)
    gamma = ctx.saved_tensors[3]
    found = torch.ops.fusedops.layer_norm_backward(grad, s, gamma, **ctx.keywords)
    grad_x, grad_gamma, grad_beta = found
    return grad_x, over_rows(grad_x), grad_x, grad_gamma, grad_beta


def _layer_norm_residual_store(
    ctx: Context, grad: Tensor | None, grad_sum: Tensor | None
) -> Gradients:
    s, gamma = ctx.saved_tensors
    found = torch.ops.fusedops.layer_norm_backward(
        _of_y(grad, s), s, gamma, grad_sum, **ctx.keywords
    )
    grad_x, grad_gamma, grad_beta = found
    return grad_x, over_rows(grad_x), grad_x, grad_gamma, grad_beta


def _rms_norm(ctx: Context, grad: Tensor) -> Gradients:
    x, gamma = ctx.saved_tensors
    return tuple(torch.ops.fusedops.rms_norm_backward(grad, x, gamma, **ctx.keywords))


def _pre_rms_norm(ctx: Context, grad: Tensor | None, grad_sum: Tensor | None) -> Gradients:
    s, gamma = ctx.saved_tensors
    grad_x, grad_gamma = torch.ops.fusedops.rms_norm_backward(
        _of_y(grad, s), s, gamma, grad_sum, **ctx.keywords
    )
    return grad_x, grad_x, grad_gamma


LAYER_NORM = Autograd(save_all, _layer_norm)
LAYER_NORM_RESIDUAL = Autograd(save_all, _layer_norm_residual)
LAYER_NORM_RESIDUAL_STORE = Autograd(_saving_sum(3), _layer_norm_residual_store)
RMS_NORM = Autograd(save_all, _rms_norm)
PRE_RMS_NORM = Autograd(_saving_sum(2), _pre_rms_norm)
