"""What the norms demand, in the native library's order and words."""

from torch import Tensor

from fusedops import checks


def layer_norm(x: Tensor, gamma: Tensor, beta: Tensor, *, eps: float = 1e-5) -> None:
    """A matrix and two rows."""
    del eps
    check_norm("layer_norm", x, gamma=gamma, beta=beta)


def layer_norm_residual(
    x: Tensor, bias: Tensor, residual: Tensor, gamma: Tensor, beta: Tensor, *, eps: float = 1e-5
) -> None:
    """Two matrices and three rows."""
    del eps
    check_norm("layer_norm_residual", x, bias=bias, residual=residual, gamma=gamma, beta=beta)


def layer_norm_residual_store(
    x: Tensor, bias: Tensor, residual: Tensor, gamma: Tensor, beta: Tensor, *, eps: float = 1e-5
) -> None:
    """Two matrices and three rows."""
    del eps
    check_norm("layer_norm_residual_store", x, bias=bias, residual=residual, gamma=gamma, beta=beta)


def rms_norm(x: Tensor, gamma: Tensor, *, eps: float = 1e-6) -> None:
    """A matrix and a row."""
    del eps
    check_norm("rms_norm", x, gamma=gamma)


def pre_rms_norm(x: Tensor, residual: Tensor, gamma: Tensor, *, eps: float = 1e-6) -> None:
    """Two matrices and a row."""
    del eps
    check_norm("pre_rms_norm", x, residual=residual, gamma=gamma)


def layer_norm_backward(
    grad: Tensor, x: Tensor, gamma: Tensor, grad_sum: Tensor | None = None, *, eps: float = 1e-5
) -> None:
    """A matrix, a row, and gradients like the matrix."""
    del eps
    _backward("layer_norm_backward", grad, x, gamma, grad_sum)


def rms_norm_backward(
    grad: Tensor, x: Tensor, gamma: Tensor, grad_sum: Tensor | None = None, *, eps: float = 1e-6
) -> None:
    """A matrix, a row, and gradients like the matrix."""
    del eps
    _backward("rms_norm_backward", grad, x, gamma, grad_sum)


def check_norm(op: str, x: Tensor, **operands: Tensor) -> None:
    """`residual` is a matrix like x, every other operand one row of it."""
    checks.check_rows(op, "x", x)
    for name, operand in operands.items():
        check = checks.check_alike if name == "residual" else checks.check_row_like
        check(op, name, operand, "x", x)


def _backward(op: str, grad: Tensor, x: Tensor, gamma: Tensor, grad_sum: Tensor | None) -> None:
    check_norm(op, x, gamma=gamma)
    for name, matrix in (("grad", grad), ("grad_sum", grad_sum)):
        if matrix is not None:
            checks.check_alike(op, name, matrix, "x", x)
