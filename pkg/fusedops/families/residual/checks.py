"""What the sums with a residual demand, in the native library's order and words."""

from torch import Tensor

from fusedops import checks


def adds_attention(*, mlp_after_attn: bool, preln: bool) -> bool:
    """Whether residual_add_bias adds the attention's output."""
    return preln or not mlp_after_attn


def adds_attention_bias(*, mlp_after_attn: bool, add_bias: bool, preln: bool) -> bool:
    """Whether residual_add_bias adds the attention's bias."""
    return preln if mlp_after_attn else add_bias


def bias_residual(x: Tensor, residual: Tensor, bias: Tensor) -> None:
    """Two matrices and a row."""
    op = "bias_residual"
    checks.check_rows(op, "x", x)
    checks.check_alike(op, "residual", residual, "x", x)
    checks.check_row_like(op, "bias", bias, "x", x)


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
) -> None:
    """Matrices and rows, all of those that the flags add."""
    op = "residual_add_bias"
    if mp_size < 1:
        checks.fail(op, "mp_size", "1 or more", mp_size)
    checks.check_rows(op, "hidden", hidden)
    checks.check_alike(op, "residual", residual, "hidden", hidden)
    if attention is not None:
        checks.check_alike(op, "attention", attention, "hidden", hidden)
    elif adds_attention(mlp_after_attn=mlp_after_attn, preln=preln):
        _missing(op, "attention")
    if attention_bias is not None:
        checks.check_row_like(op, "attention_bias", attention_bias, "hidden", hidden)
    elif adds_attention_bias(mlp_after_attn=mlp_after_attn, add_bias=add_bias, preln=preln):
        _missing(op, "attention_bias")
    checks.check_row_like(op, "final_bias", final_bias, "hidden", hidden)


def moe_res_matmul(residual: Tensor, coef: Tensor, output: Tensor) -> None:
    """Two matrices and a row of twice their width."""
    op = "moe_res_matmul"
    checks.check_rows(op, "residual", residual)
    checks.check_like(op, "coef", coef, "residual", residual)
    if coef.shape != (2 * residual.shape[-1],):
        expected = f"shape [{2 * residual.shape[-1]}] (twice the last dimension of residual)"
        checks.fail(op, "coef", expected, list(coef.shape))
    checks.check_alike(op, "output", output, "residual", residual)


def _missing(op: str, name: str) -> None:
    checks.fail(op, name, "a tensor: these flags add it", None)
