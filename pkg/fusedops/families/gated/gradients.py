"""How gradients flow through gated_activation."""

import torch
from torch import Tensor

from fusedops.autograd import Autograd, Context, Gradients, save_all


def _backward(ctx: Context, grad: Tensor) -> Gradients:
    x, bias = ctx.saved_tensors
    op = torch.ops.fusedops.gated_activation_backward
    grad_x, grad_bias = op(grad, x, bias, **ctx.keywords)
    return grad_x, None if bias is None else grad_bias


GATED_ACTIVATION = Autograd(save_all, _backward)
