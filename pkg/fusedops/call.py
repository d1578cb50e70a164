"""How the public functions call operators that have a gradient."""

from collections.abc import Callable
from typing import Any

import torch

from fusedops.autograd import asks_for_gradients


def call(op: Callable[..., Any], *args: object, **keywords: object) -> Any:  # noqa: ANN401
    """What `op`, of torch.ops.fusedops, returns.

    The operators' kernels for the Autograd key are Python's. Where no gradient is wanted they have
    nothing to do and are passed by, which saves a third of a call's time on the host. They are not
    where torch transforms or traces the call: what looks like a plain tensor then may stand for one
    that requires a gradient.
    """
    if (
        torch.compiler.is_compiling()
        or torch._C._are_functorch_transforms_active()
        or (torch.is_grad_enabled() and asks_for_gradients(*args))
    ):
        return op(*args, **keywords)
    with torch._C._AutoDispatchBelowAutograd():
        return op(*args, **keywords)
