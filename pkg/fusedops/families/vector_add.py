"""Gamma times one tensor plus another."""

from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

from fusedops import checks
from fusedops.arithmetic import narrow, widen
from fusedops.autograd import Autograd, Context, Gradients, save_keywords
from fusedops.call import call, ops
from fusedops.op import Op

if TYPE_CHECKING:
    from fusedops.workspace import Workspace

__all__ = ["vector_add"]


def vector_add(
    a: Tensor,
    b: Tensor,
    *,
    gamma: float = 1.0,
    out: Tensor | None = None,
    workspace: "Workspace | None" = None,
) -> Tensor:
    """Compute gamma * a + b, element by element.

    The multiplication and the addition are rounded once, together. Differentiable in `a` and `b`.

    Args:
        a: Any shape; float32, float16, bfloat16 or float64.
        b: Same shape, dtype and device as `a`. Nothing is broadcast: expand first if you need it.
        gamma: Factor of `a`, rounded to the arithmetic's type (float32; float64 for float64).
        out: Tensor for the result, contiguous and on 16 bytes, for inference. It may be an argument
            of its shape, and shares no other memory with one.
        workspace: Memory for the result, if there is no `out`, and for temporaries.

    Returns:
        A new contiguous tensor of the shape and dtype of `a`.

    Raises:
        ValueError: A dtype, device or shape is not as above.
    """
    return cast("Tensor", call(ops.vector_add, a, b, gamma=gamma, out=out, workspace=workspace))


def _check_vector_add(op: str, a: Tensor, b: Tensor, **_: object) -> None:
    checks.check_floating(op, "a", a)
    checks.check_alike(op, "b", b, "a", a)


def vector_add_reference(a: Tensor, b: Tensor, *, gamma: float = 1.0) -> Tensor:
    """Gamma a + b."""
    return narrow(torch.add(widen(b), widen(a), alpha=gamma), a)


def _vector_add_gradients(ctx: Context, grad: Tensor) -> Gradients:
    return grad * ctx.keywords["gamma"], grad


OPS = (
    Op(
        "vector_add(Tensor a, Tensor b, *, float gamma=1.0) -> Tensor",
        check=_check_vector_add,
        reference=vector_add_reference,
        autograd=Autograd(_vector_add_gradients, save_keywords),
        over_arguments=True,
        rows=("a", "b"),
    ),
)
