"""An operator's description: everything that a family's page declares beside the function."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from fusedops.autograd import Autograd
from fusedops.kinds import check_kind, check_strided, check_version, refuse_kinds


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

    @property
    def writes(self) -> bool:
        """Whether it writes to an argument."""
        return "!" in self.schema

    def with_check(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function that checks the operator's arguments, then gives them to `function`."""
        name, check = self.name, self.check
        tensors: list[tuple[str, bool, bool]] = []  # read at the first call, not at every import

        def call(*args: object, **keywords: object) -> Any:  # noqa: ANN401 - what function returns
            if not tensors:
                tensors.extend(self._tensors())
            for arg, (argument, optional, written) in zip(args, tensors, strict=False):
                if isinstance(arg, Tensor):
                    if arg.layout is not torch.strided:
                        check_strided(name, argument, arg)
                    if written:
                        check_version(name, argument, arg)
                elif not optional:  # torch takes None for a tensor
                    check_kind(name, argument, arg)
            check(name, *args, **keywords)
            return function(*args, **keywords)

        return call

    def _tensors(self) -> list[tuple[str, bool, bool]]:
        """Of each argument that can be given by position its name, and two answers.

        The first is whether it may be no tensor, the second whether the operator writes to it.
        """
        arguments = self.schema[self.schema.index("(") + 1 : self.schema.rindex(") -> ")]
        positional = arguments.partition(", *")[0].split(", ")
        return [
            (
                name.partition("=")[0],
                not kind.startswith("Tensor") or kind.endswith("?"),
                "!" in kind,
            )
            for kind, name in (argument.split() for argument in positional)
        ]


REGISTERED: dict[str, Op] = {}
"""The operators that are registered with torch, by qualified name."""


def refuse_arguments(
    op: OpOverload, args: Sequence[object], keywords: Mapping[str, object], name: str = ""
) -> None:
    """Raise the TypeError or ValueError that says what is wrong with a call that has failed.

    It returns if the operator's own check takes the arguments: the call failed for another reason.
    A kernel refuses arguments without a word, so that a call that it takes is checked once.
    `name` is of the function, if not the operator's.
    """
    refuse_kinds(op, args, keywords, name)
    if (registered := REGISTERED.get(op.name())) is None:
        return
    keywords = dict(keywords)
    rest = [one for one in op._schema.arguments[len(args) :] if not one.kwarg_only]
    args = (*args, *(keywords.pop(one.name, one.default_value) for one in rest))
    try:
        registered.check(name or registered.name, *args, **keywords)
    except ValueError as refusal:
        raise refusal from None
    except (AttributeError, RuntimeError, TypeError):  # no call that the check can be asked about
        return
