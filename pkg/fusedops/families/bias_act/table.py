"""The family's operators."""

from fusedops.autograd import ONCE
from fusedops.batching import by_rows
from fusedops.families.bias_act import checks, gradients, reference
from fusedops.op import Op
from fusedops.results import like_first, like_last_two

_FAMILY = "bias_act"

OPS = (
    Op(
        "bias_add",
        _FAMILY,
        "(Tensor x, Tensor bias) -> Tensor",
        checks.bias_add,
        reference.bias_add,
        like_first,
        gradients.BIAS_ADD,
        by_rows("x"),
    ),
    Op(
        "bias_relu",
        _FAMILY,
        "(Tensor x, Tensor bias) -> Tensor",
        checks.bias_relu,
        reference.bias_relu,
        like_first,
        gradients.BIAS_RELU,
        by_rows("x"),
    ),
    Op(
        "bias_gelu",
        _FAMILY,
        '(Tensor x, Tensor bias, *, str approximate="tanh") -> Tensor',
        checks.bias_gelu,
        reference.bias_gelu,
        like_first,
        gradients.BIAS_GELU,
        by_rows("x"),
    ),
    Op(
        "bias_relu_backward",
        _FAMILY,
        "(Tensor grad, Tensor x, Tensor bias) -> (Tensor, Tensor)",
        checks.bias_relu_backward,
        reference.bias_relu_backward,
        like_last_two,
        ONCE,
        public=False,
    ),
    Op(
        "bias_gelu_backward",
        _FAMILY,
        '(Tensor grad, Tensor x, Tensor bias, *, str approximate="tanh") -> (Tensor, Tensor)',
        checks.bias_gelu_backward,
        reference.bias_gelu_backward,
        like_last_two,
        ONCE,
        public=False,
    ),
)
