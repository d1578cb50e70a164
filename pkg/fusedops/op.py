"""An operator's description: everything that a family's page declares beside the function."""

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any

import torch
from torch import Tensor

from fusedops.autograd import Autograd
from fusedops.kinds import check_strided


def like_first(first: Tensor, *_: object, **__: object) -> Tensor:
    """An empty contiguous tensor of the first argument's shape and dtype."""
    return first.new_empty(first.shape)


def no_result(*_: object, **__: object) -> None:
    """The result of an operator that only writes to its arguments."""


@dataclass(frozen=True)
class Op:
    """One operator of `torch.ops.fusedops`.

    Attributes:
        schema: Name and signature, as torch.library.define takes them.
        check: Takes the operator's name, then its arguments. Raises ValueError if the operator does
            not take them.
        reference: The operator in plain PyTorch, for arguments that passed the check. It runs on
            every device without a kernel.
        result: Makes empty results of the right shapes, dtypes and strides, for tracing.
        autograd: How gradients flow. None: the operator has no gradient.
        rows: Arguments that may have any leading dimensions. vmap adds the batch to them as one
            more and calls the operator once; if another argument is batched, it calls the operator
            for each element of the batch. None: vmap cannot take the operator.
        over_arguments: A result may be written over an argument of its shape: each element depends
            on the elements at its place alone.
        public: This package has a function of that name, with an entry point for each type.
    """

    schema: str
    _: KW_ONLY
    check: Callable[..., None]
    reference: Callable[..., Any]
    result: Callable[..., Any] = like_first
    autograd: Autograd | None = None
    rows: tuple[str, ...] | None = None
    over_arguments: bool = False
    public: bool = True

    @property
    def name(self) -> str:
        """The name, as torch and the native library know it."""
        return self.schema.partition("(")[0]

    def with_check(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function that checks the operator's arguments, then gives them to `function`."""
        name, check, schema = self.name, self.check, self.schema

        def call(*args: object, **keywords: object) -> Any:  # noqa: ANN401 - what function returns
            for index, arg in enumerate(args):
                if isinstance(arg, Tensor) and arg.layout is not torch.strided:
                    check_strided(name, _argument(schema, index), arg)
            check(name, *args, **keywords)
            return function(*args, **keywords)

        return call


def _argument(schema: str, index: int) -> str:
    """The name of a positional argument."""
    arguments = schema.partition("(")[2].split(", ")
    return arguments[index].split()[-1].partition("=")[0].rstrip(")")
