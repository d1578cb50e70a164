"""What the gated operators demand, in the native library's order and words."""

from torch import Tensor

from fusedops import checks

KINDS = ("geglu", "geglu_erf", "swiglu", "reglu")


def gated_activation(x: Tensor, bias: Tensor | None = None, *, kind: str) -> None:
    """A kind of gate, two halves and, if there is one, a row of both."""
    _halves("gated_activation", x, bias, kind)


def gated_activation_backward(
    grad: Tensor, x: Tensor, bias: Tensor | None = None, *, kind: str
) -> None:
    """The same, and a gradient like one half."""
    op = "gated_activation_backward"
    _halves(op, x, bias, kind)
    checks.check_like(op, "grad", grad, "x", x)
    if grad.shape != (*x.shape[:-1], x.shape[-1] // 2):
        expected = f"the shape of x, {list(x.shape)}, with half the last dimension"
        checks.fail(op, "grad", expected, list(grad.shape))


def _halves(op: str, x: Tensor, bias: Tensor | None, kind: str) -> None:
    if kind not in KINDS:
        checks.fail(op, "kind", "'geglu', 'geglu_erf', 'swiglu' or 'reglu'", repr(kind))
    checks.check_rows(op, "x", x)
    if x.shape[-1] % 2 != 0:
        checks.fail(op, "x", "an even last dimension (values and gates)", x.shape[-1])
    if bias is not None:
        checks.check_row_like(op, "bias", bias, "x", x)
