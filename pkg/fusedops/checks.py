"""Checks of arguments, with the native library's messages, in its order (csrc/ops)."""

from typing import NoReturn

import torch
from torch import Tensor

FLOATING = (torch.float32, torch.float16, torch.bfloat16, torch.float64)


def fail(op: str, argument: str, expected: str, found: object) -> NoReturn:
    """Raise the ValueError that names the operator, the argument, what was expected and found."""
    raise ValueError(f"{op}: {argument}: expected {expected}, found {found}")


def check_floating(op: str, name: str, tensor: Tensor) -> None:
    """`tensor` must have one of the types the kernels compute in."""
    if tensor.dtype not in FLOATING:
        fail(op, name, "dtype float32, float16, bfloat16 or float64", _dtype(tensor))


def check_like(op: str, name: str, tensor: Tensor, like_name: str, like: Tensor) -> None:
    """`tensor` must have the dtype and the device of `like`."""
    if tensor.dtype != like.dtype:
        fail(op, name, f"dtype {_dtype(like)} (that of {like_name})", _dtype(tensor))
    if tensor.device != like.device:
        fail(op, name, f"device {like.device} (that of {like_name})", tensor.device)


def check_same_shape(op: str, name: str, tensor: Tensor, like_name: str, like: Tensor) -> None:
    """`tensor` must have the shape of `like`."""
    if tensor.shape != like.shape:
        fail(op, name, f"shape {list(like.shape)} (that of {like_name})", list(tensor.shape))


def check_vector_add(a: Tensor, b: Tensor) -> None:
    """What vector_add demands."""
    check_floating("vector_add", "a", a)
    check_like("vector_add", "b", b, "a", a)
    check_same_shape("vector_add", "b", b, "a", a)


def check_bias(op: str, x: Tensor, bias: Tensor) -> None:
    """What every operator of x[..., N] and bias[N] demands."""
    check_floating(op, "x", x)
    if x.dim() < 1:
        fail(op, "x", "at least 1 dimension", 0)
    check_like(op, "bias", bias, "x", x)
    if bias.dim() != 1 or bias.shape[0] != x.shape[-1]:
        expected = f"shape [{x.shape[-1]}] (the last dimension of x)"
        fail(op, "bias", expected, list(bias.shape))


def check_bias_backward(op: str, grad: Tensor, x: Tensor, bias: Tensor) -> None:
    """What every gradient of an operator of x[..., N] and bias[N] demands."""
    check_bias(op, x, bias)
    check_like(op, "grad", grad, "x", x)
    check_same_shape(op, "grad", grad, "x", x)


def check_approximate(op: str, approximate: str) -> None:
    """`approximate` must name a form of GELU."""
    if approximate not in ("tanh", "none"):
        fail(op, "approximate", "'tanh' or 'none'", repr(approximate))


def _dtype(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
