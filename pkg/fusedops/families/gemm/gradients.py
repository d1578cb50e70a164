"""How gradients flow through products with weights: by products again, none that is not wanted."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fusedops.autograd import Autograd, Context, Gradients, over_rows, save_inputs, save_nothing
from fusedops.families.gemm.checks import PLAIN


def _matrix(tensor: Tensor) -> Tensor:
    return tensor.unsqueeze(0).flatten(0, -2)


def _product(
    wanted: Sequence[bool], grad: Tensor, x: Tensor, weight: Tensor
) -> tuple[Tensor | None, Tensor | None]:
    """Gradients of x weight with respect to both."""
    return (
        grad @ weight.t() if wanted[0] else None,
        _matrix(x).t() @ _matrix(grad) if wanted[1] else None,
    )


def _vector_matmul(ctx: Context, grad: Tensor) -> Gradients:
    return _product(ctx.needs_input_grad[:2], grad, *ctx.saved_tensors)


def _linear_layer(ctx: Context, grad: Tensor) -> Gradients:
    wanted = ctx.needs_input_grad
    of_both = _product(wanted[:2], grad, *ctx.saved_tensors[:2])
    # torch leaves a bias out that is not there.
    return (*of_both, *(over_rows(grad) if one else None for one in wanted[2:]))


def _mlp(
    wanted: Sequence[bool],
    grad: Tensor,
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    weight2: Tensor,
    activation: str,
) -> tuple[Tensor | None, Tensor | None, Tensor, Tensor | None]:
    """Gradients of f(x weight + bias) weight2 with respect to these; x, weight, weight2 wanted?"""
    ops = torch.ops.fusedops
    v = ops.vector_matmul(x, weight)
    if activation not in PLAIN:
        forth, back, how = ops.gated_activation, ops.gated_activation_backward, {"kind": activation}
    elif activation == "relu":
        forth, back, how = ops.bias_relu, ops.bias_relu_backward, {}
    else:
        form = "tanh" if activation == "gelu" else "none"
        forth, back, how = ops.bias_gelu, ops.bias_gelu_backward, {"approximate": form}
    of_hidden, of_weight2 = _product((True, wanted[2]), grad, forth(v, bias, **how), weight2)
    of_v, of_bias = back(of_hidden, v, bias, **how)
    return *_product(wanted[:2], of_v, x, weight), of_bias, of_weight2


def _fused_gemm_gelu(ctx: Context, grad: Tensor) -> Gradients:
    x, weight, bias, weight2 = ctx.saved_tensors
    needs = ctx.needs_input_grad
    return _mlp((*needs[:2], needs[3]), grad, x, weight, bias, weight2, "gelu")


def _einsum_sec_sm_ecm(ctx: Context, grad: Tensor) -> Gradients:
    q, weight = ctx.saved_tensors
    turned, of_weight = _product(ctx.needs_input_grad[:2], grad, q.permute(1, 2, 0), weight)
    return None if turned is None else turned.permute(2, 0, 1), of_weight


def _save_with_norm(
    ctx: Context,
    inputs: tuple[Tensor, ...],
    keyword_only_inputs: dict[str, Any],
    output: tuple[Tensor, Tensor],
) -> None:
    """Keep the arguments, and what was normalised."""
    ctx.save_for_backward(*inputs, output[1])
    ctx.keywords = dict(keyword_only_inputs)
    ctx.set_materialize_grads(False)


def _sum(one: Tensor | None, other: Tensor | None) -> Tensor | None:
    """Of those that are there."""
    if one is None or other is None:
        return other if one is None else one
    return one + other


def _of_product(
    wanted: bool, grad: Tensor | None, u: Tensor, weight: Tensor
) -> tuple[Tensor | None, Tensor | None]:
    return (None, None) if grad is None else _product((True, wanted), grad, u, weight)


def _of_layer_norm(
    grad: Tensor | None, x: Tensor, gamma: Tensor, eps: float
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    if grad is None:
        return None, None, None
    of_x, of_gamma, of_beta = torch.ops.fusedops.layer_norm_backward(grad, x, gamma, eps=eps)
    return of_x, of_gamma, of_beta


def _qkv_gemm(ctx: Context, grad: Tensor | None, grad_u: Tensor | None) -> Gradients:
    x, weight, _, gamma, _, u = ctx.saved_tensors
    wanted = ctx.needs_input_grad
    of_u, of_weight = _of_product(wanted[1], grad, u, weight)
    of_x, of_gamma, of_beta = _of_layer_norm(_sum(of_u, grad_u), x, gamma, ctx.keywords["eps"])
    of_bias = over_rows(grad) if wanted[2] and grad is not None else None
    return of_x, of_weight, of_bias, of_gamma, of_beta


def _rms_qkv_gemm(ctx: Context, grad: Tensor | None, grad_u: Tensor | None) -> Gradients:
    x, weight, gamma, u = ctx.saved_tensors
    of_u, of_weight = _of_product(ctx.needs_input_grad[1], grad, u, weight)
    of_norm = _sum(of_u, grad_u)
    if of_norm is None:
        return None, None, None
    rms_norm_backward = torch.ops.fusedops.rms_norm_backward
    of_x, of_gamma = rms_norm_backward(of_norm, x, gamma, **ctx.keywords)
    return of_x, of_weight, of_gamma


def _mlp_gemm(ctx: Context, grad: Tensor | None, grad_u: Tensor | None) -> Gradients:
    x, residual, input_bias, weight, bias, weight2, gamma, beta, u = ctx.saved_tensors
    needs, eps = ctx.needs_input_grad, ctx.keywords["eps"]
    of_mlp: tuple[Tensor | None, ...] = (None,) * 4
    if grad is not None:
        wanted = (True, needs[3], needs[5])
        how = ctx.keywords["activation"]
        of_mlp = _mlp(wanted, grad, u, weight, bias, weight2, how)
    of_u, *of_weights = of_mlp
    of_norm = _sum(of_u, grad_u)
    if not ctx.keywords["mlp_after_attn"]:
        of_s, *of_rows = _of_layer_norm(of_norm, residual, gamma, eps)
        return None, of_s, None, *of_weights, *of_rows
    # The sum is not kept: it is found again.
    summed = torch.ops.fusedops.layer_norm_residual_store
    _, s = summed(x, input_bias, residual, gamma, beta, eps=eps)
    of_s, *of_rows = _of_layer_norm(of_norm, s, gamma, eps)
    return of_s, of_s, None if of_s is None else over_rows(of_s), *of_weights, *of_rows


def _none(ctx: Context, *grads: Tensor | None) -> Gradients:
    del ctx, grads
    raise NotImplementedError(
        "fusedops: products with int8 weights have no gradient; use fusedops.dequantize_fp16 and "
        "its like, and the form for such weights"
    )


VECTOR_MATMUL = Autograd(save_inputs, _vector_matmul)
LINEAR_LAYER = Autograd(save_inputs, _linear_layer)
FUSED_GEMM_GELU = Autograd(save_inputs, _fused_gemm_gelu)
EINSUM_SEC_SM_ECM = Autograd(save_inputs, _einsum_sec_sm_ecm)
QKV_GEMM = Autograd(_save_with_norm, _qkv_gemm)
RMS_QKV_GEMM = Autograd(_save_with_norm, _rms_qkv_gemm)
MLP_GEMM = Autograd(_save_with_norm, _mlp_gemm)
INT8 = Autograd(save_nothing, _none)
