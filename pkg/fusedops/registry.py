"""All operators, in the order of the extension's families, and their registration with torch."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.library import Library

from fusedops.arithmetic import without_autocast
from fusedops.autograd import autograd_kernel, inference_kernel
from fusedops.extension import EXTENSION
from fusedops.op import Op

NAMESPACE = "fusedops"

PAGES = {
    family.name: import_module(f"fusedops.families.{family.name}") for family in EXTENSION.operators
}
"""The module of each family, by the family's name."""

OPS: tuple[Op, ...] = tuple(op for page in PAGES.values() for op in page.OPS)

# A Library undoes its registrations when it is collected, so it lives as long as the module.
_LIBRARY = Library(NAMESPACE, "DEF")


def families() -> dict[str, list[str]]:
    """Names of the operators, by family. Each has a native kernel."""
    return {family: [op.name for op in page.OPS] for family, page in PAGES.items()}


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
        _LIBRARY.define(op.schema, tags=(torch.Tag.pt2_compliant_tag,))
        _LIBRARY.impl(
            op.name, op.with_check(without_autocast(op.reference)), "CompositeExplicitAutograd"
        )
        _LIBRARY.impl(op.name, op.with_check(op.result), "Meta")
        overload = getattr(getattr(torch.ops, NAMESPACE), op.name).default
        if op.autograd:
            kernel = autograd_kernel(overload, op.autograd)
            _LIBRARY.impl(op.name, kernel, "Autograd", with_keyset=True)
        elif overload._schema.is_mutable:
            _LIBRARY.impl(op.name, inference_kernel(overload), "Autograd")
        if op.rows is not None:
            rule = _vmap_rule(overload, op.rows)
            torch.library.register_vmap(f"{NAMESPACE}::{op.name}", rule, lib=_LIBRARY)


def _vmap_rule(op: OpOverload, rows: tuple[str, ...]) -> Callable[..., tuple[Any, Any]]:
    """The rule that torch.library.register_vmap takes; see `Op.rows`."""
    names = [argument.name for argument in op._schema.arguments]

    def rule(
        info: Any,  # noqa: ANN401 - a private type of torch's
        dims: tuple[int | None, ...],
        *args: object,
        **keywords: object,
    ) -> tuple[Any, Any]:
        size = info.batch_size
        batched = {name for name, dim in zip(names, dims, strict=False) if dim is not None}
        if batched <= set(rows):
            batch_first = [
                _batch_first(arg, dim, size) if name in rows and isinstance(arg, Tensor) else arg
                for name, arg, dim in zip(names, args, dims, strict=False)
            ]
            result = op(*batch_first, **keywords)
        else:
            result = _stack(
                [
                    op(
                        *(_element(arg, dim, i) for arg, dim in zip(args, dims, strict=True)),
                        **keywords,
                    )
                    for i in range(size)
                ]
            )
        return result, 0 if isinstance(result, Tensor) else (0,) * len(result)

    return rule


def _batch_first(tensor: Tensor, dim: int | None, size: int) -> Tensor:
    if dim is None:
        return tensor.expand(size, *tensor.shape)
    return tensor.movedim(dim, 0)


def _element(arg: object, dim: int | None, index: int) -> object:
    return arg.select(dim, index) if isinstance(arg, Tensor) and dim is not None else arg


def _stack(results: list[Any]) -> Any:  # noqa: ANN401 - a tensor or a tuple of them
    if isinstance(results[0], Tensor):
        return torch.stack(results)
    return tuple(torch.stack(parts) for parts in zip(*results, strict=True))
