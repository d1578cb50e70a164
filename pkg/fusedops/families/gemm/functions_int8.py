"""The products with int8 weights as called."""

from typing import cast

from torch import Tensor

from fusedops.call import call, call_in_place, ops


def vector_matmul_int8(x: Tensor, weight: Tensor, scale: Tensor) -> Tensor:
    """Compute x weight, of int8 numbers and a scale for each group of the weight's rows.

    Element [k, m] of the weight counts as weight[k, m] * scale[k // (K / groups)]; `quantize` makes
    such weights. With up to 16 rows of a 16-bit `x`, and groups of a multiple of 64 rows or a
    single one, the int8 numbers are what is read, and their products with `x` are scaled in
    float32. Else the weight is first written as the dtype of `x`, rounded.

    For inference: there is no gradient.

    Args:
        x: Shape [..., K], at least one dimension; float32, float16 or bfloat16.
        weight: int8 [K, M] on the device of `x`.
        scale: float32 [groups], groups a divisor of K; on the device of `x`.

    Returns:
        A new contiguous tensor [..., M] of the dtype of `x`.

    Raises:
        ValueError: A dtype, device or shape is not as above (RuntimeError from a native kernel).
    """
    return cast("Tensor", call(ops.vector_matmul_int8, x, weight, scale))


def linear_layer_int8(
    x: Tensor, weight: Tensor, scale: Tensor, bias: Tensor | None = None
) -> Tensor:
    """Compute x weight + bias: `linear_layer` with an int8 weight (see `vector_matmul_int8`).

    Args:
        x: Shape [..., K], at least one dimension; float32, float16 or bfloat16.
        weight: int8 [K, M] on the device of `x`.
        scale: float32 [groups], groups a divisor of K; on the device of `x`.
        bias: Shape [M]; dtype and device of `x`.

    Returns:
        A new contiguous tensor [..., M] of the dtype of `x`.

    Raises:
        ValueError: A dtype, device or shape is not as above (RuntimeError from a native kernel).
    """
    return cast("Tensor", call(ops.linear_layer_int8, x, weight, scale, bias))


def fused_gemm_gelu_int8(
    x: Tensor, weight: Tensor, scale: Tensor, bias: Tensor, weight2: Tensor, scale2: Tensor
) -> Tensor:
    """Compute GELU(x weight + bias) weight2: `fused_gemm_gelu` with int8 weights.

    See `vector_matmul_int8` for the weights.

    Args:
        x: Shape [..., K], at least one dimension; float32, float16 or bfloat16.
        weight: int8 [K, F] on the device of `x`.
        scale: float32 [groups], groups a divisor of K; on the device of `x`.
        bias: Shape [F]; dtype and device of `x`.
        weight2: int8 [F, M] on the device of `x`.
        scale2: float32 [groups], groups a divisor of F; on the device of `x`.

    Returns:
        A new contiguous tensor [..., M] of the dtype of `x`.

    Raises:
        ValueError: A dtype, device or shape is not as above (RuntimeError from a native kernel).
    """
    op = ops.fused_gemm_gelu_int8
    return cast("Tensor", call(op, x, weight, scale, bias, weight2, scale2))


def qkv_gemm_int8(
    x: Tensor,
    weight: Tensor,
    scale: Tensor,
    bias: Tensor | None,
    gamma: Tensor,
    beta: Tensor,
    *,
    eps: float = 1e-5,
) -> tuple[Tensor, Tensor]:
    """Compute u = LN(x), and u weight + bias: `qkv_gemm` with an int8 weight.

    See `vector_matmul_int8` for the weight.

    Args:
        x: Shape [..., K], at least one dimension; float32, float16 or bfloat16.
        weight: int8 [K, M] on the device of `x`.
        scale: float32 [groups], groups a divisor of K; on the device of `x`.
        bias: Shape [M], or None; dtype and device of `x`.
        gamma: Shape [K]; dtype and device of `x`.
        beta: Shape [K]; dtype and device of `x`.
        eps: Added to the variance.

    Returns:
        The product [..., M] and u [..., K], new contiguous tensors of the dtype of `x`.

    Raises:
        ValueError: A dtype, device or shape is not as above (RuntimeError from a native kernel).
    """
    op = ops.qkv_gemm_int8
    return cast("tuple[Tensor, Tensor]", call(op, x, weight, scale, bias, gamma, beta, eps=eps))


