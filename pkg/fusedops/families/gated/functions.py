"""gated_activation as called."""

from typing import cast

from torch import Tensor

from fusedops.call import call, ops


def gated_activation(x: Tensor, bias: Tensor | None = None, *, kind: str) -> Tensor:
    """Compute (x1 + b1) * g(x2 + b2), a gated linear unit.

    x1, the value, is the first half of the columns of `x`, and x2, the gate, the second; b1 and b2
    are the halves of `bias`. `kind` names g:

    - "geglu": GELU in its tanh form, 0.5 v (1 + tanh(sqrt(2/pi) (v + 0.044715 v^3)));
    - "geglu_erf": GELU, 0.5 v (1 + erf(v / sqrt(2)));
    - "swiglu": SiLU, v / (1 + exp(-v));
    - "reglu": max(v, 0).

    From Shazeer, "GLU Variants Improve Transformer", 2020. Arithmetic is float32 (float64 for
    float64), rounded once. At -inf and +inf g is the formula's limit, 0 and inf; NaN stays NaN.

    Differentiable once in `x` and `bias`; the gradient of the bias is summed in an order that
    depends on the shape alone, so two runs give the same bits. The slope of "reglu" at 0 is 0.

    Args:
        x: Shape [..., 2N], at least one dimension; float32, float16, bfloat16 or float64. Models
            that keep the gate in the first half need it moved, e.g. in the weights once.
        bias: Shape [2N]; dtype and device of `x`. None adds nothing.
        kind: "geglu", "geglu_erf", "swiglu" or "reglu".

    Returns:
        A new contiguous tensor [..., N] of the dtype of `x`.

    Raises:
        ValueError: A dtype, device or shape is not as above, or `kind` is another word
            (RuntimeError from a native kernel).
    """
    return cast("Tensor", call(ops.gated_activation, x, bias, kind=kind))
