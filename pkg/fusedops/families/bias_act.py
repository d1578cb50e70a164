"""A bias along the last dimension, and an activation: operators of x[..., N] and bias[N]."""

from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

from fusedops import arithmetic, checks
from fusedops.arithmetic import narrow, sum_over_rows, widen
from fusedops.autograd import (
    NO_SECOND_DERIVATIVE,
    Autograd,
    Context,
    Gradients,
    save_keywords,
    sum_to_row,
)
from fusedops.call import call, ops
from fusedops.op import Op

if TYPE_CHECKING:
    from fusedops.workspace import Workspace

__all__ = ["bias_add", "bias_gelu", "bias_relu"]


def _check_bias(op: str, x: Tensor, bias: Tensor, *, approximate: str = "tanh") -> None:
    """The check of every operator here, and of what their gradients have in common."""
    if approximate not in ("tanh", "none"):
        checks.fail(op, "approximate", "'tanh' or 'none'", repr(approximate))
    checks.check_rows(op, "x", x)
    checks.check_row_like(op, "bias", bias, "x", x)


def bias_add(
    x: Tensor,
    bias: Tensor,
    *,
    out: Tensor | None = None,
    workspace: "Workspace | None" = None,
) -> Tensor:
    """Compute x + bias, the bias along the last dimension.

    Differentiable in `x` and `bias`.

    Args:
        x: Shape [..., N], at least one dimension; float32, float16, bfloat16 or float64.
        bias: Shape [N]; dtype and device of `x`.
        out: Tensor for the result, contiguous and on 16 bytes, for inference. It may be an argument
            of its shape, and shares no other memory with one.
        workspace: Memory for the result, if there is no `out`, and for temporaries.

    Returns:
        A new contiguous tensor of the shape and dtype of `x`.

    Raises:
        ValueError: A dtype, device or shape is not as above.
    """
    return cast("Tensor", call(ops.bias_add, x, bias, out=out, workspace=workspace))


def bias_add_reference(x: Tensor, bias: Tensor) -> Tensor:
    """X + bias."""
    return narrow(widen(x) + widen(bias), x)


def _bias_add_gradients(ctx: Context, grad: Tensor) -> Gradients:
    del ctx
    return grad, sum_to_row(grad)


BIAS_ADD = Op(
    "bias_add(Tensor x, Tensor bias) -> Tensor",
    check=_check_bias,
    reference=bias_add_reference,
    autograd=Autograd(_bias_add_gradients, save_keywords),
    over_arguments=True,
    rows=("x",),
)


def bias_relu(
    x: Tensor,
    bias: Tensor,
    *,
    out: Tensor | None = None,
    workspace: "Workspace | None" = None,
) -> Tensor:
    """Compute max(x + bias, 0), the bias along the last dimension.

    Differentiable in `x` and `bias`; the slope at 0 is 0. NaN stays NaN.

    Args:
        x: Shape [..., N], at least one dimension; float32, float16, bfloat16 or float64.
        bias: Shape [N]; dtype and device of `x`.
        out: Tensor for the result, contiguous and on 16 bytes, for inference. It may be an argument
            of its shape, and shares no other memory with one.
        workspace: Memory for the result, if there is no `out`, and for temporaries.

    Returns:
        A new contiguous tensor of the shape and dtype of `x`.

    Raises:
        ValueError: A dtype, device or shape is not as above.
    """
    return cast("Tensor", call(ops.bias_relu, x, bias, out=out, workspace=workspace))


def bias_relu_reference(x: Tensor, bias: Tensor) -> Tensor:
    """max(x + bias, 0)."""
    return narrow(torch.relu(widen(x) + widen(bias)), x)


def _bias_relu_gradients(ctx: Context, grad: Tensor) -> Gradients:
    x, bias = ctx.saved_tensors
    return tuple(call(ops.bias_relu_backward, grad, x, bias))


BIAS_RELU = Op(
    "bias_relu(Tensor x, Tensor bias) -> Tensor",
    check=_check_bias,
    reference=bias_relu_reference,
    autograd=Autograd(_bias_relu_gradients),
    over_arguments=True,
    rows=("x",),
)


