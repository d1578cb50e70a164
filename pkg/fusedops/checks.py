"""Checks of arguments, with the native library's messages, in its order (csrc/ops)."""

from typing import NoReturn

import torch
from torch import Tensor

UP_TO_32_BITS = (torch.float32, torch.float16, torch.bfloat16)
FLOATING = (*UP_TO_32_BITS, torch.float64)


def fail(op: str, argument: str, expected: str, found: object) -> NoReturn:
    """Raise the ValueError that names the operator, the argument, what was expected and found."""
    raise ValueError(f"{op}: {argument}: expected {expected}, found {found}")


def dtype_name(dtype: torch.dtype) -> str:
    """As messages have it, e.g. float32."""
    return str(dtype).removeprefix("torch.")


def check_floating(op: str, name: str, tensor: Tensor) -> None:
    """`tensor` must have one of the types the kernels compute in."""
    if tensor.dtype not in FLOATING:
        fail(op, name, "dtype float32, float16, bfloat16 or float64", dtype_name(tensor.dtype))


def check_like(op: str, name: str, tensor: Tensor, like_name: str, like: Tensor) -> None:
    """`tensor` must have the dtype and the device of `like`."""
    if tensor.dtype != like.dtype:
        expected = f"dtype {dtype_name(like.dtype)} (that of {like_name})"
        fail(op, name, expected, dtype_name(tensor.dtype))
    check_device(op, name, tensor, like_name, like)


def check_device(op: str, name: str, tensor: Tensor, like_name: str, like: Tensor) -> None:
    """`tensor` must be on the device of `like`."""
    if tensor.device != like.device:
        fail(op, name, f"device {like.device} (that of {like_name})", tensor.device)


def check_rows(op: str, name: str, tensor: Tensor) -> None:
    """`tensor` must be floating, and have a last dimension: its rows."""
    check_floating(op, name, tensor)
    if tensor.dim() < 1:
        fail(op, name, "at least 1 dimension", 0)


def check_alike(op: str, name: str, tensor: Tensor, like_name: str, like: Tensor) -> None:
    """`tensor` must have the dtype, the device and the shape of `like`."""
    check_like(op, name, tensor, like_name, like)
    if tensor.shape != like.shape:
        fail(op, name, f"shape {list(like.shape)} (that of {like_name})", list(tensor.shape))


def check_row(op: str, name: str, row: Tensor, like_name: str, like: Tensor) -> None:
    """`row` must be one row of `like`."""
    if row.dim() != 1 or row.shape[0] != like.shape[-1]:
        expected = f"shape [{like.shape[-1]}] (the last dimension of {like_name})"
        fail(op, name, expected, list(row.shape))


def check_row_like(op: str, name: str, row: Tensor, like_name: str, like: Tensor) -> None:
    """`row` must be one row of `like`, of its dtype and on its device."""
    check_like(op, name, row, like_name, like)
    check_row(op, name, row, like_name, like)
