"""Entry points by type: `bias_gelu_fp16` is bias_gelu for float16 tensors, and for them alone.

They take the arguments of the operator they are named after and compute what it computes, without
a gradient. Where the extension module _C is loaded they are its functions, which call the kernel
without torch's dispatcher, so for tensors on a GPU only. Elsewhere they are functions of Python
that check the same and call the operator.
"""

from collections.abc import Callable
from functools import wraps
from inspect import signature
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from fusedops import checks
from fusedops.op import Op
from fusedops.schemas import NAMESPACE, OPS

TYPES = {
    "fp32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "fp64": torch.float64,
}


def entry_points(module: ModuleType | None) -> dict[str, Callable[..., Any]]:
    """The entry points of every public operator, by name: those of `module`, else Python's."""
    return {
        name: getattr(module, name, None) or _checked(op, name, dtype)
        for op in OPS
        if op.public
        for suffix, dtype in TYPES.items()
        for name in [f"{op.name}_{suffix}"]
    }


def _checked(op: Op, name: str, dtype: torch.dtype) -> Callable[..., Any]:
    first = next(iter(signature(op.reference).parameters))
    call = getattr(getattr(torch.ops, NAMESPACE), op.name)

    @wraps(op.reference)
    def typed(*args: object, **keywords: object) -> object:
        tensor = args[0] if args else keywords.get(first)
        if isinstance(tensor, Tensor) and tensor.dtype != dtype:
            checks.fail(name, first, f"dtype {_plain(dtype)}", _plain(tensor.dtype))
        values = (*args, *keywords.values())
        if torch.is_grad_enabled() and any(
            isinstance(value, Tensor) and value.requires_grad for value in values
        ):
            raise RuntimeError(
                f"{name}: has no gradient; call fusedops.{op.name}, or call this one under "
                "torch.no_grad()"
            )
        return call(*args, **keywords)

    typed.__name__ = typed.__qualname__ = name
    typed.__doc__ = f"{op.name} of {_plain(dtype)} tensors, without a gradient."
    return typed


def _plain(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
