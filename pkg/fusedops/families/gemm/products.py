"""Products with dense weights, without a norm before them.

A product is summed in float32 (float64 for float64) and rounded once.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from fusedops import checks
from fusedops.autograd import Autograd, Context, Gradients, sum_to_row
from fusedops.call import call, ops
from fusedops.families.bias_act import bias_gelu_reference, bias_relu_reference
from fusedops.families.gated import gated_activation_reference
from fusedops.families.gemm.weights import (
    Weight,
    check_bias,
    check_next,
    check_product,
    check_weight,
    dense_check,
    product_result,
)
from fusedops.op import Op

if TYPE_CHECKING:
    from fusedops.workspace import Workspace

PLAIN = ("gelu", "gelu_erf", "relu")
"""The activations of an MLP that are not gated."""


def vector_matmul(
    x: Tensor,
    weight: Tensor,
    *,
    out: Tensor | None = None,
    workspace: "Workspace | None" = None,
) -> Tensor:
    """Compute x weight.

    The sum is float32 (float64 for float64; TF32 where torch is told to use it), rounded once. Any
    strides of `weight` will do; with up to 16 rows of `x` it is fastest where either the rows or
    the columns of a 16-bit weight lie one after the other, without gaps between their elements.

    Differentiable in `x` and `weight`, any number of times.

    Args:
        x: Shape [..., K], at least one dimension; float32, float16, bfloat16 or float64.
        weight: Shape [K, M]; dtype and device of `x`. That of torch.nn.Linear is its transpose.
        out: Tensor for the result, contiguous and on 16 bytes, for inference. It shares no memory
            with an argument.
        workspace: Memory for the result, if there is no `out`, and for temporaries.

    Returns:
        A new contiguous tensor [..., M] of the dtype of `x`.

    Raises:
        ValueError: A dtype, device or shape is not as above.
    """
    return cast("Tensor", call(ops.vector_matmul, x, weight, out=out, workspace=workspace))


def check_linear(op: str, x: Tensor, weight: Weight, bias: Tensor | None = None) -> None:
    """The check of vector_matmul and linear_layer."""
    check_product(op, x, weight)
    if bias is not None:
        check_bias(op, bias, x, weight)


def vector_matmul_reference(x: Tensor, weight: Tensor) -> Tensor:
    """X weight."""
    return linear_layer_reference(x, weight)


def product_gradients(
    needs: Sequence[bool], grad: Tensor, x: Tensor, weight: Tensor
) -> tuple[Tensor | None, Tensor | None]:
    """Gradients of x weight with respect to both, None where it is not needed."""
    return (
        grad @ weight.t() if needs[0] else None,
        matrix_of(x).t() @ matrix_of(grad) if needs[1] else None,
    )


def matrix_of(tensor: Tensor) -> Tensor:
    """The tensor's rows. flatten() would do, but has no rule for a batch of gradients."""
    *rows, columns = tensor.shape
    return tensor.reshape(math.prod(rows), columns)


def _vector_matmul_gradients(ctx: Context, grad: Tensor) -> Gradients:
    return product_gradients(ctx.needs_input_grad[:2], grad, *ctx.saved_tensors)


VECTOR_MATMUL = Op(
    "vector_matmul(Tensor x, Tensor weight) -> Tensor",
    check=dense_check(check_linear, 1),
    reference=vector_matmul_reference,
    result=product_result(),
    autograd=Autograd(_vector_matmul_gradients),
    rows=("x",),
)


def linear_layer(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    out: Tensor | None = None,
    workspace: "Workspace | None" = None,
) -> Tensor:
    """Compute x weight + bias: see `vector_matmul`. The bias is added before the rounding.

    Differentiable in all tensors, any number of times.

    Args:
        x: Shape [..., K], at least one dimension; float32, float16, bfloat16 or float64.
        weight: Shape [K, M]; dtype and device of `x`.
        bias: Shape [M]; dtype and device of `x`.
        out: Tensor for the result, contiguous and on 16 bytes, for inference. It shares no memory
            with an argument.
        workspace: Memory for the result, if there is no `out`, and for temporaries.

    Returns:
        A new contiguous tensor [..., M] of the dtype of `x`.

    Raises:
        ValueError: A dtype, device or shape is not as above.
    """
    return cast("Tensor", call(ops.linear_layer, x, weight, bias, out=out, workspace=workspace))


