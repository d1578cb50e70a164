"""Makes the operators of the table known to torch."""

import torch
from torch.library import Library

from fusedops.schemas import NAMESPACE, OPS

# A Library undoes its registrations when it is collected, so it lives as long as the module.
_LIBRARY = Library(NAMESPACE, "DEF")


def register() -> None:
    """Register schema, reference, fake and autograd of every operator.

    The reference is the composite default: any device without a kernel of its own runs it, which
    is the dispatcher's doing and no second code path of ours.
    """
    for op in OPS:
        qualified = f"{NAMESPACE}::{op.name}"
        _LIBRARY.define(op.schema, tags=(torch.Tag.pt2_compliant_tag,))
        _LIBRARY.impl(op.name, op.checked(op.reference), "CompositeExplicitAutograd")
        torch.library.register_fake(qualified, op.checked(op.result), lib=_LIBRARY)
        if op.autograd:
            torch.library.register_autograd(
                qualified, op.autograd.backward, setup_context=op.autograd.setup, lib=_LIBRARY
            )
        if op.batching:
            torch.library.register_vmap(qualified, op.batching(op.name), lib=_LIBRARY)
