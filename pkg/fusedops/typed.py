"""Entry points by type: `bias_gelu_fp16` is bias_gelu for float16 tensors, and for them alone.

An entry point takes the arguments of its operator and computes the same, without a gradient. The
tensors that the operator writes to come after its results. Where the extension module _C is loaded,
the entry points are its functions: they call the kernel without torch's dispatcher, for tensors on
a GPU only. Elsewhere they are Python functions that check the same and call the operator.
"""

from collections.abc import Callable
from inspect import Parameter, Signature
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from fusedops import checks
from fusedops.autograd import any_requires_grad, written_arguments
from fusedops.op import Op
from fusedops.registry import NAMESPACE, OPS

TYPES = {
    "fp32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "fp64": torch.float64,
}


def names() -> list[str]:
    """The names of all entry points: every public operator for every type."""
    return [f"{op.name}_{suffix}" for op in OPS if op.public for suffix in TYPES]


def entry_point(name: str, module: ModuleType | None) -> Callable[..., Any] | None:
    """The entry point of that name: that of `module`, else Python's. None: there is none."""
    operator, _, suffix = name.rpartition("_")
    op = next((op for op in OPS if op.public and op.name == operator), None)
    if op is None or suffix not in TYPES:
        return None
    return getattr(module, name, None) or _python_entry_point(op, name, TYPES[suffix])


def _python_entry_point(op: Op, name: str, dtype: torch.dtype) -> Callable[..., Any]:
    call = getattr(getattr(torch.ops, NAMESPACE), op.name).default
    parameters = list(map(_parameter, call._schema.arguments))
    first = parameters[0].name
    written = written_arguments(call)

    def entry_point(*args: object, **keywords: object) -> object:
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
        result = call(*args, **keywords)
        if not written:
            return result
        results = (result,) if isinstance(result, Tensor) else result or ()
        return *results, *(
            args[index] if index < len(args) else keywords[argument] for index, argument in written
        )

    entry_point.__name__ = entry_point.__qualname__ = name
    entry_point.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    entry_point.__doc__ = f"{op.name} of {checks.dtype_name(dtype)} tensors, without a gradient."
    return entry_point


def _parameter(argument: Any) -> Parameter:  # noqa: ANN401 - of a torch.FunctionSchema
    """The parameter of a Python function for an argument of a schema."""
    kind = Parameter.KEYWORD_ONLY if argument.kwarg_only else Parameter.POSITIONAL_OR_KEYWORD
    default = argument.default_value if argument.has_default_value() else Parameter.empty
    return Parameter(argument.name, kind, default=default)
