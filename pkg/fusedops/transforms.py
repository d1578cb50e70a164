"""How the operators behave under torch.func: grad, vjp, jacrev, vmap, and these in each other.

torch.func wants an autograd.Function that saves its context in a method of its own, and gets it
above the dispatcher. So a call under a transform takes another way than one under plain autograd.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any, NoReturn

import torch
from torch import Tensor
from torch._C._functorch import TransformType, peek_interpreter_stack
from torch._library.utils import fill_defaults
from torch._ops import OpOverload, OpOverloadPacket

from fusedops.autograd import Autograd, Context, refuse_forward_mode

_GRADIENTS: dict[str, tuple[Callable[[], OpOverload], Autograd]] = {}
"""By the operator's name; of those that have a gradient."""


def add_gradient(name: str, find: Callable[[], OpOverload], autograd: Autograd) -> None:
    """Let `call_transformed` find how gradients flow through an operator."""
    _GRADIENTS[name] = find, autograd


@cache
def _function(name: str) -> type[torch.autograd.Function] | None:
    """The autograd.Function of an operator, made at its first call; None if it has no gradient."""
    if name not in _GRADIENTS:
        return None
    find, autograd = _GRADIENTS[name]
    op = find()
    gradients = autograd.backward_without_autocast

    def forward(*args: Any) -> Any:  # noqa: ANN401 - what the operator takes and returns
        *arguments, run = args
        return run(*arguments)

    def setup_context(ctx: Context, inputs: tuple[Any, ...], output: Any) -> None:  # noqa: ANN401
        *arguments, run = inputs
        args, keywords = fill_defaults(op._schema, tuple(arguments), run.keywords)
        more = {"keyword_only_inputs": keywords} if keywords else {}
        autograd.setup_context(ctx=ctx, inputs=args, output=output, **more)

    def backward(ctx: Context, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        result = gradients(ctx, *grads)
        return *(result if isinstance(result, tuple) else (result,)), None

    def jvp(ctx: Context, *tangents: object) -> NoReturn:
        del ctx, tangents
        refuse_forward_mode(op._opname)

    methods = {method.__name__: method for method in (forward, setup_context, backward, jvp)}
    return type(
        f"Transformed_{name}",
        (torch.autograd.Function,),
        {name: staticmethod(method) for name, method in methods.items()}
        | {"generate_vmap_rule": True},
    )


def call_transformed(op: OpOverloadPacket, *args: object, **keywords: object) -> Any:  # noqa: ANN401
    """Call `op` where a transform of torch.func is active."""
    function = _function(op._qualified_op_name.partition("::")[2])
    # torch has no rule for an autograd.Function under functionalize, and needs none for an operator
    if function is None or peek_interpreter_stack().key() == TransformType.Functionalize:
        return op(*args, **keywords)
    while args and args[-1] is None:  # as torch's dispatcher does with an argument's default
        args = args[:-1]
    return function.apply(*args, partial(op, **keywords))


def vmap_rule(
    find: Callable[[], OpOverload], rows: tuple[str, ...]
) -> Callable[..., tuple[Any, Any]]:
    """The rule that torch.library.register_vmap takes; see `Op.rows`."""

    def rule(
        info: Any,  # noqa: ANN401 - a private type of torch's
        dims: tuple[int | None, ...],
        *args: object,
        **keywords: object,
    ) -> tuple[Any, Any]:
        op, size = find(), info.batch_size
        names = [argument.name for argument in op._schema.arguments]
        batched = {name for name, dim in zip(names, dims, strict=False) if dim is not None}
        if batched <= set(rows):
            batch_first = [
                _batch_first(arg, dim, size) if name in rows and isinstance(arg, Tensor) else arg
                for name, arg, dim in zip(names, args, dims, strict=False)
            ]
            result = op(*batch_first, **keywords)
        else:
            elements = [
                op(
                    *(_element(arg, dim, i, size) for arg, dim in zip(args, dims, strict=True)),
                    **keywords,
                )
                for i in range(max(size, 1))
            ]
            result = _stack(elements, size)
        return result, 0 if isinstance(result, Tensor) else (0,) * len(result)

    return rule


def _batch_first(tensor: Tensor, dim: int | None, size: int) -> Tensor:
    if dim is None:
        return tensor.expand(size, *tensor.shape)
    return tensor.movedim(dim, 0)


def _element(arg: object, dim: int | None, index: int, size: int) -> object:
    """An argument for one element of a batch; zeros of its shape where the batch has none."""
    if not isinstance(arg, Tensor) or dim is None:
        return arg
    if size == 0:
        return arg.new_zeros(arg.movedim(dim, 0).shape[1:])
    return arg.select(dim, index)


def _stack(results: list[Any], size: int) -> Any:  # noqa: ANN401 - a tensor or a tuple of them
    """The results of a batch of `size` elements; there is one of an empty batch, for its shape."""
    if isinstance(results[0], Tensor):
        return torch.stack(results)[:size]
    return tuple(torch.stack(parts)[:size] for parts in zip(*results, strict=True))
