"""Checks of arguments, and their messages: the kernels refuse the same arguments without one."""

from typing import NoReturn

import torch
from torch import Tensor

from fusedops.kinds import check_kind

UP_TO_32_BITS = (torch.float32, torch.float16, torch.bfloat16)
FLOATING = (*UP_TO_32_BITS, torch.float64)


def fail(op: str, argument: str, expected: str, found: object) -> NoReturn:
    """Raise the ValueError that names the operator, the argument, what was expected and found."""
    raise ValueError(f"{op}: {argument}: expected {expected}, found {found}")


def dtype_name(dtype: torch.dtype) -> str:
    """The dtype as in messages, e.g. float32."""
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


def check_window(op: str, window: int) -> None:
    """`window` is how many keys a query sees; 0 for all."""
    if window < 0:
        fail(op, "window", "0 (all keys) or more", window)


def check_mask(
    op: str,
    mask: Tensor,
    like_name: str,
    like: Tensor,
    sizes: tuple[int, int, int, int | None],
) -> None:
    """`mask` must broadcast to scores of `sizes` B, H, Sq and L, and fit the dtype of `like`.

    [B, L] is an encoder's mask; [B, Sq, L] and [B, H, Sq, L] are a decoder's. Any size may be 1.
    L = None stands for any number of keys.
    """
    if mask.dtype != torch.bool:
        _check_dtype(op, "mask", mask, like_name, like, "bool")
    check_device(op, "mask", mask, like_name, like)
    batch, heads, queries, keys = sizes
    shapes = ((batch, keys), (batch, queries, keys), (batch, heads, queries, keys))
    # No next(…, default): torch.compile of torch 2.8 cannot trace it.
    full = {len(shape): shape for shape in shapes}.get(mask.dim())
    if full is None or not all(map(_fits, mask.shape, full)):
        expected = "shape {}, {} or {}, any of them 1".format(*map(_shape_text, shapes))
        fail(op, "mask", expected, list(mask.shape))


def check_added(op: str, name: str, added: Tensor, like_name: str, like: Tensor) -> None:
    """`added` must be float32 or of the dtype of the scores `like`, and on their device."""
    _check_dtype(op, name, added, like_name, like)
    check_device(op, name, added, like_name, like)


MASK_KINDS = {"padding": (2,), "queries": (2,), "decoder": (3, 4)}
"""The ranks that a mask of each kind may have."""


def mask_of_kind(op: str, mask: Tensor | None, kind: str | None) -> Tensor | None:
    """The mask as its rank says, where the caller names its kind; a view of one [Sq, L]."""
    if kind is None:
        return mask
    if not (isinstance(kind, str) and kind in MASK_KINDS):
        fail(op, "mask_kind", " or ".join(map(repr, MASK_KINDS)), repr(kind))
    if mask is None:
        return None
    check_kind(op, "mask", mask)
    ranks = MASK_KINDS[kind]
    if mask.dim() not in ranks:
        expected = f"{' or '.join(map(str, ranks))} dimensions (mask_kind {kind!r})"
        fail(op, "mask", expected, mask.dim())
    return mask[None] if kind == "queries" else mask


def slopes(alibi: Tensor | None) -> Tensor | None:
    """A view [H] of slopes that broadcast to scores, [H, 1, 1] or [1, H, 1, 1]; else alibi."""
    if not isinstance(alibi, Tensor) or alibi.layout is not torch.strided or alibi.is_nested:
        return alibi
    if alibi.dim() < 3 or alibi.numel() != alibi.shape[-3]:
        return alibi
    return alibi.flatten()


def mask_4d(mask: Tensor) -> Tensor:
    """A view of a mask of any rank as [B, H, Sq, L], any of them 1."""
    if mask.dim() == 2:  # an encoder's: one row for every query
        return mask[:, None, None]
    return mask[:, None] if mask.dim() == 3 else mask


def _check_dtype(
    op: str, name: str, added: Tensor, like_name: str, like: Tensor, *also: str
) -> None:
    if added.dtype not in (torch.float32, like.dtype):
        others = (*also, "float32") if like.dtype != torch.float32 else also
        either = f"{', '.join(others)} or " if others else ""
        expected = f"dtype {either}{dtype_name(like.dtype)} (that of {like_name})"
        fail(op, name, expected, dtype_name(added.dtype))


def _fits(size: int, full: int | None) -> bool:
    return full is None or size in (1, full)


def _shape_text(sizes: tuple[int | None, ...]) -> str:
    return "[" + ", ".join("L" if size is None else str(size) for size in sizes) + "]"
