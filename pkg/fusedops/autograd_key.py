"""The operators' kernels for torch's Autograd key: what comes between a call and its kernel."""

from collections.abc import Callable
from typing import Any

import torch
from torch._library.autograd import Info, make_autograd_impl
from torch._ops import OpOverload

from fusedops.autograd import Autograd, asks_for_gradients, refuse_tangents
from fusedops.written import written_by

Kernel = Callable[..., Any]


def recording_gradients(op: OpOverload, autograd: Autograd) -> Kernel:
    """What torch.library.register_autograd would register, made at the first gradient.

    Most processes want none, and to make those of all operators takes longer than all the rest of
    the import. A call without a gradient has a shorter way besides.
    """
    made: Kernel | None = None

    def call(keyset: Any, *args: Any, **keywords: Any) -> Any:  # noqa: ANN401 - torch's own types
        nonlocal made
        refuse_tangents(op._opname, *args, **keywords)
        if not (torch.is_grad_enabled() and asks_for_gradients(*args)):
            with torch._C._AutoDispatchBelowAutograd():
                return op(*args, **keywords)
        if made is None:
            made = make_autograd_impl(op, Info(autograd.backward, autograd.setup))
        return made(keyset, *args, **keywords)

    return call


def refusing_gradients(op: OpOverload) -> Kernel:
    """What an operator that writes to its arguments does: it is for inference, and says so.

    It refuses to be recorded itself, and tells torch which tensors it changed, so that an operator
    that kept one of them for its own gradient finds out.
    """
    written = [at for at, _ in written_by(op)]
    name = op._opname

    def call(*args: Any, **keywords: Any) -> Any:  # noqa: ANN401 - what the operator returns
        refuse_tangents(name, *args, **keywords)
        if torch.is_grad_enabled() and asks_for_gradients(*args, **keywords):
            raise RuntimeError(
                f"{name}: writes to its arguments, so it has no gradient; call it under "
                "torch.no_grad()"
            )
        with torch._C._AutoDispatchBelowAutograd():
            found = op(*args, **keywords)
        torch.autograd.graph.increment_version(args[at] for at in written)
        return found

    return call
