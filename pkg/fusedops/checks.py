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
    check_device(op, name, tensor, like_name, like)


def check_device(op: str, name: str, tensor: Tensor, like_name: str, like: Tensor) -> None:
    """`tensor` must be on the device of `like`."""
    if tensor.device != like.device:
        fail(op, name, f"device {like.device} (that of {like_name})", tensor.device)


def check_same_shape(op: str, name: str, tensor: Tensor, like_name: str, like: Tensor) -> None:
    """`tensor` must have the shape of `like`."""
    if tensor.shape != like.shape:
        fail(op, name, f"shape {list(like.shape)} (that of {like_name})", list(tensor.shape))


def check_row(op: str, name: str, row: Tensor, like_name: str, like: Tensor) -> None:
    """`row` must be one row of `like`."""
    if row.dim() != 1 or row.shape[0] != like.shape[-1]:
        expected = f"shape [{like.shape[-1]}] (the last dimension of {like_name})"
        fail(op, name, expected, list(row.shape))


def _dtype(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
