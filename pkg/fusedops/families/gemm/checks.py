"""What the products with weights demand, in the native library's order and words.

A form for int8 weights demands what the form for dense ones does, but of weights with scales.
"""

from collections.abc import Callable

from torch import Tensor

from fusedops import checks
from fusedops.families.gated.checks import KINDS
from fusedops.families.gemm.weights import (
    Weight,
    check_bias,
    check_next,
    check_product,
    check_weight,
)
from fusedops.families.norm.checks import check_norm

PLAIN = ("gelu", "gelu_erf", "relu")
Check = Callable[..., None]


def linear(op: str, x: Tensor, weight: Weight, bias: Tensor | None = None) -> None:
    """A matrix, a weight, and a row if there is a bias."""
    check_product(op, x, weight)
    if bias is not None:
        check_bias(op, bias, x, weight)


def gemm_gelu(op: str, x: Tensor, weight: Weight, bias: Tensor, weight2: Weight) -> None:
    """A matrix, a weight, a row, and a weight that takes what the first gives."""
    linear(op, x, weight, bias)
    check_next(op, x, weight, weight2)


def einsum(op: str, q: Tensor, weight: Weight) -> None:
    """Three dimensions, and a weight that takes the first."""
    checks.check_floating(op, "q", q)
    if q.dim() != 3:
        checks.fail(op, "q", "3 dimensions", q.dim())
    check_weight(op, weight, "q", q, q.shape[0], "the first dimension of q")


def qkv(
    op: str,
    x: Tensor,
    weight: Weight,
    bias: Tensor | None,
    gamma: Tensor,
    beta: Tensor,
    **_: object,
) -> None:
    """A matrix, its norm's rows, a weight, and a row if there is a bias."""
    check_norm(op, x, gamma=gamma, beta=beta)
    linear(op, x, weight, bias)


def rms_qkv(op: str, x: Tensor, weight: Weight, gamma: Tensor, **_: object) -> None:
    """A matrix, its norm's row and a weight."""
    check_norm(op, x, gamma=gamma)
    linear(op, x, weight)


def mlp(
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
    """Two matrices, three rows for them, and the MLP's weights and bias."""
    _activation(op, activation)
    check_norm(op, x, input_bias=input_bias, residual=residual, gamma=gamma, beta=beta)
    _mlp(op, x, weight, bias, weight2, activation)


def rms_mlp(
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
    """Two matrices, a row for them, and the MLP's weights."""
    _activation(op, activation)
    check_norm(op, x, residual=residual, gamma=gamma)
    _mlp(op, x, weight, None, weight2, activation)


def dense(op: str, check: Check, *places: int) -> Check:
    """The check of an operator whose arguments at `places` are weights."""

    def checked(*args: Tensor, **keywords: object) -> None:
        found = [
            Weight(name, args[at]) if name else args[at]
            for at, name in enumerate(_names(places, len(args)))
        ]
        check(op, *found, **keywords)

    return checked


def int8(op: str, check: Check, *places: int) -> Check:
    """The same of one whose weights have their scales after them; `places` are the dense form's."""

    def checked(*args: Tensor, **keywords: object) -> None:
        rest = iter(args)
        found = [
            Weight(name, next(rest), name.replace("weight", "scale"), next(rest))
            if name
            else next(rest)
            for name in _names(places, len(args) - len(places))
        ]
        check(op, *found, **keywords)

    return checked


def _names(places: tuple[int, ...], count: int) -> list[str]:
    """The names of the weights among so many arguments, and "" for the others."""
    names = dict(zip(places, ("weight", "weight2"), strict=False))
    return [names.get(at, "") for at in range(count)]


def _activation(op: str, activation: str) -> None:
    if activation not in (*PLAIN, *KINDS):
        words = [repr(word) for word in (*PLAIN, *KINDS)]
        expected = f"{', '.join(words[:-1])} or {words[-1]}"
        checks.fail(op, "activation", expected, repr(activation))


def _mlp(
    op: str, x: Tensor, weight: Weight, bias: Tensor | None, weight2: Weight, activation: str
) -> None:
    check_product(op, x, weight)
    gated = activation in KINDS
    if gated and weight.tensor.shape[1] % 2 != 0:
        expected = "an even last dimension (values and gates)"
        checks.fail(op, weight.name, expected, weight.tensor.shape[1])
    if bias is not None:
        check_bias(op, bias, x, weight)
    check_next(op, x, weight, weight2, gated=gated)
