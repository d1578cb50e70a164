"""The family's operators."""

from torch import Tensor

from fusedops.batching import by_rows
from fusedops.families.layout import checks, gradients, reference
from fusedops.op import Op

_FAMILY = "layout"


def _padded(x: Tensor) -> Tensor:
    return x.new_empty((*x.shape[:-1], checks.padded_width(x.shape[-1])))


def _transformed(x: Tensor, *, heads: int) -> Tensor:
    batch, tokens, width = x.shape
    return x.new_empty((batch, heads, tokens, checks.padded_width(width // heads)))


OPS = (
    Op(
        "add_padding",
        _FAMILY,
        "(Tensor x) -> Tensor",
        checks.add_padding,
        reference.add_padding,
        _padded,
        gradients.ADD_PADDING,
        by_rows("x"),
    ),
    Op(
        "pad_transform",
        _FAMILY,
        "(Tensor x, *, int heads) -> Tensor",
        checks.pad_transform,
        reference.pad_transform,
        _transformed,
        gradients.PAD_TRANSFORM,
        by_rows(),
    ),
)
