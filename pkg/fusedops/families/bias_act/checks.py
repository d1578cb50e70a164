"""What the operators of x[..., N] and bias[N] demand, in the native library's order and words."""

from torch import Tensor

from fusedops import checks


def bias_add(x: Tensor, bias: Tensor) -> None:
    """A matrix and a row."""
    _bias("bias_add", x, bias)


def bias_relu(x: Tensor, bias: Tensor) -> None:
    """A matrix and a row."""
    _bias("bias_relu", x, bias)


def bias_gelu(x: Tensor, bias: Tensor, *, approximate: str = "tanh") -> None:
    """A form of GELU, a matrix and a row."""
    _approximate("bias_gelu", approximate)
    _bias("bias_gelu", x, bias)


def bias_relu_backward(grad: Tensor, x: Tensor, bias: Tensor) -> None:
    """A matrix, a row and a gradient like the matrix."""
    _backward("bias_relu_backward", grad, x, bias)


def bias_gelu_backward(grad: Tensor, x: Tensor, bias: Tensor, *, approximate: str = "tanh") -> None:
    """A form of GELU, a matrix, a row and a gradient like the matrix."""
    _approximate("bias_gelu_backward", approximate)
    _backward("bias_gelu_backward", grad, x, bias)


def _bias(op: str, x: Tensor, bias: Tensor) -> None:
    checks.check_rows(op, "x", x)
    checks.check_row_like(op, "bias", bias, "x", x)


def _backward(op: str, grad: Tensor, x: Tensor, bias: Tensor) -> None:
    _bias(op, x, bias)
    checks.check_alike(op, "grad", grad, "x", x)


def _approximate(op: str, approximate: str) -> None:
    if approximate not in ("tanh", "none"):
        checks.fail(op, "approximate", "'tanh' or 'none'", repr(approximate))
