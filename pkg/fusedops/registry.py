"""All operators, in the order of the extension's families, and their registration with torch."""

from collections.abc import Callable
from functools import cache, partial
from importlib import import_module
from typing import Any, cast

import torch
from torch._ops import OpOverload
from torch.library import Library

from fusedops.arithmetic import without_autocast
from fusedops.autograd import autograd_kernel, inference_kernel
from fusedops.extension import EXTENSION
from fusedops.op import REGISTERED, Op
from fusedops.outputs import add_outs, schema_with_outs
from fusedops.transforms import add_gradient, vmap_rule

NAMESPACE = "fusedops"

PAGES = {
    family.name: import_module(f"fusedops.families.{family.name}") for family in EXTENSION.operators
}
"""The module of each family, by the family's name."""

OPS: tuple[Op, ...] = tuple(op for page in PAGES.values() for op in page.OPS)

# A Library undoes its registrations when it is collected, so it lives as long as the module.
_LIBRARY = Library(NAMESPACE, "DEF")
# torch's own part of it: every import of the package makes 300 registrations.
_BELOW = cast("Any", _LIBRARY.m)


def families() -> dict[str, list[str]]:
    """Names of the operators, by family. Each has a native kernel."""
    return {
        family: [
            *(op.name for op in page.OPS),
            *(f"{op.name}_out" for op in page.OPS if op.public),
        ]
        for family, page in PAGES.items()
    }


def public_functions() -> list[str]:
    """Names of the families' public functions."""
    return [name for page in PAGES.values() for name in page.__all__]


def register() -> None:
    """Register schema, reference, Meta kernel, autograd and vmap rule of every operator.

    The reference is the composite default: the dispatcher runs it on every device that has no
    kernel of its own. register_fake is not used for the Meta kernel: it would look up the source
    line of each operator, for a message, at every import.
    """
    for op in OPS:
        REGISTERED[f"{NAMESPACE}::{op.name}"] = op
        _define(op.schema, torch.Tag.pt2_compliant_tag)
        reference = op.with_check(without_autocast(op.reference))
        _impl(op.name, reference, "CompositeExplicitAutograd")
        _impl(op.name, op.with_check(op.result), "Meta")
        find = partial(_overload, op.name)
        if op.autograd:
            add_gradient(op.name, find, op.autograd)
            kernel = autograd_kernel(op.name, find, op.autograd)
            _impl(op.name, kernel, "Autograd", with_keyset=True)
        elif op.writes:
            _impl(op.name, inference_kernel(op.name, find), "Autograd")
        if op.rows is not None:
            rule = vmap_rule(find, op.rows)
            torch.library.register_vmap(f"{NAMESPACE}::{op.name}", rule, lib=_LIBRARY)
        if op.public:
            _register_outs(op, reference)


def _register_outs(op: Op, reference: Callable[..., Any]) -> None:
    """Register the operator X_out, which writes the results of X to tensors."""
    name = f"{op.name}_out"
    copy, guard = add_outs(NAMESPACE, op, reference)
    _define(schema_with_outs(op.schema))
    _impl(name, copy, "CompositeExplicitAutograd")
    _impl(name, guard, "Autograd")


@cache
def _overload(name: str) -> OpOverload:
    """An operator as torch.ops has it: it is made when it is first needed, not at every import."""
    overload: OpOverload = getattr(getattr(torch.ops, NAMESPACE), name).default
    return overload


def _define(schema: str, *tags: torch.Tag) -> None:
    """Library.define, without its search for an operator of that name, which takes as long."""
    _BELOW.define(schema, "", tags)


def _impl(name: str, kernel: Callable[..., Any], key: str, *, with_keyset: bool = False) -> None:
    """Library.impl, without its record of what is registered."""
    _BELOW.impl(name, key, kernel, with_keyset)
