"""Results in memory that the caller gives: `out=` and `workspace=`.

An operator X that makes new tensors has a second form, the operator X_out, which writes its results
to tensors. A kernel writes them there itself. Where no kernel is loaded, X is called and its
results are copied. Under torch.compile and torch.jit.trace they are copied too: the compiler sees
an operator without side effects, and removes the copy.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch._C import _are_functorch_transforms_active as transforms_active
from torch._C import _dispatch_tls_is_dispatch_key_excluded as excluded
from torch._C import _dispatch_tls_set_dispatch_key_excluded as exclude
from torch._ops import OpOverload, OpOverloadPacket
from torch.autograd.graph import increment_version
from torch.compiler import is_compiling

from fusedops import checks
from fusedops.autograd import any_requires_grad, refuse_tangents

if TYPE_CHECKING:
    from fusedops.workspace import Workspace

Out = Tensor | tuple[Tensor, ...]
Result = Callable[..., Any]

ALIGNMENT = 16
"""Bytes on which memory for a result must start: the vectors of the kernels."""
_AUTOGRAD = torch._C.DispatchKey.AutogradFunctionality


@dataclass(frozen=True)
class _Form:
    """The form of an operator that writes to tensors.

    Attributes:
        name: X.
        op: the operator X_out.
        names: of its arguments for the results.
        result: makes empty results of the right shapes (fusedops.op.Op).
        over_arguments: a result may replace an argument (fusedops.op.Op).
    """

    name: str
    op: OpOverload
    names: tuple[str, ...]
    result: Result
    over_arguments: bool


_FORMS: dict[str, _Form] = {}
"""By the operator's qualified name."""


def schema_with_outs(schema: str) -> str:
    """The schema of X_out, from that of X: results become arguments, and memory is one more."""
    arguments, _, results = schema.partition(") -> ")
    name, _, arguments = arguments.partition("(")
    separator = ", " if "*" in arguments else ", *, "
    outs = [f"Tensor({out}!) {out}" for out in _names(results.count("Tensor"))]
    return f"{name}_out({arguments}{separator}{', '.join(outs)}, Tensor(m!)? memory=None) -> ()"


def _names(count: int) -> tuple[str, ...]:
    return ("out",) if count == 1 else tuple(f"out{index}" for index in range(count))


def add_outs(op: OpOverload, into: OpOverload, result: Result, *, over_arguments: bool) -> None:
    """Let `call_into` find the form `into` of the operator `op`."""
    names = _names(len(op._schema.returns))
    _FORMS[op._schema.name] = _Form(op._opname, into, names, result, over_arguments)


def copying_kernel(op: OpOverload) -> Callable[..., None]:
    """The kernel of X_out where none is loaded: it calls X and copies the results."""
    names = _names(len(op._schema.returns))

    def call(*args: object, memory: Tensor | None = None, **keywords: Any) -> None:  # noqa: ANN401
        del memory
        outs = tuple(keywords.pop(name) for name in names)
        _copy_results(op._opname, op(*args, **keywords), outs)

    return call


def call_into(
    op: OpOverloadPacket,
    args: Sequence[Any],
    keywords: Mapping[str, Any],
    out: Out | None,
    workspace: "Workspace | None" = None,
    *,
    name: str = "",
) -> Any:  # noqa: ANN401 - a tensor or a tuple of them
    """Call `op` with its results in `out`, else in the workspace; temporaries lie in the workspace.

    Args:
        op: of torch.ops.fusedops.
        args: the operator's positional arguments.
        keywords: its other arguments.
        out: a tensor, or a tuple of as many as there are results.
        workspace: where memory comes from.
        name: of the function in messages; default: the operator's.

    Raises:
        TypeError: `out` is not as above.
        ValueError: a tensor of it does not fit, or shares memory that it may not share.
        RuntimeError: a gradient is asked for.
        NotImplementedError: a transform of torch.func is active, or a tensor has a tangent.
    """
    form = _FORMS[op._qualified_op_name]
    name = name or form.name
    outs = _outs(name, out, len(form.names))
    _refuse_modes(name, "workspace" if out is None else "out", (*args, *outs))
    if is_compiling() or torch._C._get_tracing_state() is not None:
        result = op(*args, **keywords)
        if out is None:
            return result
        _copy_results(name, result, outs)
        return out
    made = _shapes(form, op, args, keywords)
    if outs:
        check_outs(name, outs, made)
        _check_memory(name, form, op.default, args, outs)
    elif workspace is not None:
        outs = tuple(workspace.take(name, one.shape, one.dtype) for one in made)
    memory = None if workspace is None else workspace.rest()
    was_excluded = excluded(_AUTOGRAD)
    try:
        exclude(_AUTOGRAD, True)
        form.op(*args, **keywords, **dict(zip(form.names, outs, strict=True)), memory=memory)
    finally:
        exclude(_AUTOGRAD, was_excluded)
    increment_version(outs)
    return outs if len(outs) > 1 else outs[0]


