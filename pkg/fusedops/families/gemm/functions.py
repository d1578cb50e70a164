"""The products with weights as called."""

from typing import cast

from torch import Tensor

from fusedops.call import call, call_in_place, ops


def vector_matmul(x: Tensor, weight: Tensor) -> Tensor:
    """Compute x weight.

    The sum is float32 (float64 for float64; TF32 where torch is told to use it), rounded once. Any
    strides of `weight` will do; with up to 16 rows of `x` it is fastest where either the rows or
    the columns of a 16-bit weight lie one after the other, without gaps between their elements.

    Differentiable in `x` and `weight`, any number of times.

    Args:
        x: Shape [..., K], at least one dimension; float32, float16, bfloat16 or float64.
        weight: Shape [K, M]; dtype and device of `x`. That of torch.nn.Linear is its transpose.

    Returns:
        A new contiguous tensor [..., M] of the dtype of `x`.

    Raises:
        ValueError: A dtype, device or shape is not as above (RuntimeError from a native kernel).
    """
    return cast("Tensor", call(ops.vector_matmul, x, weight))


def linear_layer(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Compute x weight + bias: see `vector_matmul`. The bias is added before the rounding.

    Differentiable in all tensors, any number of times.

    Args:
        x: Shape [..., K], at least one dimension; float32, float16, bfloat16 or float64.
        weight: Shape [K, M]; dtype and device of `x`.
        bias: Shape [M]; dtype and device of `x`.

    Returns:
        A new contiguous tensor [..., M] of the dtype of `x`.

    Raises:
        ValueError: A dtype, device or shape is not as above (RuntimeError from a native kernel).
    """
    return cast("Tensor", call(ops.linear_layer, x, weight, bias))


def fused_gemm_gelu(x: Tensor, weight: Tensor, bias: Tensor, weight2: Tensor) -> Tensor:
    """Compute GELU(x weight + bias) weight2, with the tanh form of GELU: see `bias_gelu`.

    What is between the products has the dtype of `x`: it is rounded once, after GELU, or also
    before it where the library's product has no GELU in it.

    Differentiable once in all tensors.

    Args:
        x: Shape [..., K], at least one dimension; float32, float16, bfloat16 or float64.
        weight: Shape [K, F]; dtype and device of `x`.
        bias: Shape [F]; dtype and device of `x`.
        weight2: Shape [F, M]; dtype and device of `x`.

    Returns:
        A new contiguous tensor [..., M] of the dtype of `x`.

    Raises:
        ValueError: A dtype, device or shape is not as above (RuntimeError from a native kernel).
    """
    return cast("Tensor", call(ops.fused_gemm_gelu, x, weight, bias, weight2))


def einsum_sec_sm_ecm(q: Tensor, weight: Tensor) -> Tensor:
    """Compute the sum over s of q[s, e, c] weight[s, m]: tokens s go to places c of experts e.

    It is torch.einsum("sec,sm->ecm", q, weight) (Lepikhin et al., "GShard", 2020), as one product
    of matrices.

    Differentiable in both tensors, any number of times.

    Args:
        q: Shape [S, E, C]; float32, float16, bfloat16 or float64.
        weight: Shape [S, M]; dtype and device of `q`.

    Returns:
        A new contiguous tensor [E, C, M] of the dtype of `q`.

    Raises:
        ValueError: A dtype, device or shape is not as above (RuntimeError from a native kernel).
    """
    return cast("Tensor", call(ops.einsum_sec_sm_ecm, q, weight))


def qkv_gemm(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    gamma: Tensor,
    beta: Tensor,
    *,
    eps: float = 1e-5,
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

    Returns:
        The product [..., M] and u [..., K], new contiguous tensors of the dtype of `x`.

    Raises:
        ValueError: A dtype, device or shape is not as above (RuntimeError from a native kernel).
    """
    found = call(ops.qkv_gemm, x, weight, bias, gamma, beta, eps=eps)
    return cast("tuple[Tensor, Tensor]", found)


def rms_qkv_gemm(
    x: Tensor, weight: Tensor, gamma: Tensor, *, eps: float = 1e-6
) -> tuple[Tensor, Tensor]:
    """Compute u = RMS(x), and u weight: see `rms_norm` and `vector_matmul`.

    Differentiable once in all tensors.

    Args:
        x: Shape [..., K], at least one dimension; float32, float16, bfloat16 or float64.
        weight: Shape [K, M]; dtype and device of `x`.
        gamma: Shape [K]; dtype and device of `x`.
        eps: Added to the mean square.

    Returns:
        The product [..., M] and u [..., K], new contiguous tensors of the dtype of `x`.

    Raises:
        ValueError: A dtype, device or shape is not as above (RuntimeError from a native kernel).
    """
    found = call(ops.rms_qkv_gemm, x, weight, gamma, eps=eps)
    return cast("tuple[Tensor, Tensor]", found)


def mlp_gemm(
    x: Tensor,
    residual: Tensor,
    input_bias: Tensor,
    weight: Tensor,
    bias: Tensor,
    weight2: Tensor,
    gamma: Tensor,
    beta: Tensor,
    *,
    eps: float = 1e-5,
    pre_ln: bool = True,
    mlp_after_attn: bool = True,
    activation: str = "gelu",
) -> tuple[Tensor, Tensor]:
    """Compute an MLP of a normalised sum: f(u weight + bias) weight2 and u.

    u is LN(x + input_bias + residual), or LN(residual) where not `mlp_after_attn`: see
    `layer_norm_residual`. f is GELU ("gelu" of the tanh form, "gelu_erf"), "relu", or for a weight
    of values and gates one of the kinds of `gated_activation`. There is no second bias:
    `residual_add_bias` adds it.

    What is between the products has the dtype of `x`: it is rounded once, after f, or also before
    it where the library's product has no f in it.

    Differentiable once in all tensors.

    Args:
        x: Shape [..., K], at least one dimension; float32, float16, bfloat16 or float64.
        residual: Shape, dtype and device of `x`.
        input_bias: Shape [K]; dtype and device of `x`.
        weight: Shape [K, F], or [K, 2F] with the gates last; dtype and device of `x`.
        bias: As wide as `weight`; dtype and device of `x`.
        weight2: Shape [F, M]; dtype and device of `x`.
        gamma: Shape [K]; dtype and device of `x`.
        beta: Shape [K]; dtype and device of `x`.
        eps: Added to the variance.
        pre_ln: Whether the model's norms come before its sublayers. Both kinds compute the same
            here; `residual_add_bias` is where they differ.
        mlp_after_attn: Whether the MLP follows the attention or stands beside it (GPT-J).
        activation: "gelu", "gelu_erf", "relu", "geglu", "geglu_erf", "swiglu" or "reglu".

    Returns:
        The product [..., M] and u [..., K], new contiguous tensors of the dtype of `x`.

    Raises:
        ValueError: An argument is not as above (RuntimeError from a native kernel).
    """
    found = call(
        ops.mlp_gemm,
        *(x, residual, input_bias, weight, bias, weight2, gamma, beta),
        eps=eps,
        pre_ln=pre_ln,
        mlp_after_attn=mlp_after_attn,
        activation=activation,
    )
    return cast("tuple[Tensor, Tensor]", found)


def rms_mlp_gemm(
    x: Tensor,
    residual: Tensor,
    weight: Tensor,
    weight2: Tensor,
    gamma: Tensor,
    *,
    eps: float = 1e-6,
    activation: str = "swiglu",
) -> tuple[Tensor, Tensor]:
    """Add x to `residual` in place, and compute an MLP of its norm: f(u weight) weight2.

    u is RMS(residual + x): see `pre_rms_norm`. f is as in `mlp_gemm`.

    For inference: it has no gradient, and refuses where one is asked for.

    Args:
        x: Shape [..., K], at least one dimension; float32, float16, bfloat16 or float64.
        residual: Shape, dtype and device of `x`. It becomes residual + x, rounded once.
        weight: Shape [K, F], or [K, 2F] with the gates last; dtype and device of `x`.
        weight2: Shape [F, M]; dtype and device of `x`.
        gamma: Shape [K]; dtype and device of `x`.
        eps: Added to the mean square.
        activation: "gelu", "gelu_erf", "relu", "geglu", "geglu_erf", "swiglu" or "reglu".

    Returns:
        The product, a new contiguous tensor [..., M] of the dtype of `x`, and `residual`.

    Raises:
        ValueError: An argument is not as above (RuntimeError from a native kernel).
        RuntimeError: A gradient is asked for.
    """
    product = call_in_place(
        *(ops.rms_mlp_gemm, x, residual, weight, weight2, gamma),
        eps=eps,
        activation=activation,
    )
    return product, residual
