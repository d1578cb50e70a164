"""The norms as called."""

from typing import cast

from torch import Tensor

from fusedops.call import call, ops


def layer_norm(x: Tensor, gamma: Tensor, beta: Tensor, *, eps: float = 1e-5) -> Tensor:
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

    Returns:
        A new contiguous tensor of the shape and dtype of `x`.

    Raises:
        ValueError: A dtype, device or shape is not as above (RuntimeError from a native kernel).
    """
    return cast("Tensor", call(ops.layer_norm, x, gamma, beta, eps=eps))


def layer_norm_residual(
    x: Tensor, bias: Tensor, residual: Tensor, gamma: Tensor, beta: Tensor, *, eps: float = 1e-5
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

    Returns:
        A new contiguous tensor of the shape and dtype of `x`.

    Raises:
        ValueError: A dtype, device or shape is not as above (RuntimeError from a native kernel).
    """
    op = ops.layer_norm_residual
    return cast("Tensor", call(op, x, bias, residual, gamma, beta, eps=eps))


def layer_norm_residual_store(
    x: Tensor, bias: Tensor, residual: Tensor, gamma: Tensor, beta: Tensor, *, eps: float = 1e-5
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

    Returns:
        The norm and the sum, new contiguous tensors of the shape and dtype of `x`.

    Raises:
        ValueError: A dtype, device or shape is not as above (RuntimeError from a native kernel).
    """
    op = ops.layer_norm_residual_store
    return cast("tuple[Tensor, Tensor]", call(op, x, bias, residual, gamma, beta, eps=eps))


def rms_norm(x: Tensor, gamma: Tensor, *, eps: float = 1e-6) -> Tensor:
    """Compute RMS(x) = x / sqrt(mean(x^2) + eps) * gamma, row by row.

    The mean is over the last dimension: Zhang & Sennrich, "Root Mean Square Layer Normalization",
    2019. Arithmetic is float32 (float64 for float64), rounded once. A NaN makes its row NaN.

    Differentiable once in both tensors; the gradient of gamma is summed in an order that depends
    on the shape alone, so two runs give the same bits.

    Args:
        x: Shape [..., N], at least one dimension; float32, float16, bfloat16 or float64.
        gamma: Shape [N]; dtype and device of `x`.
        eps: Added to the mean square.

    Returns:
        A new contiguous tensor of the shape and dtype of `x`.

    Raises:
        ValueError: A dtype, device or shape is not as above (RuntimeError from a native kernel).
    """
    return cast("Tensor", call(ops.rms_norm, x, gamma, eps=eps))


def pre_rms_norm(
    x: Tensor, residual: Tensor, gamma: Tensor, *, eps: float = 1e-6
) -> tuple[Tensor, Tensor]:
    """Compute RMS(s) and s = x + residual, row by row: see `rms_norm`.

    The norm is of the float32 sum (float64 for float64); the stored sum is that one rounded.
    Differentiable once in all tensors, from the stored sum.

    Args:
        x: Shape [..., N], at least one dimension; float32, float16, bfloat16 or float64.
        residual: Shape, dtype and device of `x`.
        gamma: Shape [N]; dtype and device of `x`.
        eps: Added to the mean square.

    Returns:
        The norm and the sum, new contiguous tensors of the shape and dtype of `x`.

    Raises:
        ValueError: A dtype, device or shape is not as above (RuntimeError from a native kernel).
    """
    op = ops.pre_rms_norm
    return cast("tuple[Tensor, Tensor]", call(op, x, residual, gamma, eps=eps))
