"""How gradients flow through the sums with a residual."""

import torch
from torch import Tensor

from fusedops.autograd import (
    Autograd,
    Context,
    Gradients,
    over_rows,
    save_inputs,
    save_keywords,
    save_nothing,
)
from fusedops.families.residual.checks import adds_attention, adds_attention_bias
from fusedops.widths import narrow, widen


def _bias_residual(ctx: Context, grad: Tensor) -> Gradients:
    del ctx
    return grad, grad, over_rows(grad)


def _residual_add_bias(ctx: Context, grad: Tensor) -> Gradients:
    mp_size, mlp_after_attn, add_bias, preln = (
        ctx.keywords[name] for name in ("mp_size", "mlp_after_attn", "add_bias", "preln")
    )
    if not adds_attention(mlp_after_attn=mlp_after_attn, preln=preln):
        return grad, grad, None, None, over_rows(grad)
    part = grad if mp_size == 1 else grad / mp_size
    row = over_rows(part)
    uses_bias = adds_attention_bias(mlp_after_attn=mlp_after_attn, add_bias=add_bias, preln=preln)
    return grad, part, part if mlp_after_attn else grad, row if uses_bias else None, row


def _moe_res_matmul(ctx: Context, grad: Tensor) -> Gradients:
    residual, coef, output = ctx.saved_tensors
    of_residual, of_output = coef.chunk(2)
    rows = [over_rows(widen(grad) * widen(one)) for one in (residual, output)]
    return grad * of_residual, narrow(torch.cat(rows), coef), grad * of_output


BIAS_RESIDUAL = Autograd(save_nothing, _bias_residual)
RESIDUAL_ADD_BIAS = Autograd(save_keywords, _residual_add_bias)
MOE_RES_MATMUL = Autograd(save_inputs, _moe_res_matmul)
