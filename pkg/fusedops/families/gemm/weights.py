"""Weights, dense or of int8 with their scales: the checks of a product, and its result.

An operator with int8 weights checks what the one with dense weights does, but weights with scales.
So a check takes a `Weight`, and `dense_check` and `int8_check` make it from tensors.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from fusedops import checks
from fusedops.families.dequantize import check_scale

Check = Callable[..., None]


class Weight(NamedTuple):
    """A weight, its name, and its scales if it is of int8."""

    name: str
    tensor: Tensor
    scale_name: str = ""
    scale: Tensor | None = None


def dense_check(check: Check, *weights: int) -> Check:
    """The check of an operator whose arguments at the indices `weights` are dense weights."""

    def dense(op: str, *args: Tensor, **keywords: object) -> None:
        with_weights = [
            Weight(name, arg) if name else arg
            for name, arg in zip(_weight_names(weights, len(args)), args, strict=True)
        ]
        check(op, *with_weights, **keywords)

    return dense


def int8_check(check: Check, *weights: int) -> Check:
    """The check of an operator whose weights have their scales after them.

    `weights` are the indices in the operator with dense weights.
    """

    def int8(op: str, *args: Tensor, **keywords: object) -> None:
        rest = iter(args)
        with_weights = [
            Weight(name, next(rest), name.replace("weight", "scale"), next(rest))
            if name
            else next(rest)
            for name in _weight_names(weights, len(args) - len(weights))
        ]
        check(op, *with_weights, **keywords)

    return int8


def _weight_names(weights: tuple[int, ...], count: int) -> list[str]:
    """For each of `count` arguments the name of the weight, or "" for another argument."""
    names = dict(zip(weights, ("weight", "weight2"), strict=False))
    return [names.get(index, "") for index in range(count)]


def check_product(op: str, x: Tensor, weight: Weight) -> None:
    """`x` must be a matrix, and `weight` take its rows."""
    checks.check_rows(op, "x", x)
    if weight.scale is not None and x.dtype == torch.float64:
        checks.fail(op, "x", "dtype float32, float16 or bfloat16", "float64")
    check_weight(op, weight, "x", x, x.shape[-1], "the last dimension of x")


def check_next(op: str, x: Tensor, before: Weight, weight: Weight, *, gated: bool = False) -> None:
    """`weight` must take the rows that `before` gives, or half of each."""
    rows = before.tensor.shape[1] // 2 if gated else before.tensor.shape[1]
    source = f"{'half ' if gated else ''}the last dimension of {before.name}"
    check_weight(op, weight, "x", x, rows, source)


def check_weight(
    op: str, weight: Weight, like_name: str, like: Tensor, rows: int, source: str
) -> None:
    """A weight must have `rows` rows, and the type of `like` or int8 with scales.

    `source` says in messages where the number of rows comes from.
    """
    name, tensor, scale_name, scale = weight
    if scale is None:
        checks.check_like(op, name, tensor, like_name, like)
    else:
        if tensor.dtype != torch.int8:
            checks.fail(op, name, "dtype int8", checks.dtype_name(tensor.dtype))
        checks.check_device(op, name, tensor, like_name, like)
    if tensor.dim() != 2 or tensor.shape[0] != rows:
        checks.fail(op, name, f"shape [{rows}, any] ({source})", list(tensor.shape))
    if scale is not None:
        check_scale(op, scale_name, scale, name, tensor)


def check_bias(op: str, bias: Tensor, x: Tensor, weight: Weight) -> None:
    """`bias` must be a row of the product."""
    checks.check_like(op, "bias", bias, "x", x)
    checks.check_row(op, "bias", bias, weight.name, weight.tensor)


def product_result(weight: int = 1) -> Callable[..., Tensor]:
    """Empty results as wide as the weight, the argument of that index."""

    def result(x: Tensor, *args: Tensor, **_: object) -> Tensor:
        return x.new_empty(*x.shape[:-1], args[weight - 1].shape[1])

    return result


def product_and_norm_result(weight: int = 1) -> Callable[..., tuple[Tensor, Tensor]]:
    """Empty results of the product, and of the norm of the first argument."""
    product = product_result(weight)

    def result(x: Tensor, *args: Tensor, **_: object) -> tuple[Tensor, Tensor]:
        return product(x, *args), x.new_empty(x.shape)

    return result
