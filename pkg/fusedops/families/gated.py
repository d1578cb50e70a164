"""A gated linear unit: one half of the columns times an activation of the other half."""

from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

from fusedops import arithmetic, checks
from fusedops.arithmetic import narrow, sum_over_rows, widen
from fusedops.autograd import NO_SECOND_DERIVATIVE, Autograd, Context, Gradients
from fusedops.call import call, ops
from fusedops.op import Op

if TYPE_CHECKING:
    from fusedops.workspace import Workspace

__all__ = ["gated_activation"]

KINDS = ("geglu", "geglu_erf", "swiglu", "reglu")
_GELU_FORMS = {"geglu": "tanh", "geglu_erf": "none"}


def gated_activation(
    x: Tensor,
    bias: Tensor | None = None,
    *,
    kind: str,
    out: Tensor | None = None,
    workspace: "Workspace | None" = None,
) -> Tensor:
    """Compute (x1 + b1) * g(x2 + b2), a gated linear unit.

    x1, the value, is the first half of the columns of `x`, and x2, the gate, the second; b1 and b2
    are the halves of `bias`. `kind` names g:

    - "geglu": GELU in its tanh form, 0.5 v (1 + tanh(sqrt(2/pi) (v + 0.044715 v^3)));
    - "geglu_erf": GELU, 0.5 v (1 + erf(v / sqrt(2)));
    - "swiglu": SiLU, v / (1 + exp(-v));
    - "reglu": max(v, 0).

    From Shazeer, "GLU Variants Improve Transformer", 2020. Arithmetic is float32 (float64 for
    float64), rounded once. At -inf and +inf g is the formula's limit, 0 and inf; NaN stays NaN.

    Differentiable once in `x` and `bias`; the gradient of the bias is summed in an order that
    depends on the shape alone, so two runs give the same bits. The slope of "reglu" at 0 is 0.

    Args:
        x: Shape [..., 2N], at least one dimension; float32, float16, bfloat16 or float64. Models
            that keep the gate in the first half need it moved, e.g. in the weights once.
        bias: Shape [2N]; dtype and device of `x`. None adds nothing.
        kind: "geglu", "geglu_erf", "swiglu" or "reglu".
        out: Tensor for the result, contiguous and on 16 bytes, for inference. It shares no memory
            with an argument.
        workspace: Memory for the result, if there is no `out`, and for temporaries.

    Returns:
        A new contiguous tensor [..., N] of the dtype of `x`.

    Raises:
        ValueError: A dtype, device or shape is not as above, or `kind` is another word.
    """
    return cast(
        "Tensor", call(ops.gated_activation, x, bias, kind=kind, out=out, workspace=workspace)
    )


def _check_gated_activation(op: str, x: Tensor, bias: Tensor | None = None, *, kind: str) -> None:
    if kind not in KINDS:
        checks.fail(op, "kind", "'geglu', 'geglu_erf', 'swiglu' or 'reglu'", repr(kind))
    checks.check_rows(op, "x", x)
    if x.shape[-1] % 2 != 0:
        checks.fail(op, "x", "an even last dimension (values and gates)", x.shape[-1])
    if bias is not None:
        checks.check_row_like(op, "bias", bias, "x", x)


def gated_activation_reference(x: Tensor, bias: Tensor | None = None, *, kind: str) -> Tensor:
    """The first half times an activation of the second, of x + bias."""
    value, gate = _value_and_gate(x, bias)
    return narrow(value * _activation(gate, kind), x)


def _half_of_x(x: Tensor, *_: object, **__: object) -> Tensor:
    return x.new_empty((*x.shape[:-1], x.shape[-1] // 2))


def _gated_activation_gradients(ctx: Context, grad: Tensor) -> Gradients:
    x, bias = ctx.saved_tensors
    grad_x, grad_bias = call(ops.gated_activation_backward, grad, x, bias, **ctx.keywords)
    return grad_x, None if bias is None else grad_bias


GATED_ACTIVATION = Op(
    "gated_activation(Tensor x, Tensor? bias=None, *, str kind) -> Tensor",
    check=_check_gated_activation,
    reference=gated_activation_reference,
    result=_half_of_x,
    autograd=Autograd(_gated_activation_gradients),
    rows=("x",),
)


def _check_gated_activation_backward(
    op: str, grad: Tensor, x: Tensor, bias: Tensor | None = None, *, kind: str
) -> None:
    _check_gated_activation(op, x, bias, kind=kind)
    checks.check_like(op, "grad", grad, "x", x)
    if grad.shape != (*x.shape[:-1], x.shape[-1] // 2):
        expected = f"the shape of x, {list(x.shape)}, with half the last dimension"
        checks.fail(op, "grad", expected, list(grad.shape))


def gated_activation_backward_reference(
    grad: Tensor, x: Tensor, bias: Tensor | None = None, *, kind: str
) -> tuple[Tensor, Tensor]:
    """Gradients of gated_activation with respect to x and bias; an empty one without a bias."""
    value, gate = _value_and_gate(x, bias)
    upper = widen(grad)
    grad_gate = _activation_backward(upper * value, gate, kind)
    wide = torch.cat([upper * _activation(gate, kind), grad_gate], -1)
    if bias is None:
        return narrow(wide, x), x.new_empty(0)
    return narrow(wide, x), sum_over_rows(wide, x)


def _like_x_and_bias(
    grad: Tensor, x: Tensor, bias: Tensor | None = None, **_: object
) -> tuple[Tensor, Tensor]:
    del grad
    return x.new_empty(x.shape), x.new_empty(0 if bias is None else bias.shape)


GATED_ACTIVATION_BACKWARD = Op(
    "gated_activation_backward(Tensor grad, Tensor x, Tensor? bias=None, *, str kind)"
    " -> (Tensor, Tensor)",
    check=_check_gated_activation_backward,
    reference=gated_activation_backward_reference,
    result=_like_x_and_bias,
    autograd=NO_SECOND_DERIVATIVE,
    public=False,
)

OPS = (GATED_ACTIVATION, GATED_ACTIVATION_BACKWARD)


def _value_and_gate(x: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
    wide = widen(x) if bias is None else widen(x) + widen(bias)
    value, gate = wide.chunk(2, -1)
    return value, gate


def _activation(v: Tensor, kind: str) -> Tensor:
    if kind == "reglu":
        return torch.relu(v)
    if kind == "swiglu":
        return arithmetic.silu(v)
    return arithmetic.gelu(v, _GELU_FORMS[kind])


def _activation_backward(grad: Tensor, v: Tensor, kind: str) -> Tensor:
    if kind == "reglu":
        return arithmetic.relu_backward(grad, v)
    if kind == "swiglu":
        return arithmetic.silu_backward(grad, v)
    return arithmetic.gelu_backward(grad, v, _GELU_FORMS[kind])