def _refuse_modes(name: str, argument: str, tensors: Sequence[object]) -> None:
    if not is_compiling() and transforms_active():
        raise NotImplementedError(
            f"{name}: {argument}: cannot be given under a transform of torch.func; call it without"
        )
    if not is_compiling():
        refuse_tangents(name, *tensors)
    if torch.is_grad_enabled() and any_requires_grad(*tensors):
        raise RuntimeError(
            f"{name}: {argument}: a result in given memory has no gradient; call it without, or "
            "under torch.no_grad()"
        )


def _outs(name: str, out: object, count: int) -> tuple[Tensor, ...]:
    """The tensors of `out`, however many; none for None."""
    if out is None:
        return ()
    outs = (out,) if count == 1 else out if isinstance(out, tuple) else ()
    if len(outs) != count or not all(isinstance(one, Tensor) for one in outs):
        expected = f"a tuple of {count} tensors" if count > 1 else "a torch.Tensor"
        raise TypeError(f"{name}: out: expected {expected}, found {type(out).__name__}")
    return outs


def _tensors(result: Any) -> tuple[Tensor, ...]:  # noqa: ANN401 - a tensor or a tuple of them
    return (result,) if isinstance(result, Tensor) else tuple(result)


def _copy_results(name: str, result: Any, outs: tuple[Tensor, ...]) -> None:  # noqa: ANN401
    made = _tensors(result)
    check_outs(name, outs, made)
    for one, value in zip(outs, made, strict=True):
        one.copy_(value)


def check_outs(name: str, outs: Sequence[Tensor], made: Sequence[Any]) -> None:
    """Each of `outs` must be able to hold a result like the one of `made`."""
    for out, like in zip(outs, made, strict=True):
        if out.shape != like.shape:
            checks.fail(name, "out", f"shape {list(like.shape)}", list(out.shape))
        if out.dtype != like.dtype:
            expected, found = map(checks.dtype_name, (like.dtype, out.dtype))
            checks.fail(name, "out", f"dtype {expected}", found)
        if out.device != like.device:
            checks.fail(name, "out", f"device {like.device}", out.device)
        if not out.is_contiguous() or (_has_data(out) and out.data_ptr() % ALIGNMENT):
            expected = f"contiguous memory that starts on {ALIGNMENT} bytes"
            checks.fail(name, "out", expected, f"strides {list(out.stride())}")


class _Like:
    """What a function of results needs of a tensor: it makes empty ones without memory."""

    def __init__(self, shape: torch.Size, dtype: torch.dtype, device: torch.device) -> None:
        self.shape, self.dtype, self.device = shape, dtype, device

    def new_empty(self, *sizes: Any) -> "_Like":  # noqa: ANN401 - sizes, or a sequence of them
        shape = sizes[0] if len(sizes) == 1 and not isinstance(sizes[0], int) else sizes
        return _Like(torch.Size(shape), self.dtype, self.device)

    def dim(self) -> int:
        return len(self.shape)


def _shapes(
    form: _Form, op: OpOverloadPacket, args: Sequence[Any], keywords: Mapping[str, Any]
) -> tuple[Any, ...]:
    """The shapes, dtypes and device of the results."""
    likes = [
        _Like(arg.shape, arg.dtype, arg.device) if isinstance(arg, Tensor) else arg for arg in args
    ]
    try:
        made = form.result(*likes, **keywords)
    except (AttributeError, IndexError, TypeError):  # wrong arguments: the operator says which
        with torch.no_grad():
            op(*args, **keywords)
        raise
    return made if isinstance(made, tuple) else (made,)


def _check_memory(
    name: str, form: _Form, op: OpOverload, args: Sequence[Any], outs: Sequence[Tensor]
) -> None:
    """No result may share memory with an argument, unless it replaces it, or with another."""
    if any(_share(one, other) for one, other in combinations(outs, 2)):
        checks.fail(name, "out", "tensors that share no memory", "two that do")
    for argument, tensor in zip(op._schema.arguments, args, strict=False):
        if not isinstance(tensor, Tensor):
            continue
        for out in outs:
            if not _share(out, tensor) or (form.over_arguments and _same(out, tensor)):
                continue
            own = "memory of its own"
            expected = f"{own}, or all of an argument's" if form.over_arguments else own
            checks.fail(name, "out", expected, f"memory that it shares with {argument.name}")


def _has_data(tensor: Tensor) -> bool:
    """Whether it has an address: tensors that stand for others have none."""
    plain = not is_compiling() and type(tensor) in (Tensor, torch.nn.Parameter)
    return plain and tensor.device.type != "meta"


def _span(tensor: Tensor) -> Iterator[int]:
    """Its first byte, and the one after its last."""
    begin = tensor.data_ptr()
    reach = sum(
        (size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
    )
    yield begin
    yield begin + (reach + 1) * tensor.element_size() if tensor.numel() else begin


def _share(one: Tensor, other: Tensor) -> bool:
    if not (_has_data(one) and _has_data(other)) or one.device != other.device:
        return False
    (begin, end), (other_begin, other_end) = _span(one), _span(other)
    return begin < other_end and other_begin < end


def _same(out: Tensor, argument: Tensor) -> bool:
    return (
        out.data_ptr() == argument.data_ptr()
        and out.shape == argument.shape
        and out.dtype == argument.dtype
        and argument.is_contiguous()
    )
