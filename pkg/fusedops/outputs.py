"""Results in memory that the caller gives: `out=` and `workspace=`.

An operator X that makes new tensors has a second form, the operator X_out, which writes its results
to tensors. A kernel writes them there itself. Where no kernel is loaded, the reference of X is
called and its results are copied. Under torch.compile and torch.jit.trace the results of X are
copied: the compiler sees an operator without side effects, and removes the copy.

Every import of the package defines all forms, so that a program that was saved with one finds it.
What else a form needs is made at its first call.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from itertools import combinations
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from torch import Tensor
from torch._C import _are_functorch_transforms_active as transforms_active
from torch._C import _dispatch_tls_is_dispatch_key_excluded as excluded
from torch._C import _dispatch_tls_set_dispatch_key_excluded as exclude
from torch._ops import OpOverloadPacket
from torch.autograd.graph import increment_version
from torch.compiler import is_compiling

from fusedops import checks
from fusedops.autograd import (
    any_requires_grad,
    asks_for_gradients,
    forward_mode,
    refuse_tangents,
)
from fusedops.kinds import address, check_out, check_workspace
from fusedops.op import REGISTERED, Op, like_first

if TYPE_CHECKING:
    from fusedops.workspace import Workspace

Out = Tensor | tuple[Tensor, ...]
Span = tuple[int, int]

ALIGNMENT = 16
"""Bytes on which memory for a result must start: the vectors of the kernels."""
_AUTOGRAD = torch._C.DispatchKey.AutogradFunctionality


class _Form:
    """The form of an operator that writes to tensors.

    No dataclass: it would take the import of the package a third of a millisecond.

    Attributes:
        op: X.
        call: X_out, without the checks of torch.ops.
        names: its arguments for the results.
        arguments: the names of all its arguments, in order.
    """

    def __init__(self, op: Op, packet: OpOverloadPacket) -> None:
        self.op, self.call = op, packet._op
        self.names = _names(op.schema)
        self.arguments = [one.name for one in packet.default._schema.arguments]


@cache
def _form(name: str) -> _Form:
    """The form of the operator of that qualified name."""
    namespace, _, op = name.partition("::")
    return _Form(REGISTERED[name], getattr(getattr(torch.ops, namespace), f"{op}_out"))


def schema_with_outs(schema: str) -> str:
    """The schema of X_out, from that of X: results become arguments, and memory is one more."""
    name, _, arguments = schema.rpartition(") -> ")[0].partition("(")
    separator = ", " if "*" in arguments else ", *, "
    outs = ", ".join(f"Tensor({out}!) {out}" for out in _names(schema))
    return f"{name}_out({arguments}{separator}{outs}, Tensor(m!)? memory=None) -> ()"


def _names(schema: str) -> tuple[str, ...]:
    """The names of X_out's arguments for the results of X, by the schema of X."""
    count = schema.rpartition(" -> ")[2].count("Tensor")
    return ("out",) if count == 1 else tuple(f"out{index}" for index in range(count))


def add_outs(
    namespace: str, op: Op, reference: Callable[..., Any]
) -> tuple[Callable[..., None], Callable[..., None]]:
    """The kernels of an operator's form: where no other is loaded, and for the Autograd key.

    `call_into` passes the latter by; it is for programs that call the form themselves.
    """
    qualified = f"{namespace}::{op.name}"

    def copy(*args: object, memory: Tensor | None = None, **keywords: Any) -> None:  # noqa: ANN401
        del memory
        outs = [keywords.pop(name) for name in _form(qualified).names]
        _copy_results(op.name, reference(*args, **keywords), outs)

    def guard(*args: object, **keywords: Any) -> None:  # noqa: ANN401
        form = _form(qualified)
        refuse_tangents(op.name, *args, **keywords)
        if torch.is_grad_enabled() and asks_for_gradients(*args, **keywords):
            _refuse_gradient(op.name, "out")
        with torch._C._AutoDispatchBelowAutograd():
            form.call(*args, **keywords)
        increment_version([keywords[name] for name in form.names])

    return copy, guard


