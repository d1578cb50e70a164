"""How vmap goes through the operators."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Batching = Callable[[str], Callable[..., tuple[Any, Any]]]
"""From an operator's name to what torch.library.register_vmap takes."""


def by_rows(*rows: str) -> Batching:
    """For operators whose arguments named `rows` may have any leading dimensions.

    Where no other argument is batched the batch is one more leading dimension, and it is one call;
    else a call for each of the batch.
    """

    def of(name: str) -> Callable[..., tuple[Any, Any]]:
        op = getattr(torch.ops.fusedops, name).default
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
                moved = [
                    _leading(arg, dim, size) if name in rows and isinstance(arg, Tensor) else arg
                    for name, arg, dim in zip(names, args, dims, strict=False)
                ]
                found = op(*moved, **keywords)
                return found, _all_first(found)
            each = [
                op(*(_one(arg, dim, i) for arg, dim in zip(args, dims, strict=True)), **keywords)
                for i in range(size)
            ]
            found = _stacked(each)
            return found, _all_first(found)

        return rule

    return of


def _leading(tensor: Tensor, dim: int | None, size: int) -> Tensor:
    if dim is None:
        return tensor.expand(size, *tensor.shape)
    return tensor.movedim(dim, 0)


def _one(arg: object, dim: int | None, index: int) -> object:
    return arg.select(dim, index) if isinstance(arg, Tensor) and dim is not None else arg


def _stacked(each: list[Any]) -> Any:  # noqa: ANN401 - a tensor or a tuple of them
    if isinstance(each[0], Tensor):
        return torch.stack(each)
    return tuple(torch.stack(parts) for parts in zip(*each, strict=True))


def _all_first(found: object) -> object:
    return 0 if isinstance(found, Tensor) else (0,) * len(found)  # type: ignore[arg-type]
