"""Layer norm and RMS norm, with what is added before them."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from fusedops import checks
from fusedops.arithmetic import narrow, sum_over_rows, widen
from fusedops.autograd import NO_SECOND_DERIVATIVE, Autograd, Context, Gradients, sum_to_row
from fusedops.call import call, ops
from fusedops.op import Op

if TYPE_CHECKING:
    from fusedops.workspace import Workspace

__all__ = [
    "layer_norm",
    "layer_norm_residual",
    "layer_norm_residual_store",
    "pre_rms_norm",
    "rms_norm",
]


def check_norm(op: str, x: Tensor, **operands: Tensor) -> None:
    """`residual` must be a matrix like x, every other operand one row of it."""
    checks.check_rows(op, "x", x)
    for name, operand in operands.items():
        check = checks.check_alike if name == "residual" else checks.check_row_like
        check(op, name, operand, "x", x)


def _save_sum(gamma: int) -> Callable[..., None]:
    """Save the stored sum and gamma, the argument of that index.

    The sum takes half the memory of its summands.
    """

    def setup_context(
        ctx: Context,
        inputs: tuple[Tensor, ...],
        keyword_only_inputs: dict[str, Any],
        output: tuple[Tensor, Tensor],
    ) -> None:
        ctx.save_for_backward(output[1], inputs[gamma])
        ctx.keywords = dict(keyword_only_inputs)
        ctx.set_materialize_grads(False)

    return setup_context


def _zeros_if_none(grad: Tensor | None, s: Tensor) -> Tensor:
    """The gradient of the norm, which may be unused."""
    return torch.zeros_like(s) if grad is None else grad


def _two_like_first(first: Tensor, *_: object, **__: object) -> tuple[Tensor, Tensor]:
    return first.new_empty(first.shape), first.new_empty(first.shape)


def layer_norm(
    x: Tensor,
    gamma: Tensor,
    beta: Tensor,
    *,
    eps: float = 1e-5,
    out: Tensor | None = None,
    workspace: "Workspace | None" = None,
) -> Tensor:
    """Compute LN(x) = (x - mean) / sqrt(variance + eps) * gamma + beta, row by row.

    Mean and variance are over the last dimension, the variance that of the whole row (over N, not
    N - 1): Ba, Kiros & Hinton, "Layer Normalization", 2016. They are taken one after the other in
    float32 (float64 for float64), and what follows is rounded once. A NaN or an infinity makes its
    row NaN.

    Differentiable once in all tensors; the gradients of gamma and beta are summed in an order that
    depends on the shape alone, so two runs give the same bits.

    Args:
        x: Shape [..., N], at least one dimension; float32, float16, bfloat16 or float64.
        gamma: Shape [N]; dtype and device of `x`.
        beta: Shape [N]; dtype and device of `x`.
        eps: Added to the variance.
        out: Tensor for the result, contiguous and on 16 bytes, for inference. It shares no memory
            with an argument.
        workspace: Memory for the result, if there is no `out`, and for temporaries.

    Returns:
        A new contiguous tensor of the shape and dtype of `x`.

    Raises:
        ValueError: A dtype, device or shape is not as above.
    """
    return cast(
        "Tensor", call(ops.layer_norm, x, gamma, beta, eps=eps, out=out, workspace=workspace)
    )


def _check_layer_norm(op: str, x: Tensor, gamma: Tensor, beta: Tensor, **_: object) -> None:
    check_norm(op, x, gamma=gamma, beta=beta)


def layer_norm_reference(x: Tensor, gamma: Tensor, beta: Tensor, *, eps: float = 1e-5) -> Tensor:
    """LN(x)."""
    return _layer_norm(widen(x), gamma, beta, eps)


def _layer_norm_gradients(ctx: Context, grad: Tensor) -> Gradients:
    x, gamma, _ = ctx.saved_tensors
    return tuple(call(ops.layer_norm_backward, grad, x, gamma, **ctx.keywords))


LAYER_NORM = Op(
    "layer_norm(Tensor x, Tensor gamma, Tensor beta, *, float eps=1e-5) -> Tensor",
    check=_check_layer_norm,
    reference=layer_norm_reference,
    autograd=Autograd(_layer_norm_gradients),
    rows=("x",),
)


def layer_norm_residual(
    x: Tensor,
    bias: Tensor,
    residual: Tensor,
    gamma: Tensor,
    beta: Tensor,
    *,
    eps: float = 1e-5,
    out: Tensor | None = None,
    workspace: "Workspace | None" = None,
) -> Tensor:
    """Compute LN(x + bias + residual), row by row: see `layer_norm`.

    The sum is float32 (float64 for float64) and goes into the norm as it is, unrounded.
    Differentiable once in all tensors; the backward pass finds the sum again.

    Args:
        x: Shape [..., N], at least one dimension; float32, float16, bfloat16 or float64.
        bias: Shape [N]; dtype and device of `x`.
        residual: Shape, dtype and device of `x`.
        gamma: Shape [N]; dtype and device of `x`.
        beta: Shape [N]; dtype and device of `x`.
        eps: Added to the variance.
        out: Tensor for the result, contiguous and on 16 bytes, for inference. It shares no memory
            with an argument.
        workspace: Memory for the result, if there is no `out`, and for temporaries.

    Returns:
        A new contiguous tensor of the shape and dtype of `x`.

    Raises:
        ValueError: A dtype, device or shape is not as above.
    """
    op = ops.layer_norm_residual
    return cast(
        "Tensor", call(op, x, bias, residual, gamma, beta, eps=eps, out=out, workspace=workspace)
    )


def _check_layer_norm_residual(
    op: str, x: Tensor, bias: Tensor, residual: Tensor, gamma: Tensor, beta: Tensor, **_: object
) -> None:
    check_norm(op, x, bias=bias, residual=residual, gamma=gamma, beta=beta)


def layer_norm_residual_reference(
    x: Tensor, bias: Tensor, residual: Tensor, gamma: Tensor, beta: Tensor, *, eps: float = 1e-5
) -> Tensor:
    """LN(x + bias + residual)."""
    return _layer_norm(widen(x) + widen(bias) + widen(residual), gamma, beta, eps)


def _layer_norm_residual_gradients(ctx: Context, grad: Tensor) -> Gradients:
    saved = ctx.saved_tensors  # once: torch.utils.checkpoint lets nobody read it again
    gamma = saved[3]
    # The sum is not saved: it is computed again.
    _, s = call(ops.layer_norm_residual_store, *saved, **ctx.keywords)
    grad_s, grad_gamma, grad_beta = call(ops.layer_norm_backward, grad, s, gamma, **ctx.keywords)
    return grad_s, sum_to_row(grad_s), grad_s, grad_gamma, grad_beta


LAYER_NORM_RESIDUAL = Op(
    "layer_norm_residual(Tensor x, Tensor bias, Tensor residual, Tensor gamma, Tensor beta, *, "
    "float eps=1e-5) -> Tensor",
    check=_check_layer_norm_residual,
    reference=layer_norm_residual_reference,
    autograd=Autograd(_layer_norm_residual_gradients),
    rows=("x", "residual"),
)


def layer_norm_residual_store(
    x: Tensor,
    bias: Tensor,
    residual: Tensor,
    gamma: Tensor,
    beta: Tensor,
    *,
    eps: float = 1e-5,
    out: tuple[Tensor, Tensor] | None = None,
    workspace: "Workspace | None" = None,
) -> tuple[Tensor, Tensor]:
    """Compute LN(s) and s = x + bias + residual, row by row: see `layer_norm`.

    The norm is of the float32 sum (float64 for float64); the stored sum is that one rounded.
    Differentiable once in all tensors, from the stored sum.

    Args:
        x: Shape [..., N], at least one dimension; float32, float16, bfloat16 or float64.
        bias: Shape [N]; dtype and device of `x`.
        residual: Shape, dtype and device of `x`.
        gamma: Shape [N]; dtype and device of `x`.
        beta: Shape [N]; dtype and device of `x`.
        eps: Added to the variance.
        out: Tensors for the results, contiguous and on 16 bytes, for inference. They share no
            memory with an argument or each other.
        workspace: Memory for the results, if there is no `out`, and for temporaries.

    Returns:
        The norm and the sum, new contiguous tensors of the shape and dtype of `x`.

    Raises:
        ValueError: A dtype, device or shape is not as above.
    """
    op = ops.layer_norm_residual_store
    return cast(
        "tuple[Tensor, Tensor]",
        call(op, x, bias, residual, gamma, beta, eps=eps, out=out, workspace=workspace),
    )


def layer_norm_residual_store_reference(
    x: Tensor, bias: Tensor, residual: Tensor, gamma: Tensor, beta: Tensor, *, eps: float = 1e-5
) -> tuple[Tensor, Tensor]:
    """LN(s) and s = x + bias + residual; the norm is of s before it is rounded."""
    s = widen(x) + widen(bias) + widen(residual)
    return _layer_norm(s, gamma, beta, eps), narrow(s, x)


def _layer_norm_residual_store_gradients(
    ctx: Context, grad: Tensor | None, grad_sum: Tensor | None
) -> Gradients:
    s, gamma = ctx.saved_tensors
    grad_s, grad_gamma, grad_beta = call(
        ops.layer_norm_backward, _zeros_if_none(grad, s), s, gamma, grad_sum, **ctx.keywords
    )
    return grad_s, sum_to_row(grad_s), grad_s, grad_gamma, grad_beta


LAYER_NORM_RESIDUAL_STORE = Op(
    "layer_norm_residual_store(Tensor x, Tensor bias, Tensor residual, Tensor gamma, Tensor beta, "
    "*, float eps=1e-5) -> (Tensor, Tensor)",
    check=_check_layer_norm_residual,
    reference=layer_norm_residual_store_reference,
    result=_two_like_first,
    autograd=Autograd(_layer_norm_residual_store_gradients, _save_sum(gamma=3)),
    rows=("x", "residual"),
)


def rms_norm(
    x: Tensor,
    gamma: Tensor,
    *,
    eps: float = 1e-6,
    out: Tensor | None = None,
    workspace: "Workspace | None" = None,
) -> Tensor:
    """Compute RMS(x) = x / sqrt(mean(x^2) + eps) * gamma, row by row.

    The mean is over the last dimension: Zhang & Sennrich, "Root Mean Square Layer Normalization",
    2019. Arithmetic is float32 (float64 for float64), rounded once. A NaN makes its row NaN.

    Differentiable once in both tensors; the gradient of gamma is summed in an order that depends
    on the shape alone, so two runs give the same bits.

    Args:
        x: Shape [..., N], at least one dimension; float32, float16, bfloat16 or float64.
        gamma: Shape [N]; dtype and device of `x`.
        eps: Added to the mean square.
        out: Tensor for the result, contiguous and on 16 bytes, for inference. It shares no memory
            with an argument.
        workspace: Memory for the result, if there is no `out`, and for temporaries.

    Returns:
        A new contiguous tensor of the shape and dtype of `x`.

    Raises:
        ValueError: A dtype, device or shape is not as above.
    """
    return cast("Tensor", call(ops.rms_norm, x, gamma, eps=eps, out=out, workspace=workspace))


def _check_rms_norm(op: str, x: Tensor, gamma: Tensor, **_: object) -> None:
    check_norm(op, x, gamma=gamma)


def rms_norm_reference(x: Tensor, gamma: Tensor, *, eps: float = 1e-6) -> Tensor:
    """RMS(x)."""
    return _rms_norm(widen(x), gamma, eps)


def _rms_norm_gradients(ctx: Context, grad: Tensor) -> Gradients:
    x, gamma = ctx.saved_tensors
    return tuple(call(ops.rms_norm_backward, grad, x, gamma, **ctx.keywords))


RMS_NORM = Op(
    "rms_norm(Tensor x, Tensor gamma, *, float eps=1e-6) -> Tensor",
    check=_check_rms_norm,
    reference=rms_norm_reference,
    autograd=Autograd(_rms_norm_gradients),
    rows=("x",),
)


def pre_rms_norm(
    x: Tensor,
    residual: Tensor,
    gamma: Tensor,
    *,
    eps: float = 1e-6,
    out: tuple[Tensor, Tensor] | None = None,
    workspace: "Workspace | None" = None,
) -> tuple[Tensor, Tensor]:
    """Compute RMS(s) and s = x + residual, row by row: see `rms_norm`.

    The norm is of the float32 sum (float64 for float64); the stored sum is that one rounded.
    Differentiable once in all tensors, from the stored sum.

    Args:
        x: Shape [..., N], at least one dimension; float32, float16, bfloat16 or float64.
        residual: Shape, dtype and device of `x`.
        gamma: Shape [N]; dtype and device of `x`.
        eps: Added to the mean square.
        out: Tensors for the results, contiguous and on 16 bytes, for inference. They share no
            memory with an argument or each other.
        workspace: Memory for the results, if there is no `out`, and for temporaries.

    Returns:
        The norm and the sum, new contiguous tensors of the shape and dtype of `x`.

    Raises:
        ValueError: A dtype, device or shape is not as above.
    """
    op = ops.pre_rms_norm
    return cast(
        "tuple[Tensor, Tensor]", call(op, x, residual, gamma, eps=eps, out=out, workspace=workspace)
    )


def _check_pre_rms_norm(op: str, x: Tensor, residual: Tensor, gamma: Tensor, **_: object) -> None:
    check_norm(op, x, residual=residual, gamma=gamma)


def pre_rms_norm_reference(
    x: Tensor, residual: Tensor, gamma: Tensor, *, eps: float = 1e-6
) -> tuple[Tensor, Tensor]:
    """RMS(s) and s = x + residual; the norm is of s before it is rounded."""
    s = widen(x) + widen(residual)
    return _rms_norm(s, gamma, eps), narrow(s, x)


def _pre_rms_norm_gradients(
    ctx: Context, grad: Tensor | None, grad_sum: Tensor | None
) -> Gradients:
    s, gamma = ctx.saved_tensors
    grad_s, grad_gamma = call(
        ops.rms_norm_backward, _zeros_if_none(grad, s), s, gamma, grad_sum, **ctx.keywords
    )
    return grad_s, grad_s, grad_gamma


PRE_RMS_NORM = Op(
    "pre_rms_norm(Tensor x, Tensor residual, Tensor gamma, *, float eps=1e-6) -> (Tensor, Tensor)",
    check=_check_pre_rms_norm,
    reference=pre_rms_norm_reference,
    result=_two_like_first,
    autograd=Autograd(_pre_rms_norm_gradients, _save_sum(gamma=2)),
    rows=("x", "residual"),
)


def _check_norm_backward(
    op: str, grad: Tensor, x: Tensor, gamma: Tensor, grad_sum: Tensor | None = None, **_: object
) -> None:
    check_norm(op, x, gamma=gamma)
    for name, matrix in (("grad", grad), ("grad_sum", grad_sum)):
        if matrix is not None:
            checks.check_alike(op, name, matrix, "x", x)


def layer_norm_backward_reference(
    grad: Tensor, x: Tensor, gamma: Tensor, grad_sum: Tensor | None = None, *, eps: float = 1e-5
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of LN(x) with respect to x, gamma and beta."""
    n, scale = _normalised(_centered(widen(x)), eps)
    g = widen(grad) * widen(gamma)
    grad_x = (_centered(g) - n * (g * n).mean(-1, keepdim=True)) * scale
    return (
        narrow(_plus(grad_x, grad_sum), x),
        sum_over_rows(widen(grad) * n, x),
        sum_over_rows(widen(grad), x),
    )


