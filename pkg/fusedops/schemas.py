"""The operators, each once: what torch, the native library, the tests and the docs go by."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fusedops import autograd, fake, reference
from fusedops.autograd import Autograd

NAMESPACE = "fusedops"


@dataclass(frozen=True)
class Op:
    """One operator of `torch.ops.fusedops`."""

    name: str
    family: str  # whose native code has it: an Operator of fusedops.extension
    signature: str  # torch's schema after the name
    reference: Callable[..., Any]
    fake: Callable[..., Any]
    autograd: Autograd
    native: bool = True  # the native library registers a CUDA kernel for it
    public: bool = True  # it has a function in fusedops.ops

    @property
    def schema(self) -> str:
        """The whole schema, as torch.library wants it."""
        return self.name + self.signature


OPS = (
    Op(
        "vector_add",
        "vector_add",
        "(Tensor a, Tensor b, *, float gamma=1.0) -> Tensor",
        reference.vector_add,
        fake.vector_add,
        autograd.VECTOR_ADD,
    ),
    Op(
        "bias_add",
        "bias_act",
        "(Tensor x, Tensor bias) -> Tensor",
        reference.bias_add,
        fake.bias_add,
        autograd.BIAS_ADD,
    ),
    Op(
        "bias_relu",
        "bias_act",
        "(Tensor x, Tensor bias) -> Tensor",
        reference.bias_relu,
        fake.bias_relu,
        autograd.BIAS_RELU,
    ),
    Op(
        "bias_gelu",
        "bias_act",
        '(Tensor x, Tensor bias, *, str approximate="tanh") -> Tensor',
        reference.bias_gelu,
        fake.bias_gelu,
        autograd.BIAS_GELU,
    ),
    Op(
        "bias_relu_backward",
        "bias_act",
        "(Tensor grad, Tensor x, Tensor bias) -> (Tensor, Tensor)",
        reference.bias_relu_backward,
        fake.bias_relu_backward,
        autograd.ONCE,
        public=False,
    ),
    Op(
        "bias_gelu_backward",
        "bias_act",
        '(Tensor grad, Tensor x, Tensor bias, *, str approximate="tanh") -> (Tensor, Tensor)',
        reference.bias_gelu_backward,
        fake.bias_gelu_backward,
        autograd.ONCE_WITH_KEYWORDS,
        public=False,
    ),
)


def families() -> dict[str, list[str]]:
    """Names of the operators with a native kernel, by family."""
    found: dict[str, list[str]] = {}
    for op in OPS:
        if op.native:
            found.setdefault(op.family, []).append(op.name)
    return found
