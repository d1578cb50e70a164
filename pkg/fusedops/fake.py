"""Shapes and dtypes of the operators' results, for tracing: no data is touched."""

from torch import Tensor

from fusedops import checks


def vector_add(a: Tensor, b: Tensor, *, gamma: float = 1.0) -> Tensor:  # noqa: ARG001
    """Like a."""
    checks.check_vector_add(a, b)
    return a.new_empty(a.shape)


def bias_add(x: Tensor, bias: Tensor) -> Tensor:
    """Like x."""
    checks.check_bias("bias_add", x, bias)
    return x.new_empty(x.shape)


def bias_relu(x: Tensor, bias: Tensor) -> Tensor:
    """Like x."""
    checks.check_bias("bias_relu", x, bias)
    return x.new_empty(x.shape)


def bias_gelu(x: Tensor, bias: Tensor, *, approximate: str = "tanh") -> Tensor:
    """Like x."""
    checks.check_approximate("bias_gelu", approximate)
    checks.check_bias("bias_gelu", x, bias)
    return x.new_empty(x.shape)


def bias_relu_backward(grad: Tensor, x: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """Like x and bias."""
    checks.check_bias_backward("bias_relu_backward", grad, x, bias)
    return x.new_empty(x.shape), bias.new_empty(bias.shape)


def bias_gelu_backward(
    grad: Tensor, x: Tensor, bias: Tensor, *, approximate: str = "tanh"
) -> tuple[Tensor, Tensor]:
    """Like x and bias."""
    checks.check_approximate("bias_gelu_backward", approximate)
    checks.check_bias_backward("bias_gelu_backward", grad, x, bias)
    return x.new_empty(x.shape), bias.new_empty(bias.shape)
