"""Entry points by type: `bias_gelu_fp16` is bias_gelu for float16 tensors, and for them alone.

An entry point takes the arguments of its operator and computes the same, without a gradient. The
tensors that the operator writes to come after its results. One that writes to no argument takes
`out=`, by the rules of the operators' own functions (docs/ops/README.md).

There are two kinds. Those of an extension module call a kernel without torch's dispatcher, and
those in Python call the operator. A module's entry point takes plain tensors on a GPU, where no
gradient is asked for and no mode of torch's is active. It gives every other call, and a wrong one,
to the entry point in Python.

An aten wheel has the module _C. A universal wheel has one over DLPack, from torch 2.10 on and in
every CPython with a GIL; its products of matrices are those in 16 bits, by cuBLASLt. It also takes
the arrays of any framework with DLPack's C exchange API, and gives results of the first one's.
"""

from collections.abc import Callable
from inspect import Parameter, Signature
from types import ModuleType
from typing import Any, cast

import torch
from torch import Tensor
from torch.compiler import is_compiling

from fusedops import checks
from fusedops.autograd import any_requires_grad, written_arguments
from fusedops.extension import EXTENSION
from fusedops.kinds import check_written
from fusedops.op import Op, refuse_arguments
from fusedops.outputs import Out, call_into
from fusedops.registry import NAMESPACE, OPS
from torchwheel_runtime import runtime

TYPES = {
    "fp32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "fp64": torch.float64,
}

EntryPoint = Callable[..., Any]


def names() -> list[str]:
    """The names of all entry points: every public operator for every type."""
    return [f"{op.name}_{suffix}" for op in OPS if op.public for suffix in TYPES]


def entry_point(name: str, module: ModuleType | None) -> EntryPoint | None:
    """The entry point of that name: that of `module`, else DLPack's, else Python's. None: none."""
    operator, _, suffix = name.rpartition("_")
    op = next((op for op in OPS if op.public and op.name == operator), None)
    if op is None or suffix not in TYPES:
        return None
    python = _python_entry_point(op, name, TYPES[suffix])
    native = module or runtime.entry_points(EXTENSION.package)
    return (_native(op, suffix, native, python) if native else None) or python


def direct_call(name: str) -> EntryPoint | None:
    """The direct call of an operator, DLPack's for tensors of any type; None if it has none.

    It takes the operator's arguments, and `out=` if it writes to none of them, and gives
    NotImplemented for a call that only the dispatcher can take, or can refuse.
    """
    op = next(op for op in OPS if op.name == name)
    over_dlpack = runtime.entry_points(EXTENSION.package)
    return _native(op, "", over_dlpack, None) if over_dlpack else None


def _native(
    op: Op, suffix: str, module: ModuleType, python: EntryPoint | None
) -> EntryPoint | None:
    """The module's function, which gives what it does not take to `python`.

    None if the module has no kernel of the operator.
    """
    text = ""
    if python is not None:
        text = f"{python.__name__}{Signature.from_callable(python)}\n--\n\n{python.__doc__}"
    schema, written = _overload(op)._schema, dict(written_arguments(_overload(op)))
    parameters = tuple(
        (
            argument.name,
            isinstance(argument.real_type, torch.OptionalType),
            argument.kwarg_only,
            index in written,
            argument.has_default_value(),
            argument.default_value,
        )
        for index, argument in enumerate(schema.arguments)
    )
    made = module.entry_point(
        *(EXTENSION.package, op.name, suffix, parameters, len(schema.returns), op.over_arguments),
        *(text, python),
    )
    return cast("EntryPoint | None", made)


def _overload(op: Op) -> Any:  # noqa: ANN401 - a torch._ops.OpOverload
    return getattr(getattr(torch.ops, NAMESPACE), op.name).default


def _python_entry_point(op: Op, name: str, dtype: torch.dtype) -> EntryPoint:
    call, packet = _overload(op), getattr(getattr(torch.ops, NAMESPACE), op.name)
    parameters = list(map(_parameter, call._schema.arguments))
    first = parameters[0].name
    positional = [
        (argument.name, argument.default_value)
        for argument in call._schema.arguments
        if not argument.kwarg_only
    ]
    written = written_arguments(call)
    if not written:
        parameters.append(Parameter("out", Parameter.KEYWORD_ONLY, default=None))
    signature = Signature(parameters)

    def entry_point(*args: object, **keywords: object) -> object:
        out = None if written else keywords.pop("out", None)
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
        if written and not is_compiling():
            check_written(name, written, args, keywords)
        try:
            if out is not None:
                rest = positional[len(args) :]
                args = *args, *(keywords.pop(argument, value) for argument, value in rest)
                return call_into(packet, args, keywords, cast("Out", out), name=name)
            result = call(*args, **keywords)
        except Exception:
            _bind(signature, name, args, keywords)
            refuse_arguments(call, args, keywords, name)
            raise
        if not written:
            return result
        results = (result,) if isinstance(result, Tensor) else result or ()
        return *results, *(
            args[index] if index < len(args) else keywords[argument] for index, argument in written
        )

    entry_point.__name__ = entry_point.__qualname__ = name
    entry_point.__module__ = EXTENSION.package  # where pickle finds it
    entry_point.__signature__ = signature  # type: ignore[attr-defined]
    entry_point.__doc__ = f"{op.name} of {checks.dtype_name(dtype)} tensors, without a gradient."
    return entry_point


def _bind(
    signature: Signature, name: str, args: tuple[object, ...], keywords: dict[str, object]
) -> None:
    """Raise TypeError if a call does not match the signature; torch's own has many lines."""
    try:
        signature.bind(*args, **keywords)
    except TypeError as error:
        raise TypeError(f"{name}() {error}") from None


def _parameter(argument: Any) -> Parameter:  # noqa: ANN401 - of a torch.FunctionSchema
    """The parameter of a Python function for an argument of a schema."""
    kind = Parameter.KEYWORD_ONLY if argument.kwarg_only else Parameter.POSITIONAL_OR_KEYWORD
    default = argument.default_value if argument.has_default_value() else Parameter.empty
    return Parameter(argument.name, kind, default=default)
