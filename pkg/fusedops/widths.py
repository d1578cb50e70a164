"""The arithmetic's type: float32, but float64 for float64; rounded once, on the result."""

from torch import Tensor, float64


def widen(tensor: Tensor) -> Tensor:
    """The tensor in the arithmetic's type."""
    return tensor if tensor.dtype == float64 else tensor.float()


def sum_over_rows(wide: Tensor, like: Tensor) -> Tensor:
    """The sum of the last dimension's rows, in the dtype of `like`."""
    rows = tuple(range(wide.dim() - 1))
    return narrow(wide.sum(rows) if rows else wide.clone(), like)


def narrow(wide: Tensor, like: Tensor) -> Tensor:
    """A contiguous result in the dtype of `like`."""
    return wide.to(like.dtype).contiguous()
