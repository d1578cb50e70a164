"""The sums with a residual in plain PyTorch."""

from torch import Tensor

from fusedops.families.residual.checks import adds_attention, adds_attention_bias
from fusedops.widths import narrow, widen


def bias_residual(x: Tensor, residual: Tensor, bias: Tensor) -> Tensor:
    """X + bias + residual."""
    return narrow(widen(x) + widen(bias) + widen(residual), x)


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
    """The three forms of functions.residual_add_bias."""
    total = widen(residual) + widen(final_bias)
    uses_bias = adds_attention_bias(mlp_after_attn=mlp_after_attn, add_bias=add_bias, preln=preln)
    if uses_bias and attention_bias is not None:
        total = total + widen(attention_bias)
    if attention is None or not adds_attention(mlp_after_attn=mlp_after_attn, preln=preln):
        return narrow(total + widen(hidden), hidden)
    if mlp_after_attn:
        return narrow((total + widen(attention)) / mp_size + widen(hidden), hidden)
    return narrow(widen(hidden) + widen(attention) + total / mp_size, hidden)


def moe_res_matmul(residual: Tensor, coef: Tensor, output: Tensor) -> Tensor:
    """Output coef[N:] + residual coef[:N]."""
    of_residual, of_output = widen(coef).chunk(2)
    return narrow(widen(output) * of_output + widen(residual) * of_residual, residual)