def linear_layer_reference(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """X weight [+ bias]."""
    out = x.new_empty(*x.shape[:-1], weight.shape[1])
    rows = math.prod(x.shape[:-1])
    a, into = x.reshape(rows, x.shape[-1]), out.view(rows, weight.shape[1])
    if bias is None:
        torch.mm(a, weight, out=into)
    else:
        torch.addmm(bias, a, weight, out=into)
    return out


def _linear_layer_gradients(ctx: Context, grad: Tensor) -> Gradients:
    needs = ctx.needs_input_grad
    grad_x, grad_weight = product_gradients(needs[:2], grad, *ctx.saved_tensors[:2])
    # torch leaves out a bias that is None.
    return grad_x, grad_weight, *(sum_to_row(grad) if bias else None for bias in needs[2:])


LINEAR_LAYER = Op(
    "linear_layer(Tensor x, Tensor weight, Tensor? bias=None) -> Tensor",
    check=dense_check(check_linear, 1),
    reference=linear_layer_reference,
    result=product_result(),
    autograd=Autograd(_linear_layer_gradients),
    rows=("x",),
)


def fused_gemm_gelu(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    weight2: Tensor,
    *,
    out: Tensor | None = None,
    workspace: "Workspace | None" = None,
) -> Tensor:
    """Compute GELU(x weight + bias) weight2, with the tanh form of GELU: see `bias_gelu`.

    What is between the products has the dtype of `x`: it is rounded once, after GELU, or also
    before it where the library's product has no GELU in it.

    Differentiable once in all tensors.

    Args:
        x: Shape [..., K], at least one dimension; float32, float16, bfloat16 or float64.
        weight: Shape [K, F]; dtype and device of `x`.
        bias: Shape [F]; dtype and device of `x`.
        weight2: Shape [F, M]; dtype and device of `x`.
        out: Tensor for the result, contiguous and on 16 bytes, for inference. It shares no memory
            with an argument.
        workspace: Memory for the result, if there is no `out`, and for temporaries.

    Returns:
        A new contiguous tensor [..., M] of the dtype of `x`.

    Raises:
        ValueError: A dtype, device or shape is not as above.
    """
    return cast(
        "Tensor", call(ops.fused_gemm_gelu, x, weight, bias, weight2, out=out, workspace=workspace)
    )


def check_gemm_gelu(op: str, x: Tensor, weight: Weight, bias: Tensor, weight2: Weight) -> None:
    """`weight2` must take the rows that `weight` gives."""
    check_linear(op, x, weight, bias)
    check_next(op, x, weight, weight2)


def fused_gemm_gelu_reference(x: Tensor, weight: Tensor, bias: Tensor, weight2: Tensor) -> Tensor:
    """GELU(x weight + bias) weight2."""
    return mlp_reference(x, weight, bias, weight2, "gelu")


def mlp_reference(
    u: Tensor, weight: Tensor, bias: Tensor | None, weight2: Tensor, activation: str
) -> Tensor:
    """f(u weight [+ bias]) weight2; the activation takes and gives the tensors' type too."""
    hidden = activated(vector_matmul_reference(u, weight), bias, activation)
    return vector_matmul_reference(hidden, weight2)


def activated(v: Tensor, bias: Tensor | None, activation: str) -> Tensor:
    """F(v [+ bias])."""
    if activation not in PLAIN:
        return gated_activation_reference(v, bias, kind=activation)
    row = v.new_zeros(v.shape[-1]) if bias is None else bias
    if activation == "relu":
        return bias_relu_reference(v, row)
    form = "tanh" if activation == "gelu" else "none"
    return bias_gelu_reference(v, row, approximate=form)


def mlp_gradients(
    needs: Sequence[bool],
    grad: Tensor,
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    weight2: Tensor,
    activation: str,
) -> tuple[Tensor | None, Tensor | None, Tensor, Tensor | None]:
    """Gradients of f(x weight + bias) weight2 with respect to these tensors, in their order.

    `needs` is about x, weight and weight2.
    """
    v = call(ops.vector_matmul, x, weight)
    if activation not in PLAIN:
        forward, backward = ops.gated_activation, ops.gated_activation_backward
        form: dict[str, Any] = {"kind": activation}
    elif activation == "relu":
        forward, backward, form = ops.bias_relu, ops.bias_relu_backward, {}
    else:
        forward, backward = ops.bias_gelu, ops.bias_gelu_backward
        form = {"approximate": "tanh" if activation == "gelu" else "none"}
    hidden = call(forward, v, bias, **form)
    grad_hidden, grad_weight2 = product_gradients((True, needs[2]), grad, hidden, weight2)
    grad_v, grad_bias = call(backward, grad_hidden, v, bias, **form)
    return *product_gradients(needs[:2], grad_v, x, weight), grad_bias, grad_weight2


def _fused_gemm_gelu_gradients(ctx: Context, grad: Tensor) -> Gradients:
    x, weight, bias, weight2 = ctx.saved_tensors
    needs = ctx.needs_input_grad
    return mlp_gradients((*needs[:2], needs[3]), grad, x, weight, bias, weight2, "gelu")


FUSED_GEMM_GELU = Op(
    "fused_gemm_gelu(Tensor x, Tensor weight, Tensor bias, Tensor weight2) -> Tensor",
    check=dense_check(check_gemm_gelu, 1, 3),
    reference=fused_gemm_gelu_reference,
    result=product_result(3),
    autograd=Autograd(_fused_gemm_gelu_gradients),
    rows=("x",),
)


def einsum_sec_sm_ecm(
    q: Tensor,
    weight: Tensor,
    *,
    out: Tensor | None = None,
    workspace: "Workspace | None" = None,
) -> Tensor:
    """Compute the sum over s of q[s, e, c] weight[s, m]: tokens s go to places c of experts e.

    It is torch.einsum("sec,sm->ecm", q, weight) (Lepikhin et al., "GShard", 2020), as one product
    of matrices.

    Differentiable in both tensors, any number of times.

    Args:
        q: Shape [S, E, C]; float32, float16, bfloat16 or float64.
        weight: Shape [S, M]; dtype and device of `q`.
        out: Tensor for the result, contiguous and on 16 bytes, for inference. It shares no memory
            with an argument.
        workspace: Memory for the result, if there is no `out`, and for temporaries.

    Returns:
        A new contiguous tensor [E, C, M] of the dtype of `q`.

    Raises:
        ValueError: A dtype, device or shape is not as above.
    """
    return cast("Tensor", call(ops.einsum_sec_sm_ecm, q, weight, out=out, workspace=workspace))


def _check_einsum(op: str, q: Tensor, weight: Weight) -> None:
    checks.check_floating(op, "q", q)
    if q.dim() != 3:
        checks.fail(op, "q", "3 dimensions", q.dim())
    check_weight(op, weight, "q", q, q.shape[0], "the first dimension of q")


def einsum_sec_sm_ecm_reference(q: Tensor, weight: Tensor) -> Tensor:
    """The sum over s of q[s, e, c] weight[s, m]."""
    return vector_matmul_reference(q.permute(1, 2, 0), weight)


def _einsum_result(q: Tensor, weight: Tensor) -> Tensor:
    return q.new_empty(*q.shape[1:], weight.shape[1])


def _einsum_gradients(ctx: Context, grad: Tensor) -> Gradients:
    q, weight = ctx.saved_tensors
    needs = ctx.needs_input_grad[:2]
    grad_ecs, grad_weight = product_gradients(needs, grad, q.permute(1, 2, 0), weight)
    return None if grad_ecs is None else grad_ecs.permute(2, 0, 1), grad_weight


EINSUM_SEC_SM_ECM = Op(
    "einsum_sec_sm_ecm(Tensor q, Tensor weight) -> Tensor",
    check=dense_check(_check_einsum, 1),
    reference=einsum_sec_sm_ecm_reference,
    result=_einsum_result,
    autograd=Autograd(_einsum_gradients),
    rows=(),
)

OPS = (VECTOR_MATMUL, LINEAR_LAYER, FUSED_GEMM_GELU, EINSUM_SEC_SM_ECM)
