"""The operators of x[..., N] and bias[N] as called."""

from typing import cast

from torch import Tensor

from fusedops.call import call, ops


def bias_add(x: Tensor, bias: Tensor) -> Tensor:
    """Compute x + bias, the bias along the last dimension.

    Differentiable in `x` and `bias`.

    Args:
        x: Shape [..., N], at least one dimension; float32, float16, bfloat16 or float64.
        bias: Shape [N]; dtype and device of `x`.

    Returns:
        A new contiguous tensor of the shape and dtype of `x`.

    Raises:
        ValueError: A dtype, device or shape is not as above (RuntimeError from a native kernel).
    """
    return cast("Tensor", call(ops.bias_add, x, bias))


def bias_relu(x: Tensor, bias: Tensor) -> Tensor:
    """Compute max(x + bias, 0), the bias along the last dimension.

    Differentiable in `x` and `bias`; the slope at 0 is 0. NaN stays NaN.

    Args:
        x: Shape [..., N], at least one dimension; float32, float16, bfloat16 or float64.
        bias: Shape [N]; dtype and device of `x`.

    Returns:
        A new contiguous tensor of the shape and dtype of `x`.

    Raises:
        ValueError: A dtype, device or shape is not as above (RuntimeError from a native kernel).
    """
    return cast("Tensor", call(ops.bias_relu, x, bias))


def bias_gelu(x: Tensor, bias: Tensor, *, approximate: str = "tanh") -> Tensor:
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

    Returns:
        A new contiguous tensor of the shape and dtype of `x`.

    Raises:
        ValueError: A dtype, device or shape is not as above, or `approximate` is another word
            (RuntimeError from a native kernel).
    """
    return cast("Tensor", call(ops.bias_gelu, x, bias, approximate=approximate))
