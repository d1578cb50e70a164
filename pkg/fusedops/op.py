"""What the table of operators says of one."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fusedops.autograd import Autograd
from fusedops.batching import Batching


@dataclass(frozen=True)
class Op:
    """One operator of `torch.ops.fusedops`.

    Attributes:
        name: as torch and the native library know it.
        family: whose native code has it: an Operator of fusedops.extension.
        signature: torch's schema after the name.
        check: raises ValueError on arguments that the operator does not take.
        reference: the operator in plain PyTorch; its arguments have been checked. It is what runs
            where no kernel is loaded.
        result: tensors of the results' shapes, dtypes and strides, for tracing; no data is touched.
        autograd: how gradients flow; None for an operator that has none.
        batching: how vmap goes through it; None for an operator that vmap cannot take.
        native: the native library registers a CUDA kernel for it.
        public: it has a function of its own in this package.
    """

    name: str
    family: str
    signature: str
    check: Callable[..., None]
    reference: Callable[..., Any]
    result: Callable[..., Any]
    autograd: Autograd | None = None
    batching: Batching | None = None
    native: bool = True
    public: bool = True

    @property
    def schema(self) -> str:
        """The whole schema, as torch.library wants it."""
        return self.name + self.signature

    def checked(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """`function`, which takes the operator's arguments, after the check of them."""

        def call(*args: object, **keywords: object) -> Any:  # noqa: ANN401 - what it returns
            self.check(*args, **keywords)
            return function(*args, **keywords)

        return call