def call_into(  # noqa: PLR0912 - a check each
    op: OpOverloadPacket,
    args: Sequence[Any],
    keywords: Mapping[str, Any],
    out: Out | None,
    workspace: "Workspace | None" = None,
    *,
    name: str = "",
) -> Any:  # noqa: ANN401 - a tensor or a tuple of them
    """Call `op` with its results in `out`, else in the workspace; temporaries lie in the workspace.

    The shape, dtype and place of `out` are checked by the kernels, which know what they make. If
    they refuse it, it is checked here, for the words. What else they refuse the caller has to look
    for (`refuse_arguments`).

    Args:
        op: of torch.ops.fusedops.
        args: the operator's positional arguments.
        keywords: its other arguments.
        out: a tensor, or a tuple of as many as there are results.
        workspace: where memory comes from.
        name: of the function in messages; default: the operator's.

    Raises:
        TypeError: `out` or `workspace` is not as above, or a tensor of `out` has no strides.
        ValueError: a tensor of it does not fit, or shares memory that it may not share.
        RuntimeError: a gradient is asked for.
        NotImplementedError: a transform of torch.func is active, or a tensor has a tangent.
    """
    name = name or REGISTERED[op._qualified_op_name].name
    if workspace is not None:
        check_workspace(name, workspace)
    if is_compiling() or torch._C._get_tracing_state() is not None:
        return _call_and_copy(op, args, keywords, out, name)
    form = _form(op._qualified_op_name)
    outs = () if out is None else _outs(name, out, len(form.names))
    argument = "workspace" if out is None else "out"
    for one in outs:
        check_out(name, one)
    if transforms_active():
        raise NotImplementedError(
            f"{name}: {argument}: cannot be given under a transform of torch.func; call it without"
        )
    if forward_mode():
        refuse_tangents(name, *args, *outs)
    if torch.is_grad_enabled() and asks_for_gradients(*args, *outs):
        _refuse_gradient(name, argument)
    if out is not None:
        _check_memory(name, form, args, outs)
        if form.op.writes:  # a call that fails writes to nothing
            check_outs(name, outs, _results(form, args, keywords))
    elif workspace is not None:
        made = _results(form, args, keywords)
        outs = tuple([workspace.take(name, one.shape, one.dtype) for one in made])
    more = dict(zip(form.names, outs, strict=True))
    if workspace is not None:
        more["memory"] = workspace.rest()
    was_excluded = excluded(_AUTOGRAD)
    try:
        exclude(_AUTOGRAD, True)
        form.call(*args, **keywords, **more)
    except (RuntimeError, ValueError):
        if out is not None:
            check_outs(name, outs, _results(form, args, keywords))
        elif workspace is not None and outs and made[0].device != workspace.device:
            checks.fail(name, "workspace", f"device {made[0].device}", workspace.device)
        raise
    finally:
        exclude(_AUTOGRAD, was_excluded)
    increment_version(outs)
    return outs if len(outs) > 1 else outs[0]


def _call_and_copy(
    op: OpOverloadPacket,
    args: Sequence[Any],
    keywords: Mapping[str, Any],
    out: Out | None,
    name: str,
) -> Any:  # noqa: ANN401 - a tensor or a tuple of them
    """What a compiler or a tracer sees of `call_into`. It is written in what dynamo can trace."""
    schema = REGISTERED[op._qualified_op_name].schema
    outs = () if out is None else _outs(name, out, len(_names(schema)))
    if torch.is_grad_enabled() and any_requires_grad(*args, *outs):
        _refuse_gradient(name, "workspace" if out is None else "out")
    result = op(*args, **keywords)
    if out is None:
        return result
    _copy_results(name, result, outs)
    return out


def _refuse_gradient(name: str, argument: str) -> NoReturn:
    raise RuntimeError(
        f"{name}: {argument}: a result in given memory has no gradient; call it without, or under "
        "torch.no_grad()"
    )


def _outs(name: str, out: object, count: int) -> tuple[Tensor, ...]:
    """The tensors of `out`, however many."""
    if count == 1 and isinstance(out, Tensor):
        return (out,)
    outs = out if count > 1 and isinstance(out, tuple) else ()
    if len(outs) != count or not all(isinstance(one, Tensor) for one in outs):
        expected = f"a tuple of {count} tensors" if count > 1 else "a torch.Tensor"
        raise TypeError(f"{name}: out: expected {expected}, found {type(out).__name__}")
    return outs


def _copy_results(name: str, result: Any, outs: Sequence[Tensor]) -> None:  # noqa: ANN401
    made = (result,) if isinstance(result, Tensor) else result
    check_outs(name, outs, made)
    for out, value in zip(outs, made, strict=True):
        out.copy_(value)