def _like_x_gamma_and_beta(
    grad: Tensor, x: Tensor, gamma: Tensor, *_: object, **__: object
) -> tuple[Tensor, Tensor, Tensor]:
    del grad
    return x.new_empty(x.shape), gamma.new_empty(gamma.shape), gamma.new_empty(gamma.shape)


LAYER_NORM_BACKWARD = Op(
    "layer_norm_backward(Tensor grad, Tensor x, Tensor gamma, Tensor? grad_sum=None, *, "
    "float eps=1e-5) -> (Tensor, Tensor, Tensor)",
    check=_check_norm_backward,
    reference=layer_norm_backward_reference,
    result=_like_x_gamma_and_beta,
    autograd=NO_SECOND_DERIVATIVE,
    public=False,
)


def rms_norm_backward_reference(
    grad: Tensor, x: Tensor, gamma: Tensor, grad_sum: Tensor | None = None, *, eps: float = 1e-6
) -> tuple[Tensor, Tensor]:
    """Gradients of RMS(x) with respect to x and gamma."""
    n, scale = _normalised(widen(x), eps)
    g = widen(grad) * widen(gamma)
    grad_x = (g - n * (g * n).mean(-1, keepdim=True)) * scale
    return narrow(_plus(grad_x, grad_sum), x), sum_over_rows(widen(grad) * n, x)


