"""What is added to attention scores: its shapes, and checks, as csrc/ops/masks.h has them."""

import torch
from torch import Tensor

from fusedops import checks


def check_window(op: str, window: int) -> None:
    """How many keys a query sees; 0 for all."""
    if window < 0:
        checks.fail(op, "window", "0 (all keys) or more", window)


def check_mask(
    op: str,
    mask: Tensor,
    like_name: str,
    like: Tensor,
    sizes: tuple[int, int, int, int | None],
) -> None:
    """A mask beside scores of the given `sizes`, B, H, Sq and L, with the dtype of `like`.

    [B, L] is an encoder's, [B, Sq, L] and [B, H, Sq, L] are a decoder's; any size may be 1. None
    for L stands for any.
    """
    if mask.dtype != torch.bool:
        _check_dtype(op, "mask", mask, like_name, like, "bool, ")
    checks.check_device(op, "mask", mask, like_name, like)
    batch, heads, queries, keys = sizes
    families = ((batch, keys), (batch, queries, keys), (batch, heads, queries, keys))
    wanted = next((family for family in families if len(family) == mask.dim()), None)
    if wanted is None or not all(map(_fits, mask.shape, wanted)):
        expected = "shape {}, {} or {}, any of them 1".format(*map(_listed, families))
        checks.fail(op, "mask", expected, list(mask.shape))


def check_added(op: str, name: str, added: Tensor, like_name: str, like: Tensor) -> None:
    """Dtype and device of what is added to scores like `like`."""
    _check_dtype(op, name, added, like_name, like, "")
    checks.check_device(op, name, added, like_name, like)


def aligned(mask: Tensor) -> Tensor:
    """A mask of any rank as one of four dimensions: [B, H, Sq, L], any of them 1."""
    if mask.dim() == 2:  # an encoder's: one row for every query
        return mask[:, None, None]
    return mask[:, None] if mask.dim() == 3 else mask


def _check_dtype(
    op: str, name: str, added: Tensor, like_name: str, like: Tensor, also: str
) -> None:
    if added.dtype not in (torch.float32, like.dtype):
        expected = f"dtype {also}float32 or {checks.dtype_name(like.dtype)} (that of {like_name})"
        checks.fail(op, name, expected, checks.dtype_name(added.dtype))


def _fits(found: int, size: int | None) -> bool:
    return size is None or found in (1, size)


def _listed(sizes: tuple[int | None, ...]) -> str:
    return "[" + ", ".join("L" if size is None else str(size) for size in sizes) + "]"
