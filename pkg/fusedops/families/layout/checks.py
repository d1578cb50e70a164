"""What the layout operators demand, in the native library's order and words."""

from torch import Tensor

from fusedops import checks

WIDTHS = (32, 64, 128)


def padded_width(width: int) -> int:
    """Elements of a padded head, of one of at most 128."""
    return next(wide for wide in WIDTHS if width <= wide)


def add_padding(x: Tensor) -> None:
    """Heads along the last dimension."""
    op = "add_padding"
    checks.check_rows(op, "x", x)
    _width(op, x.shape[-1])


def pad_transform(x: Tensor, *, heads: int) -> None:
    """Heads side by side along the last dimension."""
    op = "pad_transform"
    checks.check_floating(op, "x", x)
    if x.dim() != 3:
        checks.fail(op, "x", "shape [B, S, heads * D]", list(x.shape))
    if heads < 1 or x.shape[2] % heads != 0:
        checks.fail(op, "heads", f"a divisor of {x.shape[2]} (the last dimension of x)", heads)
    _width(op, x.shape[2] // heads)


def _width(op: str, width: int) -> None:
    if width > WIDTHS[-1]:
        checks.fail(op, "x", f"heads of at most {WIDTHS[-1]} elements", width)
