"""Sums with a residual, and rows along the last dimension."""

from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

from fusedops import checks
from fusedops.arithmetic import narrow, widen
from fusedops.autograd import Autograd, Context, Gradients, save_keywords, sum_to_row
from fusedops.call import call, ops
from fusedops.op import Op

if TYPE_CHECKING:
    from fusedops.workspace import Workspace

__all__ = ["bias_residual", "moe_res_matmul", "residual_add_bias"]


def bias_residual(
    x: Tensor,
    residual: Tensor,
    bias: Tensor,
    *,
    out: Tensor | None = None,
    workspace: "Workspace | None" = None,
) -> Tensor:
    """Compute x + bias + residual, the bias along the last dimension.

    Arithmetic is float32 (float64 for float64), rounded once. Differentiable in all three.

    Args:
        x: Shape [..., N], at least one dimension; float32, float16, bfloat16 or float64.
        residual: Shape, dtype and device of `x`.
        bias: Shape [N]; dtype and device of `x`.
        out: Tensor for the result, contiguous and on 16 bytes, for inference. It may be an argument
            of its shape, and shares no other memory with one.
        workspace: Memory for the result, if there is no `out`, and for temporaries.

    Returns:
        A new contiguous tensor of the shape and dtype of `x`.

    Raises:
        ValueError: A dtype, device or shape is not as above.
    """
    return cast("Tensor", call(ops.bias_residual, x, residual, bias, out=out, workspace=workspace))


def _check_bias_residual(op: str, x: Tensor, residual: Tensor, bias: Tensor) -> None:
    checks.check_rows(op, "x", x)
    checks.check_alike(op, "residual", residual, "x", x)
    checks.check_row_like(op, "bias", bias, "x", x)


def bias_residual_reference(x: Tensor, residual: Tensor, bias: Tensor) -> Tensor:
    """X + bias + residual."""
    return narrow(widen(x) + widen(bias) + widen(residual), x)


def _bias_residual_gradients(ctx: Context, grad: Tensor) -> Gradients:
    del ctx
    return grad, grad, sum_to_row(grad)