def bias_gelu(
    x: Tensor,
    bias: Tensor,
    *,
    approximate: str = "tanh",
    out: Tensor | None = None,
    workspace: "Workspace | None" = None,
) -> Tensor:
    """Compute GELU(x + bias), the bias along the last dimension.

    With v = x + bias, `approximate="tanh"` is 0.5 v (1 + tanh(sqrt(2/pi) (v + 0.044715 v^3))) and
    `approximate="none"` is 0.5 v (1 + erf(v / sqrt(2))); both from Hendrycks & Gimpel, "Gaussian
    Error Linear Units", 2016. Arithmetic is float32 (float64 for float64), rounded once. At -inf
    and +inf the result is the formula's limit, 0 and inf; NaN stays NaN.

    Differentiable once in `x` and `bias`; the gradient of the bias is summed in an order that
    depends on the shape alone, so two runs give the same bits.

    Args:
        x: Shape [..., N], at least one dimension; float32, float16, bfloat16 or float64.
        bias: Shape [N]; dtype and device of `x`.
        approximate: "tanh" or "none".
        out: Tensor for the result, contiguous and on 16 bytes, for inference. It may be an argument
            of its shape, and shares no other memory with one.
        workspace: Memory for the result, if there is no `out`, and for temporaries.

    Returns:
        A new contiguous tensor of the shape and dtype of `x`.

    Raises:
        ValueError: A dtype, device or shape is not as above, or `approximate` is another word.
    """
    return cast(
        "Tensor",
        call(ops.bias_gelu, x, bias, approximate=approximate, out=out, workspace=workspace),
    )


def bias_gelu_reference(x: Tensor, bias: Tensor, *, approximate: str = "tanh") -> Tensor:
    """GELU of x + bias."""
    return narrow(arithmetic.gelu(widen(x) + widen(bias), approximate), x)


def _bias_gelu_gradients(ctx: Context, grad: Tensor) -> Gradients:
    x, bias = ctx.saved_tensors
    return tuple(call(ops.bias_gelu_backward, grad, x, bias, **ctx.keywords))


BIAS_GELU = Op(
    'bias_gelu(Tensor x, Tensor bias, *, str approximate="tanh") -> Tensor',
    check=_check_bias,
    reference=bias_gelu_reference,
    autograd=Autograd(_bias_gelu_gradients),
    over_arguments=True,
    rows=("x",),
)


def _check_bias_backward(
    op: str, grad: Tensor, x: Tensor, bias: Tensor, *, approximate: str = "tanh"
) -> None:
    _check_bias(op, x, bias, approximate=approximate)
    checks.check_alike(op, "grad", grad, "x", x)


def bias_relu_backward_reference(grad: Tensor, x: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of bias_relu with respect to x and bias."""
    wide = arithmetic.relu_backward(widen(grad), widen(x) + widen(bias))
    return narrow(wide, x), sum_over_rows(wide, x)


def bias_gelu_backward_reference(
    grad: Tensor, x: Tensor, bias: Tensor, *, approximate: str = "tanh"
) -> tuple[Tensor, Tensor]:
    """Gradients of bias_gelu with respect to x and bias."""
    wide = arithmetic.gelu_backward(widen(grad), widen(x) + widen(bias), approximate)
    return narrow(wide, x), sum_over_rows(wide, x)


def _like_x_and_bias(grad: Tensor, x: Tensor, bias: Tensor, **_: object) -> tuple[Tensor, Tensor]:
    del grad
    return x.new_empty(x.shape), bias.new_empty(bias.shape)


BIAS_RELU_BACKWARD = Op(
    "bias_relu_backward(Tensor grad, Tensor x, Tensor bias) -> (Tensor, Tensor)",
    check=_check_bias_backward,
    reference=bias_relu_backward_reference,
    result=_like_x_and_bias,
    autograd=NO_SECOND_DERIVATIVE,
    public=False,
)

BIAS_GELU_BACKWARD = Op(
    'bias_gelu_backward(Tensor grad, Tensor x, Tensor bias, *, str approximate="tanh")'
    " -> (Tensor, Tensor)",
    check=_check_bias_backward,
    reference=bias_gelu_backward_reference,
    result=_like_x_and_bias,
    autograd=NO_SECOND_DERIVATIVE,
    public=False,
)

OPS = (BIAS_ADD, BIAS_RELU, BIAS_GELU, BIAS_RELU_BACKWARD, BIAS_GELU_BACKWARD)
