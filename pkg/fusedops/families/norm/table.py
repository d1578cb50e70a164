"""The family's operators."""

from collections.abc import Callable

from torch import Tensor

from fusedops.autograd import ONCE
from fusedops.batching import by_rows
from fusedops.families.norm import checks, gradients, reference
from fusedops.op import Op
from fusedops.results import like_first

_FAMILY = "norm"
_RESIDUAL = "Tensor x, Tensor bias, Tensor residual, Tensor gamma, Tensor beta, *, float eps=1e-5"
_BACKWARD = "Tensor grad, Tensor x, Tensor gamma, Tensor? grad_sum=None, *"


def _like_first_twice(first: Tensor, *_: object, **__: object) -> tuple[Tensor, Tensor]:
    return first.new_empty(first.shape), first.new_empty(first.shape)


def _gradients(count: int) -> Callable[..., tuple[Tensor, ...]]:
    """Of x, and as many rows like gamma as make it `count`."""

    def like(
        grad: Tensor, x: Tensor, gamma: Tensor, *_: object, **__: object
    ) -> tuple[Tensor, ...]:
        del grad
        return x.new_empty(x.shape), *(gamma.new_empty(gamma.shape) for _ in range(count - 1))

    return like


OPS = (
    Op(
        "layer_norm",
        _FAMILY,
        "(Tensor x, Tensor gamma, Tensor beta, *, float eps=1e-5) -> Tensor",
        checks.layer_norm,
        reference.layer_norm,
        like_first,
        gradients.LAYER_NORM,
        by_rows("x"),
    ),
    Op(
        "layer_norm_residual",
        _FAMILY,
        f"({_RESIDUAL}) -> Tensor",
        checks.layer_norm_residual,
        reference.layer_norm_residual,
        like_first,
        gradients.LAYER_NORM_RESIDUAL,
        by_rows("x", "residual"),
    ),
    Op(
        "layer_norm_residual_store",
        _FAMILY,
        f"({_RESIDUAL}) -> (Tensor, Tensor)",
        checks.layer_norm_residual_store,
        reference.layer_norm_residual_store,
        _like_first_twice,
        gradients.LAYER_NORM_RESIDUAL_STORE,
        by_rows("x", "residual"),
    ),
    Op(
        "rms_norm",
        _FAMILY,
        "(Tensor x, Tensor gamma, *, float eps=1e-6) -> Tensor",
        checks.rms_norm,
        reference.rms_norm,
        like_first,
        gradients.RMS_NORM,
        by_rows("x"),
    ),
    Op(
        "pre_rms_norm",
        _FAMILY,
        "(Tensor x, Tensor residual, Tensor gamma, *, float eps=1e-6) -> (Tensor, Tensor)",
        checks.pre_rms_norm,
        reference.pre_rms_norm,
        _like_first_twice,
        gradients.PRE_RMS_NORM,
        by_rows("x", "residual"),
    ),
    Op(
        "layer_norm_backward",
        _FAMILY,
        f"({_BACKWARD}, float eps=1e-5) -> (Tensor, Tensor, Tensor)",
        checks.layer_norm_backward,
        reference.layer_norm_backward,
        _gradients(3),
        ONCE,
        public=False,
    ),
    Op(
        "rms_norm_backward",
        _FAMILY,
        f"({_BACKWARD}, float eps=1e-6) -> (Tensor, Tensor)",
        checks.rms_norm_backward,
        reference.rms_norm_backward,
        _gradients(2),
        ONCE,
        public=False,
    ),
)
