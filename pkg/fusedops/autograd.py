"""How gradients flow through the operators, and the kernels for torch's Autograd key."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, NoReturn, Protocol

import torch
from torch import Tensor
from torch._library.autograd import Info, make_autograd_impl
from torch._ops import OpOverload
from torch.autograd import forward_ad

from fusedops.arithmetic import without_autocast

Gradients = tuple[Tensor | None, ...]
Kernel = Callable[..., Any]


class Context(Protocol):
    """torch's context, from the forward to the backward pass, with the keywords that we add."""

    keywords: dict[str, Any]
    saved_tensors: tuple[Tensor, ...]
    needs_input_grad: tuple[bool, ...]

    def save_for_backward(self, *tensors: Tensor) -> None:
        """Save tensors for the backward pass."""

    def set_materialize_grads(self, value: bool) -> None:
        """Whether the gradient of an unused result is zeros, or None."""


def save_all(
    ctx: Context,
    inputs: tuple[Tensor, ...],
    output: object,
    keyword_only_inputs: dict[str, Any] | None = None,
) -> None:
    """Save the positional and the keyword arguments."""
    save_keywords(ctx, inputs, output, keyword_only_inputs)
    ctx.save_for_backward(*inputs)


def save_keywords(
    ctx: Context,
    inputs: tuple[Tensor, ...],
    output: object,
    keyword_only_inputs: dict[str, Any] | None = None,
) -> None:
    """Save the keyword arguments and no tensor."""
    del inputs, output
    ctx.keywords = dict(keyword_only_inputs or {})


@dataclass(frozen=True)
class Autograd:
    """The arguments of torch.library.register_autograd.

    Attributes:
        backward: Gives the gradients of the positional arguments.
        setup_context: Saves what `backward` needs.
    """

    backward: Callable[..., Gradients]
    setup_context: Callable[..., None] = save_all

    @property
    def backward_without_autocast(self) -> Callable[..., Gradients]:
        """`backward`, in which autocast casts nothing."""
        return without_autocast(self.backward)


def _refuse_second_derivative(ctx: Context, *grads: Tensor) -> Gradients:
    del ctx, grads
    raise NotImplementedError(
        "fusedops: second derivatives are not provided; compute this part with "
        "torch.nn.functional where create_graph=True is needed"
    )


NO_SECOND_DERIVATIVE = Autograd(_refuse_second_derivative, save_keywords)
"""For an operator that computes a gradient and has none itself."""


def sum_to_row(grad: Tensor) -> Tensor:
    """The gradient of a row along the last dimension that was added to every row."""
    return grad.sum_to_size(grad.shape[-1])


def any_requires_grad(*args: object, **keywords: object) -> bool:
    """Whether an argument is a tensor that requires a gradient."""
    return any(isinstance(arg, Tensor) and arg.requires_grad for arg in (*args, *keywords.values()))


# torch's own is faster; torch 2.6 does not have it.
asks_for_gradients = getattr(torch._C, "_any_requires_grad", any_requires_grad)


def forward_mode() -> bool:
    """Whether tensors may have tangents, of torch.autograd.forward_ad or torch.func.jvp."""
    return forward_ad._current_level >= 0


def refuse_tangents(op: str, *args: object, **keywords: object) -> None:
    """Raise NotImplementedError if an argument has a tangent: torch would drop it in silence."""
    if forward_mode() and any(
        isinstance(arg, Tensor) and forward_ad.unpack_dual(arg).tangent is not None
        for arg in (*args, *keywords.values())
    ):
        refuse_forward_mode(op)


def refuse_forward_mode(op: str) -> NoReturn:
    """Raise NotImplementedError."""
    raise NotImplementedError(
        f"{op}: has no derivative in forward mode (torch.func.jvp, torch.autograd.forward_ad); "
        "compute this part with torch.nn.functional"
    )


@cache
def written_arguments(op: OpOverload) -> list[tuple[int, str]]:
    """Index and name of each argument that the operator writes to, by its schema."""
    return [
        (index, argument.name)
        for index, argument in enumerate(op._schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    ]


def autograd_kernel(name: str, find: Callable[[], OpOverload], autograd: Autograd) -> Kernel:
    """The kernel that torch.library.register_autograd would register, built at the first gradient.

    Most processes want no gradient, and building the kernels of all operators takes longer than the
    rest of the import. A call without a gradient also takes a shorter way here.
    """
    kernel: Kernel | None = None

    def call(keyset: Any, *args: Any, **keywords: Any) -> Any:  # noqa: ANN401 - torch's own types
        nonlocal kernel
        refuse_tangents(name, *args, **keywords)
        op = find()
        if not (torch.is_grad_enabled() and asks_for_gradients(*args)):
            with torch._C._AutoDispatchBelowAutograd():
                return op(*args, **keywords)
        if kernel is None:
            kernel = make_autograd_impl(
                op, Info(autograd.backward_without_autocast, autograd.setup_context)
            )
        return kernel(keyset, *args, **keywords)

    return call


def inference_kernel(name: str, find: Callable[[], OpOverload]) -> Kernel:
    """The kernel of an operator that writes to its arguments and has no gradient.

    It raises RuntimeError if an argument requires a gradient. After the call it bumps the version
    counters of the tensors it wrote, so that an operator that saved one of them for its own
    gradient finds out.
    """

    def call(*args: Any, **keywords: Any) -> Any:  # noqa: ANN401 - what the operator returns
        refuse_tangents(name, *args, **keywords)
        if torch.is_grad_enabled() and asks_for_gradients(*args, **keywords):
            raise RuntimeError(
                f"{name}: writes to its arguments, so it has no gradient; call it under "
                "torch.no_grad()"
            )
        op = find()
        with torch._C._AutoDispatchBelowAutograd():
            result = op(*args, **keywords)
        torch.autograd.graph.increment_version(args[index] for index, _ in written_arguments(op))
        return result

    return call