def check_outs(name: str, outs: Iterable[Tensor], made: Iterable[Any]) -> None:
    """Each of `outs` must be able to hold a result like the one of `made`."""
    for out, like in zip(outs, made, strict=True):
        if out.shape != like.shape:
            checks.fail(name, "out", f"shape {list(like.shape)}", list(out.shape))
        if out.dtype != like.dtype:
            expected, found = map(checks.dtype_name, (like.dtype, out.dtype))
            checks.fail(name, "out", f"dtype {expected}", found)
        if out.device != like.device:
            checks.fail(name, "out", f"device {like.device}", out.device)
        if not out.is_contiguous() or (not is_compiling() and address(out) % ALIGNMENT):
            expected = f"contiguous memory that starts on {ALIGNMENT} bytes"
            checks.fail(name, "out", expected, f"strides {list(out.stride())}")


class _Like:
    """What a function of results needs of a tensor: it makes empty ones without memory."""

    def __init__(self, shape: Sequence[int], of: Tensor) -> None:
        self.shape, self.dtype, self._of = torch.Size(shape), of.dtype, of

    @property
    def device(self) -> torch.device:
        return self._of.device

    def new_empty(self, *sizes: Any) -> "_Like":  # noqa: ANN401 - sizes, or a sequence of them
        shape = sizes[0] if len(sizes) == 1 and not isinstance(sizes[0], int) else sizes
        return _Like(shape, self._of)

    def dim(self) -> int:
        return len(self.shape)


def _results(form: _Form, args: Sequence[Any], keywords: Mapping[str, Any]) -> tuple[Any, ...]:
    """The shapes, dtypes and device of the results, if the operator takes the arguments."""
    if form.op.result is like_first and isinstance(args[0], Tensor):
        return (args[0],)
    likes = [_Like(arg.shape, arg) if isinstance(arg, Tensor) else arg for arg in args]
    made = form.op.result(*likes, **keywords)
    return made if isinstance(made, tuple) else (made,)


def _check_memory(name: str, form: _Form, args: Sequence[Any], outs: Sequence[Tensor]) -> None:
    """No result may share memory with an argument, unless it replaces it, or with another.

    Nor may it be on another device than the first argument: torch would call the kernels of one
    device with tensors of both.
    """
    first = args[0]
    if isinstance(first, Tensor) and first.get_device() != outs[0].get_device():
        checks.fail(name, "out", f"device {first.device}", outs[0].device)
    spans = [_span(out) for out in outs]
    if len(spans) > 1 and any(_share(*both) for both in combinations(spans, 2)):
        checks.fail(name, "out", "tensors that share no memory", "two that do")
    for argument in args:
        if isinstance(argument, Tensor):
            begin, end = _span(argument)
            for out_begin, out_end in spans:
                if begin < out_end and out_begin < end:  # as _share; this is every call's way
                    _check_replaced(name, form, args, outs)


def _check_replaced(name: str, form: _Form, args: Sequence[Any], outs: Sequence[Tensor]) -> None:
    """Each of `outs` that shares memory with an argument must be a result that replaces it."""
    over = form.op.over_arguments
    expected = "memory of its own" + (", or all of an argument's" if over else "")
    for argument, tensor in zip(form.arguments, args, strict=False):
        for out in outs:
            shares = isinstance(tensor, Tensor) and _share(_span(out), _span(tensor))
            if shares and not (over and _same(out, tensor)):
                checks.fail(name, "out", expected, f"memory that it shares with {argument}")


def _span(tensor: Tensor) -> Span:
    """The address of its first byte, and of the one after its last; 0 if it has no memory."""
    begin = address(tensor)
    if not begin:
        return 0, 0
    if tensor.is_contiguous():
        return begin, begin + tensor.nbytes
    reach = sum(
        (size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
    )
    return begin, begin + (reach + 1) * tensor.element_size()


def _share(one: Span, other: Span) -> bool:
    return one[0] < other[1] and other[0] < one[1]


def _same(out: Tensor, argument: Tensor) -> bool:
    return (
        out.data_ptr() == argument.data_ptr()
        and out.shape == argument.shape
        and out.dtype == argument.dtype
        and argument.is_contiguous()
    )
