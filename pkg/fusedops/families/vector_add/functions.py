"""vector_add as called."""

from typing import cast

from torch import Tensor

from fusedops.call import call, ops


def vector_add(a: Tensor, b: Tensor, *, gamma: float = 1.0) -> Tensor:
    """Compute gamma * a + b, element by element.

    The multiplication and the addition are rounded once, together. Differentiable in `a` and `b`.

    Args:
        a: Any shape; float32, float16, bfloat16 or float64.
        b: Same shape, dtype and device as `a`. Nothing is broadcast: expand first if you need it.
        gamma: Factor of `a`, rounded to the arithmetic's type (float32; float64 for float64).

    Returns:
        A new contiguous tensor of the shape and dtype of `a`.

    Raises:
        ValueError: A dtype, device or shape is not as above (RuntimeError from a native kernel).
    """
    return cast("Tensor", call(ops.vector_add, a, b, gamma=gamma))