def _like_x_and_gamma(
    grad: Tensor, x: Tensor, gamma: Tensor, *_: object, **__: object
) -> tuple[Tensor, Tensor]:
    del grad
    return x.new_empty(x.shape), gamma.new_empty(gamma.shape)


RMS_NORM_BACKWARD = Op(
    "rms_norm_backward(Tensor grad, Tensor x, Tensor gamma, Tensor? grad_sum=None, *, "
    "float eps=1e-6) -> (Tensor, Tensor)",
    check=_check_norm_backward,
    reference=rms_norm_backward_reference,
    result=_like_x_and_gamma,
    autograd=NO_SECOND_DERIVATIVE,
    public=False,
)

OPS = (
    LAYER_NORM,
    LAYER_NORM_RESIDUAL,
    LAYER_NORM_RESIDUAL_STORE,
    RMS_NORM,
    PRE_RMS_NORM,
    LAYER_NORM_BACKWARD,
    RMS_NORM_BACKWARD,
)


def _layer_norm(s: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    n, _ = _normalised(_centered(s), eps)
    return narrow(n * widen(gamma) + widen(beta), gamma)


def _rms_norm(s: Tensor, gamma: Tensor, eps: float) -> Tensor:
    n, _ = _normalised(s, eps)
    return narrow(n * widen(gamma), gamma)


def _centered(s: Tensor) -> Tensor:
    return s - s.mean(-1, keepdim=True)


def _normalised(s: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """The rows of s over the root of their mean square, and the inverse of that root."""
    scale = torch.rsqrt(s.square().mean(-1, keepdim=True) + eps)
    return s * scale, scale


def _plus(wide: Tensor, more: Tensor | None) -> Tensor:
    return wide if more is None else wide + widen(more)
