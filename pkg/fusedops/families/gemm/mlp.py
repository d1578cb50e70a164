"""A transformer's MLP: a norm of a sum, a product, an activation, a product."""

from typing import TYPE_CHECKING, cast

from torch import Tensor

from fusedops import checks
from fusedops.autograd import Autograd, Context, Gradients, sum_to_row
from fusedops.call import call, call_in_place, ops
from fusedops.families.gated import KINDS
from fusedops.families.gemm.products import PLAIN, mlp_gradients, mlp_reference
from fusedops.families.gemm.qkv import add_gradients, layer_norm_gradients, save_with_norm
from fusedops.families.gemm.weights import (
    Weight,
    check_bias,
    check_next,
    check_product,
    dense_check,
    product_and_norm_result,
    product_result,
)
from fusedops.families.norm import (
    check_norm,
    layer_norm_reference,
    layer_norm_residual_reference,
    pre_rms_norm_reference,
)
from fusedops.op import Op

if TYPE_CHECKING:
    from fusedops.workspace import Workspace


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
    out: tuple[Tensor, Tensor] | None = None,
    workspace: "Workspace | None" = None,
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
        out: Tensors for the results, contiguous and on 16 bytes, for inference. They share no
            memory with an argument or each other.
        workspace: Memory for the results, if there is no `out`, and for temporaries.

    Returns:
        The product [..., M] and u [..., K], new contiguous tensors of the dtype of `x`.

    Raises:
        ValueError: An argument is not as above.
    """
    result = call(
        ops.mlp_gemm,
        *(x, residual, input_bias, weight, bias, weight2, gamma, beta),
        eps=eps,
        pre_ln=pre_ln,
        mlp_after_attn=mlp_after_attn,
        activation=activation,
        out=out,
        workspace=workspace,
    )
    return cast("tuple[Tensor, Tensor]", result)


def check_activation(op: str, activation: str, *more: str) -> None:
    """`activation` must be one of an MLP's, or of `more`."""
    if activation not in (*more, *PLAIN, *KINDS):
        words = [repr(word) for word in (*more, *PLAIN, *KINDS)]
        expected = f"{', '.join(words[:-1])} or {words[-1]}"
        checks.fail(op, "activation", expected, repr(activation))


def check_halves(op: str, weight: Weight, activation: str) -> None:
    """The weight of a gated activation must have as many gates as values."""
    if activation in KINDS and weight.tensor.shape[1] % 2 != 0:
        expected = "an even last dimension (values and gates)"
        checks.fail(op, weight.name, expected, weight.tensor.shape[1])


def _check_mlp(
    op: str, x: Tensor, weight: Weight, bias: Tensor | None, weight2: Weight, activation: str
) -> None:
    check_product(op, x, weight)
    check_halves(op, weight, activation)
    if bias is not None:
        check_bias(op, bias, x, weight)
    check_next(op, x, weight, weight2, gated=activation in KINDS)


def check_mlp_gemm(
    op: str,
    x: Tensor,
    residual: Tensor,
    input_bias: Tensor,
    weight: Weight,
    bias: Tensor,
    weight2: Weight,
    gamma: Tensor,
    beta: Tensor,
    *,
    activation: str = "gelu",
    **_: object,
) -> None:
    """The activation, the norm's check, then the weights and the bias."""
    check_activation(op, activation)
    check_norm(op, x, input_bias=input_bias, residual=residual, gamma=gamma, beta=beta)
    _check_mlp(op, x, weight, bias, weight2, activation)


