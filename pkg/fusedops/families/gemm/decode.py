"""A product of a decode step: a norm before it, an activation or a sum after it."""

from typing import TYPE_CHECKING, cast

from torch import Tensor

from fusedops import checks
from fusedops.call import call, ops
from fusedops.families.gated import KINDS
from fusedops.families.gemm.mlp import check_activation, check_halves
from fusedops.families.gemm.products import activated, linear_layer_reference, matrix_of
from fusedops.families.gemm.weights import Weight, check_product, dense_check
from fusedops.families.norm import check_norm, rms_norm_reference
from fusedops.op import Op

if TYPE_CHECKING:
    from fusedops.workspace import Workspace


def decode_gemm(
    x: Tensor,
    weight: Tensor,
    gamma: Tensor | None = None,
    residual: Tensor | None = None,
    *,
    eps: float = 1e-6,
    activation: str = "none",
    constant: bool = False,
    out: Tensor | None = None,
    workspace: "Workspace | None" = None,
) -> Tensor:
    """Compute f(u weight), or residual + u weight: what a layer does between two products.

    u is RMS(x), as `rms_norm` has it, or x where there is no `gamma`. f is as in `mlp_gemm`. On
    NVIDIA GPUs from compute capability 9.0 on it is one kernel for up to 8 rows of a 16-bit type
    and a weight whose columns are contiguous: `linear.weight.t()` of a torch.nn.Linear. u and the
    result are rounded there, and nothing else.

    For inference: there is no gradient.

    Args:
        x: Shape [..., K], at least one dimension; float32, float16, bfloat16 or float64.
        weight: Shape [K, M], or [K, 2M] with the gates last; dtype and device of `x`.
        gamma: Shape [K], or None for no norm; dtype and device of `x`.
        residual: Shape [..., M], or None; dtype and device of `x`. Only without an activation.
        eps: Added to the mean square.
        activation: "none", or one of `mlp_gemm`.
        constant: A promise that no kernel of this package that may still run has written `weight`.
            Then its first part is read before the kernels before this one have ended. That of a
            model whose weights do not change keeps it.
        out: Tensor for the result, contiguous and on 16 bytes, for inference. It shares no memory
            with an argument.
        workspace: Memory for the result, if there is no `out`, and for temporaries.

    Returns:
        A new contiguous tensor [..., M] of the dtype of `x`.

    Raises:
        ValueError: An argument is not as above.
    """
    result = call(
        *(ops.decode_gemm, x, weight, gamma, residual),
        eps=eps,
        activation=activation,
        constant=constant,
        out=out,
        workspace=workspace,
    )
    return cast("Tensor", result)


def _check_decode_gemm(
    op: str,
    x: Tensor,
    weight: Weight,
    gamma: Tensor | None = None,
    residual: Tensor | None = None,
    *,
    activation: str = "none",
    **_: object,
) -> None:
    """The activation, the norm's check, then the weight and the residual."""
    check_activation(op, activation, "none")
    check_norm(op, x, **({} if gamma is None else {"gamma": gamma}))
    check_product(op, x, weight)
    check_halves(op, weight, activation)
    if residual is None:
        return
    if activation != "none":
        checks.fail(op, "activation", "'none' beside a residual", repr(activation))
    checks.check_like(op, "residual", residual, "x", x)
    expected = [*x.shape[:-1], weight.tensor.shape[1]]
    if list(residual.shape) != expected:
        checks.fail(op, "residual", f"shape {expected}", list(residual.shape))


def _decode_gemm_reference(
    x: Tensor,
    weight: Tensor,
    gamma: Tensor | None = None,
    residual: Tensor | None = None,
    *,
    eps: float = 1e-6,
    activation: str = "none",
    constant: bool = False,
) -> Tensor:
    """f(RMS(x) weight), or residual + RMS(x) weight."""
    del constant
    u = x if gamma is None else rms_norm_reference(x, gamma, eps=eps)
    v = linear_layer_reference(u, weight, None if residual is None else matrix_of(residual))
    return v if activation == "none" else activated(v, None, activation)


def _decode_gemm_result(
    x: Tensor, weight: Tensor, *_: object, activation: str = "none", **__: object
) -> Tensor:
    width = weight.shape[1]
    return x.new_empty(*x.shape[:-1], width // 2 if activation in KINDS else width)


OPS = (
    Op(
        "decode_gemm(Tensor x, Tensor weight, Tensor? gamma=None, Tensor? residual=None, *, "
        'float eps=1e-6, str activation="none", bool constant=False) -> Tensor',
        check=dense_check(_check_decode_gemm, 1),
        reference=_decode_gemm_reference,
        result=_decode_gemm_result,
        rows=("x", "residual"),
    ),
)
