"""The sums with a residual as called."""

from typing import cast

from torch import Tensor

from fusedops.call import call, ops


def bias_residual(x: Tensor, residual: Tensor, bias: Tensor) -> Tensor:
    """Compute x + bias + residual, the bias along the last dimension.

    Arithmetic is float32 (float64 for float64), rounded once. Differentiable in all three.

    Args:
        x: Shape [..., N], at least one dimension; float32, float16, bfloat16 or float64.
        residual: Shape, dtype and device of `x`.
        bias: Shape [N]; dtype and device of `x`.

    Returns:
        A new contiguous tensor of the shape and dtype of `x`.

    Raises:
        ValueError: A dtype, device or shape is not as above (RuntimeError from a native kernel).
    """
    return cast("Tensor", call(ops.bias_residual, x, residual, bias))


def residual_add_bias(
    hidden: Tensor,
    residual: Tensor,
    attention: Tensor | None,
    attention_bias: Tensor | None,
    final_bias: Tensor,
    *,
    mp_size: int = 1,
    mlp_after_attn: bool = True,
    add_bias: bool = True,
    preln: bool = True,
) -> Tensor:
    """Add up the parts of a transformer's block at its end.

    - `mlp_after_attn` and `preln`: (residual + attention + final_bias + attention_bias) / mp_size
      + hidden;
    - `mlp_after_attn`, not `preln`: residual + hidden + final_bias;
    - not `mlp_after_attn`, as in GPT-J, where the MLP and the attention read the same input:
      hidden + attention + (residual + final_bias [+ attention_bias if `add_bias`]) / mp_size.

    The first and the last divide by the number of ranks what every one of them adds before their
    results are summed. Arithmetic is float32 (float64 for float64), rounded once; the division is a
    multiplication by 1 / mp_size. Differentiable in all tensors that the form adds.

    Args:
        hidden: The MLP's output, shape [..., N], at least one dimension; float32, float16, bfloat16
            or float64.
        residual: Shape, dtype and device of `hidden`.
        attention: The attention's output; shape, dtype and device of `hidden`. None where it is not
            added.
        attention_bias: Shape [N]; dtype and device of `hidden`. None where it is not added.
        final_bias: The MLP's bias, shape [N]; dtype and device of `hidden`.
        mp_size: Ranks the model is spread over, 1 or more.
        mlp_after_attn: The MLP follows the attention.
        add_bias: Add `attention_bias` in the last form.
        preln: The norms come before the attention and the MLP.

    Returns:
        A new contiguous tensor of the shape and dtype of `hidden`.

    Raises:
        ValueError: An argument is not as above, or a tensor that is added is None (RuntimeError
            from a native kernel).
    """
    found = call(
        ops.residual_add_bias,
        hidden,
        residual,
        attention,
        attention_bias,
        final_bias,
        mp_size=mp_size,
        mlp_after_attn=mlp_after_attn,
        add_bias=add_bias,
        preln=preln,
    )
    return cast("Tensor", found)


def moe_res_matmul(residual: Tensor, coef: Tensor, output: Tensor) -> Tensor:
    """Mix an MLP's and its experts' results: output * coef[N:] + residual * coef[:N].

    The coefficients are along the last dimension. For residual mixtures of experts (Rajbhandari et
    al., "DeepSpeed-MoE", 2022). Arithmetic is float32 (float64 for float64), rounded once.
    Differentiable in all three.

    Args:
        residual: Shape [..., N], at least one dimension; float32, float16, bfloat16 or float64.
        coef: Shape [2N]; dtype and device of `residual`.
        output: Shape, dtype and device of `residual`.

    Returns:
        A new contiguous tensor of the shape and dtype of `residual`.

    Raises:
        ValueError: A dtype, device or shape is not as above (RuntimeError from a native kernel).
    """
    return cast("Tensor", call(ops.moe_res_matmul, residual, coef, output))
