"""The family's operators."""

from torch import Tensor

from fusedops.autograd import ONCE
from fusedops.batching import by_rows
from fusedops.families.gated import checks, reference
from fusedops.families.gated.gradients import GATED_ACTIVATION
from fusedops.op import Op

_FAMILY = "gated"


def _half(x: Tensor, *_: object, **__: object) -> Tensor:
    return x.new_empty((*x.shape[:-1], x.shape[-1] // 2))


def _like_x_and_bias(
    grad: Tensor, x: Tensor, bias: Tensor | None = None, **_: object
) -> tuple[Tensor, Tensor]:
    del grad
    return x.new_empty(x.shape), x.new_empty(0 if bias is None else bias.shape)


OPS = (
    Op(
        "gated_activation",
        _FAMILY,
        "(Tensor x, Tensor? bias=None, *, str kind) -> Tensor",
        checks.gated_activation,
        reference.gated_activation,
        _half,
        GATED_ACTIVATION,
        by_rows("x"),
    ),
    Op(
        "gated_activation_backward",
        _FAMILY,
        "(Tensor grad, Tensor x, Tensor? bias=None, *, str kind) -> (Tensor, Tensor)",
        checks.gated_activation_backward,
        reference.gated_activation_backward,
        _like_x_and_bias,
        ONCE,
        public=False,
    ),
)
