"""Entry points by type: `bias_gelu_fp16` is bias_gelu for float16 tensors, and for them alone.

They take the arguments of the operator they are named after and compute what it computes, without
a gradient; what it writes to comes after its results. Where the extension module _C is loaded they
are its functions, which call the kernel without torch's dispatcher, so for tensors on a GPU only.
Elsewhere they are functions of Python that check the same and call the operator.
"""

from collections.abc import Callable
from inspect import Parameter, Signature
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from fusedops import checks
from fusedops.autograd import any_requires_grad
from fusedops.op import Op
from fusedops.schemas import NAMESPACE, OPS
from fusedops.written import written_by

TYPES = {
    "fp32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "fp64": torch.float64,
}


def names() -> list[str]:
    """The names of all of them: every public operator for every type."""
    return [f"{op.name}_{suffix}" for op in OPS if op.public for suffix in TYPES]


def entry_point(name: str, module: ModuleType | None) -> Callable[..., Any] | None:
    """The entry point of that name: that of `module`, else Python's; None where there is none."""
    operator, _, suffix = name.rpartition("_")
    op = next((op for op in OPS if op.public and op.name == operator), None)
    if op is None or suffix not in TYPES:
        return None
    return getattr(module, name, None) or _checked(op, name, TYPES[suffix])


def _checked(op: Op, name: str, dtype: torch.dtype) -> Callable[..., Any]:
    call = getattr(getattr(torch.ops, NAMESPACE), op.name).default
    parameters = list(map(_parameter, call._schema.arguments))
    first = parameters[0].name
    written = written_by(call)

    def typed(*args: object, **keywords: object) -> object:
        tensor = args[0] if args else keywords.get(first)
        if isinstance(tensor, Tensor) and tensor.dtype != dtype:
            checks.fail(
                name, first, f"dtype {checks.dtype_name(dtype)}", checks.dtype_name(tensor.dtype)
            )
        if torch.is_grad_enabled() and any_requires_grad(*args, **keywords):
            raise RuntimeError(
                f"{name}: has no gradient; call fusedops.{op.name}, or call this one under "
                "torch.no_grad()"
            )
        found = call(*args, **keywords)
        if not written:
            return found
        results = (found,) if isinstance(found, Tensor) else found or ()
        return *results, *(args[at] if at < len(args) else keywords[one] for at, one in written)

    typed.__name__ = typed.__qualname__ = name
    typed.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    typed.__doc__ = f"{op.name} of {checks.dtype_name(dtype)} tensors, without a gradient."
    return typed


def _parameter(argument: Any) -> Parameter:  # noqa: ANN401 - of a torch.FunctionSchema
    """As Python writes it."""
    kind = Parameter.KEYWORD_ONLY if argument.kwarg_only else Parameter.POSITIONAL_OR_KEYWORD
    default = argument.default_value if argument.has_default_value() else Parameter.empty
    return Parameter(argument.name, kind, default=default)
