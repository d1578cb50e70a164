"""How the public functions call operators that autograd knows."""

from functools import cache
from typing import Any

import torch
from torch._C import _are_functorch_transforms_active as transforms_active
from torch._C import _dispatch_tls_is_dispatch_key_excluded as excluded
from torch._C import _dispatch_tls_set_dispatch_key_excluded as exclude
from torch._ops import OpOverloadPacket
from torch.autograd.graph import increment_version
from torch.compiler import is_compiling

from fusedops.autograd import asks_for_gradients, forward_mode
from fusedops.written import written_by

ops = torch.ops.fusedops
AUTOGRAD = torch._C.DispatchKey.AutogradFunctionality


def call(op: OpOverloadPacket, *args: object, **keywords: object) -> Any:  # noqa: ANN401
    """What `op`, of torch.ops.fusedops, returns.

    The operators' kernels for the Autograd key are Python's. Where no gradient is wanted they have
    nothing to do and are passed by, which saves a third of a call's time on the host. They are not
    where torch transforms or traces the call: what looks like a plain tensor then may stand for one
    that requires a gradient, or have a tangent.

    Excluding the key by hand takes half of the time of torch's context manager for it, and the
    packet's function two thirds of its __call__'s.
    """
    if (
        is_compiling()
        or transforms_active()
        or forward_mode()
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


def call_in_place(op: OpOverloadPacket, *args: Any, **keywords: object) -> Any:  # noqa: ANN401
    """What `op` returns, which writes to some of `args`; torch is told so."""
    found = call(op, *args, **keywords)
    if not is_compiling():
        increment_version(args[at] for at in _written(op))
    return found


@cache
def _written(op: OpOverloadPacket) -> tuple[int, ...]:
    return tuple(at for at, _ in written_by(op.default))
