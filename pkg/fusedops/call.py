"""How the public functions call operators that autograd knows."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch._C import _are_functorch_transforms_active as transforms_active
from torch._C import _dispatch_tls_is_dispatch_key_excluded as excluded
from torch._C import _dispatch_tls_set_dispatch_key_excluded as exclude
from torch._C import _get_tracing_state as tracing_state
from torch._ops import OpOverloadPacket
from torch.autograd.graph import increment_version
from torch.compiler import is_compiling, is_dynamo_compiling

from fusedops.autograd import asks_for_gradients, forward_mode, written_arguments
from fusedops.kinds import check_workspace, check_written
from fusedops.op import refuse_arguments
from fusedops.outputs import Out, call_into
from fusedops.transforms import call_transformed

if TYPE_CHECKING:
    from fusedops.workspace import Workspace

ops = torch.ops.fusedops
AUTOGRAD = torch._C.DispatchKey.AutogradFunctionality


def call(  # noqa: PLR0911 - a way each
    op: OpOverloadPacket,
    *args: object,
    out: Out | None = None,
    workspace: "Workspace | None" = None,
    **keywords: object,
) -> Any:  # noqa: ANN401 - a tensor or a tuple of them
    """Call `op`, of torch.ops.fusedops, past what of torch's dispatcher the call does not need.

    A direct call passes all of it. It takes plain tensors on a GPU where no gradient is wanted and
    nobody watches what torch runs.

    The operators' kernels for the Autograd key are written in Python. Without a gradient they have
    nothing to do, and passing them by saves a third of a call's time on the host. They are called
    where torch transforms or traces the call: a tensor that looks plain there may stand for one
    that requires a gradient, or have a tangent. torch.jit.trace traces a call twice, the second
    time without gradients, and compares: both must come from one line of this function.

    Excluding the key by hand takes half of the time of torch's context manager for it. The packet's
    function takes two thirds of the time of its __call__. What the arguments must be is looked at
    when the call has failed.
    """
    if not is_dynamo_compiling() and workspace is None:
        direct = _direct(op, args)
        if direct is not None:
            result = direct(*args, out=out, **keywords)
            if result is not NotImplemented:
                return result
    if is_compiling():
        if workspace is not None:
            check_workspace(op.__name__, workspace)
        return op(*args, **keywords) if out is None else call_into(op, args, keywords, out)
    try:
        if out is not None or workspace is not None:
            return call_into(op, args, keywords, out, workspace)
        if transforms_active():
            return call_transformed(op, *args, **keywords)
        if (
            forward_mode()
            or tracing_state() is not None
            or (torch.is_grad_enabled() and asks_for_gradients(*args))
        ):
            return op(*args, **keywords)
        if excluded(AUTOGRAD):  # by torch.inference_mode, or a call around this one
            return op._op(*args, **keywords)
        try:
            exclude(AUTOGRAD, True)
            return op._op(*args, **keywords)
        finally:
            exclude(AUTOGRAD, False)
    except Exception:
        refuse_arguments(op.default, args, keywords)
        raise


_CALLED: set[str] = set()  # operators that were called on a GPU
_DIRECT: dict[str, Callable[..., Any] | None] = {}  # by operator, from its second such call on


def _direct(op: OpOverloadPacket, args: tuple[object, ...]) -> Callable[..., Any] | None:
    """The direct call of an operator that was called on a GPU before; None if it has none.

    The dispatcher takes the first call, where the kernels for the GPU are chosen: the module over
    DLPack takes milliseconds to load, and would have no kernels yet.
    """
    name = op._qualified_op_name
    try:
        return _DIRECT[name]
    except KeyError:
        pass
    if not any(isinstance(arg, Tensor) and arg.is_cuda for arg in args):
        return None
    if name not in _CALLED:
        _CALLED.add(name)
        return None
    from fusedops.typed import direct_call  # noqa: PLC0415 - it imports all families

    direct = _DIRECT[name] = direct_call(op.__name__)
    return direct


def call_in_place(op: OpOverloadPacket, *args: Any, **keywords: Any) -> Any:  # noqa: ANN401
    """Call an in-place operator and bump the version counters of the tensors it writes.

    A direct call does both.
    """
    if is_compiling():
        return call(op, *args, **keywords)
    direct = _direct(op, args)
    if direct is not None:
        result = direct(*args, **keywords)
        if result is not NotImplemented:
            return result
    written = written_arguments(op.default)
    check_written(op.__name__, written, args, keywords)
    result = call(op, *args, **keywords)
    try:
        increment_version(args[index] for index, _ in written)
    except RuntimeError:
        if isinstance(args[0], Tensor):  # not what torch.fx passes for one
            raise
    return result