BIAS_RESIDUAL = Op(
    "bias_residual(Tensor x, Tensor residual, Tensor bias) -> Tensor",
    check=_check_bias_residual,
    reference=bias_residual_reference,
    autograd=Autograd(_bias_residual_gradients, save_keywords),
    over_arguments=True,
    rows=("x", "residual"),
)


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
    out: Tensor | None = None,
    workspace: "Workspace | None" = None,
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
        out: Tensor for the result, contiguous and on 16 bytes, for inference. It may be an argument
            of its shape, and shares no other memory with one.
        workspace: Memory for the result, if there is no `out`, and for temporaries.

    Returns:
        A new contiguous tensor of the shape and dtype of `hidden`.

    Raises:
        ValueError: An argument is not as above, or a tensor that is added is None.
    """
    result = call(
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
        out=out,
        workspace=workspace,
    )
    return cast("Tensor", result)


def _adds_attention(*, mlp_after_attn: bool, preln: bool) -> bool:
    return preln or not mlp_after_attn


def _adds_attention_bias(*, mlp_after_attn: bool, add_bias: bool, preln: bool) -> bool:
    return preln if mlp_after_attn else add_bias


def _check_residual_add_bias(
    op: str,
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
) -> None:
    """The flags say which matrices and rows must be given."""
    if mp_size < 1:
        checks.fail(op, "mp_size", "1 or more", mp_size)
    checks.check_rows(op, "hidden", hidden)
    checks.check_alike(op, "residual", residual, "hidden", hidden)
    if attention is not None:
        checks.check_alike(op, "attention", attention, "hidden", hidden)
    elif _adds_attention(mlp_after_attn=mlp_after_attn, preln=preln):
        checks.fail(op, "attention", "a tensor: these flags add it", None)
    if attention_bias is not None:
        checks.check_row_like(op, "attention_bias", attention_bias, "hidden", hidden)
    elif _adds_attention_bias(mlp_after_attn=mlp_after_attn, add_bias=add_bias, preln=preln):
        checks.fail(op, "attention_bias", "a tensor: these flags add it", None)
    checks.check_row_like(op, "final_bias", final_bias, "hidden", hidden)


def residual_add_bias_reference(
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
    """The three forms of residual_add_bias."""
    total = widen(residual) + widen(final_bias)
    adds_bias = _adds_attention_bias(mlp_after_attn=mlp_after_attn, add_bias=add_bias, preln=preln)
    if adds_bias and attention_bias is not None:
        total = total + widen(attention_bias)
    if attention is None or not _adds_attention(mlp_after_attn=mlp_after_attn, preln=preln):
        return narrow(total + widen(hidden), hidden)
    if mlp_after_attn:
        return narrow((total + widen(attention)) / mp_size + widen(hidden), hidden)
    return narrow(widen(hidden) + widen(attention) + total / mp_size, hidden)


def _residual_add_bias_gradients(ctx: Context, grad: Tensor) -> Gradients:
    mp_size, mlp_after_attn, add_bias, preln = (
        ctx.keywords[name] for name in ("mp_size", "mlp_after_attn", "add_bias", "preln")
    )
    if not _adds_attention(mlp_after_attn=mlp_after_attn, preln=preln):
        return grad, grad, None, None, sum_to_row(grad)
    part = grad if mp_size == 1 else grad / mp_size
    row = sum_to_row(part)
    adds_bias = _adds_attention_bias(mlp_after_attn=mlp_after_attn, add_bias=add_bias, preln=preln)
    return grad, part, part if mlp_after_attn else grad, row if adds_bias else None, row


RESIDUAL_ADD_BIAS = Op(
    "residual_add_bias(Tensor hidden, Tensor residual, Tensor? attention, Tensor? attention_bias, "
    "Tensor final_bias, *, int mp_size=1, bool mlp_after_attn=True, bool add_bias=True, "
    "bool preln=True) -> Tensor",
    check=_check_residual_add_bias,
    reference=residual_add_bias_reference,
    autograd=Autograd(_residual_add_bias_gradients, save_keywords),
    over_arguments=True,
    rows=("hidden", "residual", "attention"),
)


def moe_res_matmul(
    residual: Tensor,
    coef: Tensor,
    output: Tensor,
    *,
    out: Tensor | None = None,
    workspace: "Workspace | None" = None,
) -> Tensor:
    """Mix an MLP's and its experts' results: output * coef[N:] + residual * coef[:N].

    The coefficients are along the last dimension. For residual mixtures of experts (Rajbhandari et
    al., "DeepSpeed-MoE", 2022). Arithmetic is float32 (float64 for float64), rounded once.
    Differentiable in all three.

    Args:
        residual: Shape [..., N], at least one dimension; float32, float16, bfloat16 or float64.
        coef: Shape [2N]; dtype and device of `residual`.
        output: Shape, dtype and device of `residual`.
        out: Tensor for the result, contiguous and on 16 bytes, for inference. It may be an argument
            of its shape, and shares no other memory with one.
        workspace: Memory for the result, if there is no `out`, and for temporaries.

    Returns:
        A new contiguous tensor of the shape and dtype of `residual`.

    Raises:
        ValueError: A dtype, device or shape is not as above.
    """
    return cast(
        "Tensor", call(ops.moe_res_matmul, residual, coef, output, out=out, workspace=workspace)
    )


def _check_moe_res_matmul(op: str, residual: Tensor, coef: Tensor, output: Tensor) -> None:
    checks.check_rows(op, "residual", residual)
    checks.check_like(op, "coef", coef, "residual", residual)
    if coef.shape != (2 * residual.shape[-1],):
        expected = f"shape [{2 * residual.shape[-1]}] (twice the last dimension of residual)"
        checks.fail(op, "coef", expected, list(coef.shape))
    checks.check_alike(op, "output", output, "residual", residual)


def moe_res_matmul_reference(residual: Tensor, coef: Tensor, output: Tensor) -> Tensor:
    """Output coef[N:] + residual coef[:N]."""
    residual_coef, output_coef = widen(coef).chunk(2)
    return narrow(widen(output) * output_coef + widen(residual) * residual_coef, residual)


def _moe_res_matmul_gradients(ctx: Context, grad: Tensor) -> Gradients:
    residual, coef, output = ctx.saved_tensors
    residual_coef, output_coef = coef.chunk(2)
    rows = [sum_to_row(widen(grad) * widen(matrix)) for matrix in (residual, output)]
    return grad * residual_coef, narrow(torch.cat(rows), coef), grad * output_coef


MOE_RES_MATMUL = Op(
    "moe_res_matmul(Tensor residual, Tensor coef, Tensor output) -> Tensor",
    check=_check_moe_res_matmul,
    reference=moe_res_matmul_reference,
    autograd=Autograd(_moe_res_matmul_gradients),
    over_arguments=True,
    rows=("residual", "output"),
)

OPS = (BIAS_RESIDUAL, RESIDUAL_ADD_BIAS, MOE_RES_MATMUL)
