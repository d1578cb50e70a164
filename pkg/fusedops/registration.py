"""Makes the operators of the table known to torch."""

import torch
from torch.library import Library

from fusedops.autograd_key import recording_gradients, refusing_gradients
from fusedops.schemas import NAMESPACE, OPS

# A Library undoes its registrations when it is collected, so it lives as long as the module.
_LIBRARY = Library(NAMESPACE, "DEF")


def register() -> None:
    """Register schema, reference, fake, autograd and vmap of every operator.

    The reference is the composite default: any device without a kernel of its own runs it, which
    is the dispatcher's doing and no second code path of ours. One that writes to its arguments
    refuses gradients. The fake is torch's Meta kernel: register_fake would look up the source line
    of each, for a message, at every import.
    """
    for op in OPS:
        _LIBRARY.define(op.schema, tags=(torch.Tag.pt2_compliant_tag,))
        _LIBRARY.impl(op.name, op.checked(op.reference), "CompositeExplicitAutograd")
        _LIBRARY.impl(op.name, op.checked(op.result), "Meta")
        overload = getattr(getattr(torch.ops, NAMESPACE), op.name).default
        if op.autograd:
            record = recording_gradients(overload, op.autograd)
            _LIBRARY.impl(op.name, record, "Autograd", with_keyset=True)
        elif overload._schema.is_mutable:
            refuse = refusing_gradients(overload)
            _LIBRARY.impl(op.name, refuse, "Autograd")
        if op.batching:
            torch.library.register_vmap(
                f"{NAMESPACE}::{op.name}", op.batching(op.name), lib=_LIBRARY
            )
