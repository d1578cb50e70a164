"""What the operators take for a tensor: one with strides, of torch's own class."""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NoReturn

import torch
from torch import Tensor
from torch._ops import OpOverload

_PLAIN = (Tensor, torch.nn.Parameter)


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


def check_out(op: str, out: Tensor) -> None:
    """`out` must be a tensor with strides that a kernel can write to."""
    if type(out) is not Tensor or out.layout is not torch.strided or out.is_nested:
        check_kind(op, "out", out)  # a call, which most need not wait for
    if out.is_neg():  # a call, which most need not wait for
        check_own_values(op, "out", out)
    if out.is_inference():  # a call, which most need not wait for
        check_version(op, "out", out)


def check_own_values(op: str, argument: str, written: Tensor) -> None:
    """`written` must have its values in its memory, not their negatives."""
    if written.is_neg():
        found = "a view of their negatives; give other memory"
        _refuse(op, argument, "a tensor's own values", found)


def check_written(
    op: str,
    written: Iterable[tuple[int, str]],
    args: Sequence[object],
    keywords: Mapping[str, object],
) -> None:
    """What an in-place operator writes must have its values in its memory.

    To be called before the operator: for a view of negatives torch's fallback takes the operator's
    first result, which need not be there, for what was written.
    """
    for index, argument in written:
        value = args[index] if index < len(args) else keywords.get(argument)
        if isinstance(value, Tensor):
            check_own_values(op, argument, value)


def address(tensor: Tensor) -> int:
    """Of its first byte; 0 if it has no memory: it has no element, or stands for other tensors."""
    if type(tensor) not in _PLAIN and tensor.untyped_storage().device.type == "meta":
        return 0  # torch's own FakeTensor warns of data_ptr()
    return tensor.data_ptr()


def check_version(op: str, argument: str, written: Tensor) -> None:
    """`written` must have a version counter, or inference mode be on: torch refuses afterwards."""
    if written.is_inference() and not torch.is_inference_mode_enabled():
        found = "an inference tensor; call it in torch.inference_mode(), or give a clone"
        _refuse(op, argument, "a tensor with a version counter", found)


def check_workspace(op: str, workspace: object) -> None:
    """`workspace` must be a Workspace.

    Raises:
        TypeError: it is something else.
    """
    module = sys.modules.get("fusedops.workspace")  # none was made without it
    if module is None or not isinstance(workspace, module.Workspace):
        _refuse(op, "workspace", "a Workspace", type(workspace).__name__)


def check_integer(op: str, argument: str, value: object) -> None:
    """`value` must be an integer, of Python or another library.

    Raises:
        TypeError: it is something else.
    """
    if not hasattr(value, "__index__"):
        _refuse(op, argument, "an integer", type(value).__name__)


def refuse_kinds(
    op: OpOverload, args: Sequence[object], keywords: Mapping[str, object], name: str = ""
) -> None:
    """Raise TypeError if an argument is no tensor, number or word that the operator takes.

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
        if optional and value is None:
            continue
        if type(kind) in _SCALARS:
            expected, fits = _SCALARS[type(kind)]
            if not fits(value):
                expected += " or None" if optional else ""
                _refuse(name or op._opname, argument.name, expected, type(value).__name__)
        elif isinstance(kind, torch.TensorType):
            check_kind(name or op._opname, argument.name, value)


_SCALARS: Mapping[type, tuple[str, Callable[[object], bool]]] = {
    torch.FloatType: ("a float", lambda value: hasattr(value, "__float__")),
    torch.IntType: ("an int", lambda value: hasattr(value, "__index__")),
    torch.BoolType: ("a bool", lambda value: hasattr(value, "__bool__")),
    torch.StringType: ("a str", lambda value: isinstance(value, str)),
}
"""By an argument's type in a schema: what it is called, and whether a value may be one."""


def _refuse(op: str, argument: str, expected: str, found: str) -> NoReturn:
    raise TypeError(f"{op}: {argument}: expected {expected}, found {found}")
