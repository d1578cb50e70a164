"""Results for tracing: of what shape, dtype and strides, without data."""

from torch import Tensor


def like_first(first: Tensor, *_: object, **__: object) -> Tensor:
    """A contiguous tensor of the first argument's shape and dtype."""
    return first.new_empty(first.shape)


def like_last_two(*args: Tensor, **_: object) -> tuple[Tensor, Tensor]:
    """Contiguous tensors like the last two positional arguments: the gradients of both."""
    first, second = args[-2:]
    return first.new_empty(first.shape), second.new_empty(second.shape)


def no_result(*_: object, **__: object) -> None:
    """Of an operator that only writes to its arguments."""