def rms_qkv_gemm_int8(
    x: Tensor, weight: Tensor, scale: Tensor, gamma: Tensor, *, eps: float = 1e-6
) -> tuple[Tensor, Tensor]:
    """Compute u = RMS(x), and u weight: `rms_qkv_gemm` with an int8 weight.

    See `vector_matmul_int8` for the weight.

    Args:
        x: Shape [..., K], at least one dimension; float32, float16 or bfloat16.
        weight: int8 [K, M] on the device of `x`.
        scale: float32 [groups], groups a divisor of K; on the device of `x`.
        gamma: Shape [K]; dtype and device of `x`.
        eps: Added to the mean square.

    Returns:
        The product [..., M] and u [..., K], new contiguous tensors of the dtype of `x`.

    Raises:
        ValueError: A dtype, device or shape is not as above (RuntimeError from a native kernel).
    """
    op = ops.rms_qkv_gemm_int8
    return cast("tuple[Tensor, Tensor]", call(op, x, weight, scale, gamma, eps=eps))


def mlp_gemm_int8(
    x: Tensor,
    residual: Tensor,
    input_bias: Tensor,
    weight: Tensor,
    scale: Tensor,
    bias: Tensor,
    weight2: Tensor,
    scale2: Tensor,
    gamma: Tensor,
    beta: Tensor,
    *,
    eps: float = 1e-5,
    pre_ln: bool = True,
    mlp_after_attn: bool = True,
    activation: str = "gelu",
) -> tuple[Tensor, Tensor]:
    """Compute an MLP of a normalised sum: `mlp_gemm` with int8 weights.

    See `vector_matmul_int8` for the weights.

    Args:
        x: Shape [..., K], at least one dimension; float32, float16 or bfloat16.
        residual: Shape, dtype and device of `x`.
        input_bias: Shape [K]; dtype and device of `x`.
        weight: int8 [K, F], or [K, 2F] with the gates last; on the device of `x`.
        scale: float32 [groups], groups a divisor of K; on the device of `x`.
        bias: As wide as `weight`; dtype and device of `x`.
        weight2: int8 [F, M] on the device of `x`.
        scale2: float32 [groups], groups a divisor of F; on the device of `x`.
        gamma: Shape [K]; dtype and device of `x`.
        beta: Shape [K]; dtype and device of `x`.
        eps: Added to the variance.
        pre_ln: As in `mlp_gemm`.
        mlp_after_attn: As in `mlp_gemm`.
        activation: As in `mlp_gemm`.

    Returns:
        The product [..., M] and u [..., K], new contiguous tensors of the dtype of `x`.

    Raises:
        ValueError: An argument is not as above (RuntimeError from a native kernel).
    """
    found = call(
        ops.mlp_gemm_int8,
        *(x, residual, input_bias, weight, scale, bias, weight2, scale2, gamma, beta),
        eps=eps,
        pre_ln=pre_ln,
        mlp_after_attn=mlp_after_attn,
        activation=activation,
    )
    return cast("tuple[Tensor, Tensor]", found)


def rms_mlp_gemm_int8(
    x: Tensor,
    residual: Tensor,
    weight: Tensor,
    scale: Tensor,
    weight2: Tensor,
    scale2: Tensor,
    gamma: Tensor,
    *,
    eps: float = 1e-6,
    activation: str = "swiglu",
) -> tuple[Tensor, Tensor]:
    """Add x to `residual` in place, and compute an MLP of its norm: `rms_mlp_gemm`, int8 weights.

    See `vector_matmul_int8` for the weights.

    Args:
        x: Shape [..., K], at least one dimension; float32, float16 or bfloat16.
        residual: Shape, dtype and device of `x`. It becomes residual + x, rounded once.
        weight: int8 [K, F], or [K, 2F] with the gates last; on the device of `x`.
        scale: float32 [groups], groups a divisor of K; on the device of `x`.
        weight2: int8 [F, M] on the device of `x`.
        scale2: float32 [groups], groups a divisor of F; on the device of `x`.
        gamma: Shape [K]; dtype and device of `x`.
        eps: Added to the mean square.
        activation: As in `mlp_gemm`.

    Returns:
        The product, a new contiguous tensor [..., M] of the dtype of `x`, and `residual`.

    Raises:
        ValueError: An argument is not as above (RuntimeError from a native kernel).
        RuntimeError: A gradient is asked for.
    """
    product = call_in_place(
        *(ops.rms_mlp_gemm_int8, x, residual, weight, scale, weight2, scale2, gamma),
        eps=eps,
        activation=activation,
    )
    return product, residual