def mlp_gemm_reference(
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
    """U = LN of the sum, or of residual alone; f(u weight + bias) weight2, and u."""
    del pre_ln
    if mlp_after_attn:
        u = layer_norm_residual_reference(x, input_bias, residual, gamma, beta, eps=eps)
    else:
        u = layer_norm_reference(residual, gamma, beta, eps=eps)
    return mlp_reference(u, weight, bias, weight2, activation), u


def _mlp_gemm_gradients(ctx: Context, grad: Tensor | None, grad_u: Tensor | None) -> Gradients:
    x, residual, input_bias, weight, bias, weight2, gamma, beta, u = ctx.saved_tensors
    needs, eps = ctx.needs_input_grad, ctx.keywords["eps"]
    grads_mlp: tuple[Tensor | None, ...] = (None,) * 4
    if grad is not None:
        needs_mlp, activation = (True, needs[3], needs[5]), ctx.keywords["activation"]
        grads_mlp = mlp_gradients(needs_mlp, grad, u, weight, bias, weight2, activation)
    mlp_u, *grads_weights = grads_mlp
    grad_norm = add_gradients(mlp_u, grad_u)
    if not ctx.keywords["mlp_after_attn"]:
        grad_s, *grads_rows = layer_norm_gradients(grad_norm, residual, gamma, eps)
        return None, grad_s, None, *grads_weights, *grads_rows
    # The sum is not saved: it is computed again.
    _, s = call(ops.layer_norm_residual_store, x, input_bias, residual, gamma, beta, eps=eps)
    grad_s, *grads_rows = layer_norm_gradients(grad_norm, s, gamma, eps)
    grad_input_bias = None if grad_s is None else sum_to_row(grad_s)
    return grad_s, grad_s, grad_input_bias, *grads_weights, *grads_rows


MLP_GEMM = Op(
    "mlp_gemm(Tensor x, Tensor residual, Tensor input_bias, Tensor weight, Tensor bias, "
    "Tensor weight2, Tensor gamma, Tensor beta, *, float eps=1e-5, bool pre_ln=True, "
    'bool mlp_after_attn=True, str activation="gelu") -> (Tensor, Tensor)',
    check=dense_check(check_mlp_gemm, 3, 5),
    reference=mlp_gemm_reference,
    result=product_and_norm_result(5),
    autograd=Autograd(_mlp_gemm_gradients, save_with_norm),
    rows=("x", "residual"),
)


def rms_mlp_gemm(
    x: Tensor,
    residual: Tensor,
    weight: Tensor,
    weight2: Tensor,
    gamma: Tensor,
    *,
    eps: float = 1e-6,
    activation: str = "swiglu",
    out: Tensor | None = None,
    workspace: "Workspace | None" = None,
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
        out: Tensor for the product, contiguous and on 16 bytes, for inference. It shares no memory
            with an argument.
        workspace: Memory for the product, if there is no `out`, and for temporaries.

    Returns:
        The product, a new contiguous tensor [..., M] of the dtype of `x`, and `residual`.

    Raises:
        ValueError: An argument is not as above.
        RuntimeError: A gradient is asked for.
    """
    product = call_in_place(
        *(ops.rms_mlp_gemm, x, residual, weight, weight2, gamma),
        eps=eps,
        activation=activation,
        out=out,
        workspace=workspace,
    )
    return product, residual


def check_rms_mlp_gemm(
    op: str,
    x: Tensor,
    residual: Tensor,
    weight: Weight,
    weight2: Weight,
    gamma: Tensor,
    *,
    activation: str = "swiglu",
    **_: object,
) -> None:
    """The activation, the norm's check, then the weights."""
    check_activation(op, activation)
    check_norm(op, x, residual=residual, gamma=gamma)
    _check_mlp(op, x, weight, None, weight2, activation)


def rms_mlp_gemm_reference(
    x: Tensor,
    residual: Tensor,
    weight: Tensor,
    weight2: Tensor,
    gamma: Tensor,
    *,
    eps: float = 1e-6,
    activation: str = "swiglu",
) -> Tensor:
    """Residual += x; f(RMS(residual) weight) weight2."""
    u, total = pre_rms_norm_reference(x, residual, gamma, eps=eps)
    residual.copy_(total)
    return mlp_reference(u, weight, None, weight2, activation)


RMS_MLP_GEMM = Op(
    "rms_mlp_gemm(Tensor x, Tensor(a!) residual, Tensor weight, Tensor weight2, Tensor gamma, *, "
    'float eps=1e-6, str activation="swiglu") -> Tensor',
    check=dense_check(check_rms_mlp_gemm, 2, 3),
    reference=rms_mlp_gemm_reference,
    result=product_result(3),
)

OPS = (MLP_GEMM, RMS_MLP_GEMM)
