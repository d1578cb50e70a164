"""The layout operators in plain PyTorch."""

from torch import Tensor

from fusedops.families.layout.checks import padded_width


def add_padding(x: Tensor) -> Tensor:
    """Zeros after each head."""
    result = x.new_zeros((*x.shape[:-1], padded_width(x.shape[-1])))
    result[..., : x.shape[-1]] = x
    return result


def pad_transform(x: Tensor, *, heads: int) -> Tensor:
    """Zeros after each head, and the heads before the tokens."""
    batch, tokens, width = x.shape
    split = x.reshape(batch, tokens, heads, width // heads)
    result = x.new_zeros((batch, heads, tokens, padded_width(width // heads)))
    result[..., : width // heads] = split.transpose(1, 2)
    return result
