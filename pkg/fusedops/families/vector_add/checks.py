"""What vector_add demands, in the native library's order and words."""

from torch import Tensor

from fusedops import checks


def vector_add(a: Tensor, b: Tensor, *, gamma: float = 1.0) -> None:  # noqa: ARG001
    """One dtype, device and shape."""
    checks.check_floating("vector_add", "a", a)
    checks.check_alike("vector_add", "b", b, "a", a)
