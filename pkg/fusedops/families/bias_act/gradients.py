"""How gradients flow through the operators of x[..., N] and bias[N]."""

import torch
from torch import Tensor

from fusedops.autograd import (
    Autograd,
    Context,
    Gradients,
    over_rows,
    save_all,
    save_inputs,
    save_nothing,
)


def _bias_add(ctx: Context, grad: Tensor) -> Gradients:
    del ctx
    return grad, over_rows(grad)


def _bias_relu(ctx: Context, grad: Tensor) -> Gradients:
    x, bias = ctx.saved_tensors
    return tuple(torch.ops.fusedops.bias_relu_backward(grad, x, bias))


def _bias_gelu(ctx: Context, grad: Tensor) -> Gradients:
    x, bias = ctx.saved_tensors
    return tuple(torch.ops.fusedops.bias_gelu_backward(grad, x, bias, **ctx.keywords))


BIAS_ADD = Autograd(save_nothing, _bias_add)
BIAS_RELU = Autograd(save_inputs, _bias_relu)
BIAS_GELU = Autograd(save_all, _bias_gelu)
