"""A transformer's projection to queries, keys and values: a norm, then a product."""

from typing import TYPE_CHECKING, Any, cast

from torch import Tensor

from fusedops.autograd import Autograd, Context, Gradients, sum_to_row
from fusedops.call import call, ops
from fusedops.families.gemm.products import (
    check_linear,
    linear_layer_reference,
    product_gradients,
    vector_matmul_reference,
)
from fusedops.families.gemm.weights import Weight, dense_check, product_and_norm_result
from fusedops.families.norm import check_norm, layer_norm_reference, rms_norm_reference
from fusedops.op import Op

if TYPE_CHECKING:
    from fusedops.workspace import Workspace


def save_with_norm(
    ctx: Context,
    inputs: tuple[Tensor, ...],
    keyword_only_inputs: dict[str, Any],
    output: tuple[Tensor, Tensor],
) -> None:
    """Save the arguments, and the norm."""
    ctx.save_for_backward(*inputs, output[1])
    ctx.keywords = dict(keyword_only_inputs)
    ctx.set_materialize_grads(False)


def add_gradients(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    """The sum of two gradients; None is zero."""
    if a is None or b is None:
        return b if a is None else a
    return a + b


def _product_of_norm_gradients(
    needs_weight: bool, grad: Tensor | None, u: Tensor, weight: Tensor
) -> tuple[Tensor | None, Tensor | None]:
    return (
        (None, None) if grad is None else product_gradients((True, needs_weight), grad, u, weight)
    )


def layer_norm_gradients(
    grad: Tensor | None, x: Tensor, gamma: Tensor, eps: float
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Gradients of x, gamma and beta; None if there is no gradient of the norm."""
    if grad is None:
        return None, None, None
    grad_x, grad_gamma, grad_beta = call(ops.layer_norm_backward, grad, x, gamma, eps=eps)
    return grad_x, grad_gamma, grad_beta


def qkv_gemm(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    gamma: Tensor,
    beta: Tensor,
    *,
    eps: float = 1e-5,
    out: tuple[Tensor, Tensor] | None = None,
    workspace: "Workspace | None" = None,
) -> tuple[Tensor, Tensor]:
    """Compute u = LN(x), and u weight + bias: see `layer_norm` and `linear_layer`.

    Differentiable once in all tensors.

    Args:
        x: Shape [..., K], at least one dimension; float32, float16, bfloat16 or float64.
        weight: Shape [K, M]; dtype and device of `x`.
        bias: Shape [M], or None; dtype and device of `x`.
        gamma: Shape [K]; dtype and device of `x`.
        beta: Shape [K]; dtype and device of `x`.
        eps: Added to the variance.
        out: Tensors for the results, contiguous and on 16 bytes, for inference. They share no
            memory with an argument or each other.
        workspace: Memory for the results, if there is no `out`, and for temporaries.

    Returns:
        The product [..., M] and u [..., K], new contiguous tensors of the dtype of `x`.

    Raises:
        ValueError: A dtype, device or shape is not as above.
    """
    result = call(ops.qkv_gemm, x, weight, bias, gamma, beta, eps=eps, out=out, workspace=workspace)
    return cast("tuple[Tensor, Tensor]", result)


def check_qkv_gemm(
    op: str,
    x: Tensor,
    weight: Weight,
    bias: Tensor | None,
    gamma: Tensor,
    beta: Tensor,
    **_: object,
) -> None:
    """The norm's check, then that of linear_layer."""
    check_norm(op, x, gamma=gamma, beta=beta)
    check_linear(op, x, weight, bias)


def qkv_gemm_reference(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    gamma: Tensor,
    beta: Tensor,
    *,
    eps: float = 1e-5,
) -> tuple[Tensor, Tensor]:
    """U = LN(x); u weight [+ bias], and u."""
    u = layer_norm_reference(x, gamma, beta, eps=eps)
    return linear_layer_reference(u, weight, bias), u


def _qkv_gemm_gradients(ctx: Context, grad: Tensor | None, grad_u: Tensor | None) -> Gradients:
    x, weight, _bias, gamma, _beta, u = ctx.saved_tensors
    needs = ctx.needs_input_grad
    product_u, grad_weight = _product_of_norm_gradients(needs[1], grad, u, weight)
    grad_x, grad_gamma, grad_beta = layer_norm_gradients(
        add_gradients(product_u, grad_u), x, gamma, ctx.keywords["eps"]
    )
    grad_bias = sum_to_row(grad) if needs[2] and grad is not None else None
    return grad_x, grad_weight, grad_bias, grad_gamma, grad_beta


QKV_GEMM = Op(
    "qkv_gemm(Tensor x, Tensor weight, Tensor? bias, Tensor gamma, Tensor beta, *, "
    "float eps=1e-5) -> (Tensor, Tensor)",
    check=dense_check(check_qkv_gemm, 1),
    reference=qkv_gemm_reference,
    result=product_and_norm_result(),
    autograd=Autograd(_qkv_gemm_gradients, save_with_norm),
    rows=("x",),
)


def rms_qkv_gemm(
    x: Tensor,
    weight: Tensor,
    gamma: Tensor,
    *,
    eps: float = 1e-6,
    out: tuple[Tensor, Tensor] | None = None,
    workspace: "Workspace | None" = None,
) -> tuple[Tensor, Tensor]:
    """Compute u = RMS(x), and u weight: see `rms_norm` and `vector_matmul`.

    Differentiable once in all tensors.

    Args:
        x: Shape [..., K], at least one dimension; float32, float16, bfloat16 or float64.
        weight: Shape [K, M]; dtype and device of `x`.
        gamma: Shape [K]; dtype and device of `x`.
        eps: Added to the mean square.
        out: Tensors for the results, contiguous and on 16 bytes, for inference. They share no
            memory with an argument or each other.
        workspace: Memory for the results, if there is no `out`, and for temporaries.

    Returns:
        The product [..., M] and u [..., K], new contiguous tensors of the dtype of `x`.

    Raises:
        ValueError: A dtype, device or shape is not as above.
    """
    result = call(ops.rms_qkv_gemm, x, weight, gamma, eps=eps, out=out, workspace=workspace)
    return cast("tuple[Tensor, Tensor]", result)


def check_rms_qkv_gemm(op: str, x: Tensor, weight: Weight, gamma: Tensor, **_: object) -> None:
    """The norm's check, then that of vector_matmul."""
    check_norm(op, x, gamma=gamma)
    check_linear(op, x, weight)


def rms_qkv_gemm_reference(
    x: Tensor, weight: Tensor, gamma: Tensor, *, eps: float = 1e-6
) -> tuple[Tensor, Tensor]:
    """U = RMS(x); u weight, and u."""
    u = rms_norm_reference(x, gamma, eps=eps)
    return vector_matmul_reference(u, weight), u


def _rms_qkv_gemm_gradients(ctx: Context, grad: Tensor | None, grad_u: Tensor | None) -> Gradients:
    x, weight, gamma, u = ctx.saved_tensors
    product_u, grad_weight = _product_of_norm_gradients(ctx.needs_input_grad[1], grad, u, weight)
    grad_norm = add_gradients(product_u, grad_u)
    if grad_norm is None:
        return None, None, None
    grad_x, grad_gamma = call(ops.rms_norm_backward, grad_norm, x, gamma, **ctx.keywords)
    return grad_x, grad_weight, grad_gamma


RMS_QKV_GEMM = Op(
    "rms_qkv_gemm(Tensor x, Tensor weight, Tensor gamma, *, float eps=1e-6) -> (Tensor, Tensor)",
    check=dense_check(check_rms_qkv_gemm, 1),
    reference=rms_qkv_gemm_reference,
    result=product_and_norm_result(),
    autograd=Autograd(_rms_qkv_gemm_gradients, save_with_norm),
    rows=("x",),
)


OPS = (QKV_GEMM, RMS_QKV_GEMM)
