"""The products with int8 weights. The references dequantize the weights first."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from torch import Tensor

from fusedops.autograd import Autograd, Context, Gradients, save_keywords
from fusedops.call import call, call_in_place, ops
from fusedops.families.dequantize import dequantize_reference
from fusedops.families.gemm.mlp import (
    check_mlp_gemm,
    check_rms_mlp_gemm,
    mlp_gemm_reference,
    rms_mlp_gemm_reference,
)
from fusedops.families.gemm.products import (
    check_gemm_gelu,
    check_linear,
    fused_gemm_gelu_reference,
    linear_layer_reference,
    vector_matmul_reference,
)
from fusedops.families.gemm.qkv import (
    check_qkv_gemm,
    check_rms_qkv_gemm,
    qkv_gemm_reference,
    rms_qkv_gemm_reference,
)
from fusedops.families.gemm.weights import int8_check, product_and_norm_result, product_result
from fusedops.op import Op

if TYPE_CHECKING:
    from fusedops.workspace import Workspace


def _dequantize_first(dense: Callable[..., Any], *weights: int) -> Callable[..., Any]:
    """A function that dequantizes its weights and calls `dense`.

    `weights` are the indices in `dense`; a weight's scales come after it. The first argument has
    the dtype of the arithmetic.
    """

    def reference(*args: Tensor, **keywords: Any) -> Any:  # noqa: ANN401 - those of `dense`
        rest = iter(args)
        dense_args = [
            dequantize_reference(next(rest), next(rest), dtype=args[0].dtype)
            if index in weights
            else next(rest)
            for index in range(len(args) - len(weights))
        ]
        return dense(*dense_args, **keywords)

    return reference


def _refuse_gradient(ctx: Context, *grads: Tensor | None) -> Gradients:
    del ctx, grads
    raise NotImplementedError(
        "fusedops: products with int8 weights have no gradient; use fusedops.dequantize_fp16 and "
        "its like, and the form for such weights"
    )


_NO_GRADIENT = Autograd(_refuse_gradient, save_keywords)


def vector_matmul_int8(
    x: Tensor,
    weight: Tensor,
    scale: Tensor,
    *,
    out: Tensor | None = None,
    workspace: "Workspace | None" = None,
) -> Tensor:
    """Compute x weight, of int8 numbers and a scale for each group of the weight's rows.

    Element [k, m] of the weight counts as weight[k, m] * scale[k // (K / groups)]; `quantize` makes
    such weights. With up to 16 rows of a 16-bit `x`, and groups of a multiple of 64 rows or a
    single one, the int8 numbers are what is read, and their products with `x` are scaled in
    float32. Else the weight is first written as the dtype of `x`, rounded: in float16, scales below
    1e-6 cost it bits.

    For inference: there is no gradient.

    Args:
        x: Shape [..., K], at least one dimension; float32, float16 or bfloat16.
        weight: int8 [K, M] on the device of `x`.
        scale: float32 [groups], groups a divisor of K; on the device of `x`.
        out: Tensor for the result, contiguous and on 16 bytes, for inference. It shares no memory
            with an argument.
        workspace: Memory for the result, if there is no `out`, and for temporaries.

    Returns:
        A new contiguous tensor [..., M] of the dtype of `x`.

    Raises:
        ValueError: A dtype, device or shape is not as above.
    """
    return cast(
        "Tensor", call(ops.vector_matmul_int8, x, weight, scale, out=out, workspace=workspace)
    )


VECTOR_MATMUL_INT8 = Op(
    "vector_matmul_int8(Tensor x, Tensor weight, Tensor scale) -> Tensor",
    check=int8_check(check_linear, 1),
    reference=_dequantize_first(vector_matmul_reference, 1),
    result=product_result(),
    autograd=_NO_GRADIENT,
    rows=("x",),
)


def linear_layer_int8(
    x: Tensor,
    weight: Tensor,
    scale: Tensor,
    bias: Tensor | None = None,
    *,
    out: Tensor | None = None,
    workspace: "Workspace | None" = None,
) -> Tensor:
    """Compute x weight + bias: `linear_layer` with an int8 weight (see `vector_matmul_int8`).

    Args:
        x: Shape [..., K], at least one dimension; float32, float16 or bfloat16.
        weight: int8 [K, M] on the device of `x`.
        scale: float32 [groups], groups a divisor of K; on the device of `x`.
        bias: Shape [M]; dtype and device of `x`.
        out: Tensor for the result, contiguous and on 16 bytes, for inference. It shares no memory
            with an argument.
        workspace: Memory for the result, if there is no `out`, and for temporaries.

    Returns:
        A new contiguous tensor [..., M] of the dtype of `x`.

    Raises:
        ValueError: A dtype, device or shape is not as above.
    """
    return cast(
        "Tensor", call(ops.linear_layer_int8, x, weight, scale, bias, out=out, workspace=workspace)
    )


LINEAR_LAYER_INT8 = Op(
    "linear_layer_int8(Tensor x, Tensor weight, Tensor scale, Tensor? bias=None) -> Tensor",
    check=int8_check(check_linear, 1),
    reference=_dequantize_first(linear_layer_reference, 1),
    result=product_result(),
    autograd=_NO_GRADIENT,
    rows=("x",),
)


def fused_gemm_gelu_int8(
    x: Tensor,
    weight: Tensor,
    scale: Tensor,
    bias: Tensor,
    weight2: Tensor,
    scale2: Tensor,
    *,
    out: Tensor | None = None,
    workspace: "Workspace | None" = None,
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
        out: Tensor for the result, contiguous and on 16 bytes, for inference. It shares no memory
            with an argument.
        workspace: Memory for the result, if there is no `out`, and for temporaries.

    Returns:
        A new contiguous tensor [..., M] of the dtype of `x`.

    Raises:
        ValueError: A dtype, device or shape is not as above.
    """
    op = ops.fused_gemm_gelu_int8
    return cast(
        "Tensor", call(op, x, weight, scale, bias, weight2, scale2, out=out, workspace=workspace)
    )


FUSED_GEMM_GELU_INT8 = Op(
    "fused_gemm_gelu_int8(Tensor x, Tensor weight, Tensor scale, Tensor bias, Tensor weight2, "
    "Tensor scale2) -> Tensor",
    check=int8_check(check_gemm_gelu, 1, 3),
    reference=_dequantize_first(fused_gemm_gelu_reference, 1, 3),
    result=product_result(4),
    autograd=_NO_GRADIENT,
    rows=("x",),
)


def qkv_gemm_int8(
    x: Tensor,
    weight: Tensor,
    scale: Tensor,
    bias: Tensor | None,
    gamma: Tensor,
    beta: Tensor,
    *,
    eps: float = 1e-5,
    out: tuple[Tensor, Tensor] | None = None,
    workspace: "Workspace | None" = None,
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
        out: Tensors for the results, contiguous and on 16 bytes, for inference. They share no
            memory with an argument or each other.
        workspace: Memory for the results, if there is no `out`, and for temporaries.

    Returns:
        The product [..., M] and u [..., K], new contiguous tensors of the dtype of `x`.

    Raises:
        ValueError: A dtype, device or shape is not as above.
    """
    op = ops.qkv_gemm_int8
    return cast(
        "tuple[Tensor, Tensor]",
        call(op, x, weight, scale, bias, gamma, beta, eps=eps, out=out, workspace=workspace),
    )


QKV_GEMM_INT8 = Op(
    "qkv_gemm_int8(Tensor x, Tensor weight, Tensor scale, Tensor? bias, Tensor gamma, "
    "Tensor beta, *, float eps=1e-5) -> (Tensor, Tensor)",
    check=int8_check(check_qkv_gemm, 1),
    reference=_dequantize_first(qkv_gemm_reference, 1),
    result=product_and_norm_result(),
    autograd=_NO_GRADIENT,
    rows=("x",),
)


def rms_qkv_gemm_int8(
    x: Tensor,
    weight: Tensor,
    scale: Tensor,
    gamma: Tensor,
    *,
    eps: float = 1e-6,
    out: tuple[Tensor, Tensor] | None = None,
    workspace: "Workspace | None" = None,
) -> tuple[Tensor, Tensor]:
    """Compute u = RMS(x), and u weight: `rms_qkv_gemm` with an int8 weight.

    See `vector_matmul_int8` for the weight.

    Args:
        x: Shape [..., K], at least one dimension; float32, float16 or bfloat16.
        weight: int8 [K, M] on the device of `x`.
        scale: float32 [groups], groups a divisor of K; on the device of `x`.
        gamma: Shape [K]; dtype and device of `x`.
        eps: Added to the mean square.
        out: Tensors for the results, contiguous and on 16 bytes, for inference. They share no
            memory with an argument or each other.
        workspace: Memory for the results, if there is no `out`, and for temporaries.

    Returns:
        The product [..., M] and u [..., K], new contiguous tensors of the dtype of `x`.

    Raises:
        ValueError: A dtype, device or shape is not as above.
    """
    op = ops.rms_qkv_gemm_int8
    return cast(
        "tuple[Tensor, Tensor]",
        call(op, x, weight, scale, gamma, eps=eps, out=out, workspace=workspace),
    )


RMS_QKV_GEMM_INT8 = Op(
    "rms_qkv_gemm_int8(Tensor x, Tensor weight, Tensor scale, Tensor gamma, *, float eps=1e-6)"
    " -> (Tensor, Tensor)",
    check=int8_check(check_rms_qkv_gemm, 1),
    reference=_dequantize_first(rms_qkv_gemm_reference, 1),
    result=product_and_norm_result(),
    autograd=_NO_GRADIENT,
    rows=("x",),
)


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
    out: tuple[Tensor, Tensor] | None = None,
    workspace: "Workspace | None" = None,
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
        out: Tensors for the results, contiguous and on 16 bytes, for inference. They share no
            memory with an argument or each other.
        workspace: Memory for the results, if there is no `out`, and for temporaries.

    Returns:
        The product [..., M] and u [..., K], new contiguous tensors of the dtype of `x`.

    Raises:
        ValueError: An argument is not as above.
    """
    result = call(
        ops.mlp_gemm_int8,
        *(x, residual, input_bias, weight, scale, bias, weight2, scale2, gamma, beta),
        eps=eps,
        pre_ln=pre_ln,
        mlp_after_attn=mlp_after_attn,
        activation=activation,
        out=out,
        workspace=workspace,
    )
    return cast("tuple[Tensor, Tensor]", result)


MLP_GEMM_INT8 = Op(
    "mlp_gemm_int8(Tensor x, Tensor residual, Tensor input_bias, Tensor weight, Tensor scale, "
    "Tensor bias, Tensor weight2, Tensor scale2, Tensor gamma, Tensor beta, *, float eps=1e-5, "
    'bool pre_ln=True, bool mlp_after_attn=True, str activation="gelu") -> (Tensor, Tensor)',
    check=int8_check(check_mlp_gemm, 3, 5),
    reference=_dequantize_first(mlp_gemm_reference, 3, 5),
    result=product_and_norm_result(6),
    autograd=_NO_GRADIENT,
    rows=("x", "residual"),
)


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
    out: Tensor | None = None,
    workspace: "Workspace | None" = None,
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
        *(ops.rms_mlp_gemm_int8, x, residual, weight, scale, weight2, scale2, gamma),
        eps=eps,
        activation=activation,
        out=out,
        workspace=workspace,
    )
    return product, residual


RMS_MLP_GEMM_INT8 = Op(
    "rms_mlp_gemm_int8(Tensor x, Tensor(a!) residual, Tensor weight, Tensor scale, "
    "Tensor weight2, Tensor scale2, Tensor gamma, *, float eps=1e-6, "
    'str activation="swiglu") -> Tensor',
    check=int8_check(check_rms_mlp_gemm, 2, 3),
    reference=_dequantize_first(rms_mlp_gemm_reference, 2, 3),
    result=product_result(4),
)

OPS = (
    VECTOR_MATMUL_INT8,
    LINEAR_LAYER_INT8,
    FUSED_GEMM_GELU_INT8,
    QKV_GEMM_INT8,
    RMS_QKV_GEMM_INT8,
    MLP_GEMM_INT8,
    RMS_MLP_GEMM_INT8,
)
