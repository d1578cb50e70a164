"""What the operators take for a tensor: one with strides, of torch's own class."""

import sys
from collections.abc import Mapping, Sequence
from typing import NoReturn

import torch
from torch import Tensor
from torch._ops import OpOverload


def check_kind(op: str, argument: str, value: object) -> None:
    """`value` must be a tensor with strides.

    Raises:
        TypeError: it is None, something else, or a tensor that is sparse, nested or distributed.
    """
    if not isinstance(value, Tensor):
        _refuse(op, argument, "a torch.Tensor", type(value).__name__)
    check_strided(op, argument, value)
    distributed = sys.modules.get("torch.distributed.tensor")
    if distributed is not None and isinstance(value, distributed.DTensor):
        _refuse(
            op, argument, "a tensor of this process", "a DTensor; call to_local() or full_tensor()"
        )


def check_strided(op: str, argument: str, tensor: Tensor) -> None:
    """`tensor` must be neither sparse nor nested."""
    if tensor.is_nested:
        _refuse(op, argument, "a tensor with strides", "a nested tensor; call to_padded_tensor()")
    if tensor.layout is not torch.strided:
        layout = str(tensor.layout).removeprefix("torch.")
        _refuse(
            op, argument, "a tensor with strides", f"a tensor of layout {layout}; call to_dense()"
        )


def refuse_kinds(
    op: OpOverload, args: Sequence[object], keywords: Mapping[str, object], name: str = ""
) -> None:
    """Raise TypeError if an argument is no tensor that the operator takes.

    torch's own message for it has many lines. `name` is of the function, if not the operator's.
    """
    for index, argument in enumerate(op._schema.arguments):
        if index < len(args):
            value = args[index]
        elif argument.name in keywords:
            value = keywords[argument.name]
        else:
            continue
        optional = isinstance(argument.real_type, torch.OptionalType)
        kind = argument.real_type.getElementType() if optional else argument.real_type
        if isinstance(kind, torch.TensorType) and not (optional and value is None):
            check_kind(name or op._opname, argument.name, value)


def _refuse(op: str, argument: str, expected: str, found: str) -> NoReturn:
    raise TypeError(f"{op}: {argument}: expected {expected}, found {found}")
